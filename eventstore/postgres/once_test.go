package postgres_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

func anotherCall(c eventstore.Claim) eventstore.Claim {
	c.Call = uuid.New()
	return c
}

// Two processes with one key: it takes effect once.
func TestTwoStoresWithOneKey(t *testing.T) {
	t.Parallel()
	a, pool := freshStore(t, postgres.Config{})
	stores := []*postgres.Store{a, openStore(t, pool, postgres.Config{Hooks: []postgres.Hook{
		func(context.Context, pgx.Tx, []eventstore.RecordedEvent) error { return nil },
	}})}
	for range max(testscale.N(100), 10) {
		c := newKey()
		ids := []eventstore.StreamID{newStream("a"), newStream("b")}
		var first atomic.Int32
		for _, err := range concurrently(16, func(i int) error {
			o, err := stores[i%2].AppendOnce(context.Background(), anotherCall(c), eventstore.Outcome{}, eventstore.To(ids[i%2], eventstore.NoStream, newEvent("1")))
			if err == nil && !o.Repeated {
				first.Add(1)
			}
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := len(streamEvents(t, a, ids[0])) + len(streamEvents(t, a, ids[1])); n != 1 || first.Load() != 1 {
			t.Fatalf("%d events, %d were the first", n, first.Load())
		}
	}
	release, err := stores[0].HoldKey(t.Context(), eventstore.Claim{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stores[1].HoldKey(t.Context(), eventstore.Claim{Key: "k"}); !errors.Is(err, eventstore.ErrInProgress) {
		t.Errorf("held in the other process: %v", err)
	}
	release()
	release, err = stores[1].HoldKey(t.Context(), eventstore.Claim{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// The answer is lost after the commit: the same call finds its own outcome.
func TestOutcomeWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &lossy{Conn: conn, armed: &armed}, nil
		}
	}))
	store := openStore(t, pool, postgres.Config{MaxConns: 1})
	for name, streams := range map[string]int{"one stream": 1, "several": 2, "no events": 0} {
		made := func() (writes []eventstore.Write) {
			for range streams {
				writes = append(writes, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
			}
			return writes
		}
		mustAppendOnce(t, store, newKey(), eventstore.Outcome{}, made()...) // its statements are prepared
		c, writes := newKey(), made()
		armed.Store(true)
		if _, err := store.AppendOnce(t.Context(), c, eventstore.Outcome{Text: "mine"}, writes...); !errors.Is(err, eventstore.ErrUnconfirmed) || eventstore.IsRetryable(err) {
			t.Fatalf("%s: got %v, want ErrUnconfirmed", name, err)
		}
		if got, found, err := store.FirstOutcome(t.Context(), c); err != nil || !found || got.Repeated || got.Text != "mine" {
			t.Errorf("%s: %+v, %t, %v", name, got, found, err)
		}
		if got := mustAppendOnce(t, store, c, eventstore.Outcome{Text: "mine"}, writes...); got.Repeated || len(got.Streams) != len(writes) {
			t.Errorf("%s: sent again: %+v", name, got)
		}
		if got := mustAppendOnce(t, store, anotherCall(c), eventstore.Outcome{}, writes...); !got.Repeated || got.Text != "mine" {
			t.Errorf("%s: another call: %+v", name, got)
		}
	}
}

// Backends are killed at random moments; each command takes effect once, however often it has to be sent.
func TestBackendsKilledUnderCommands(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	victim := openStore(t, postgrestestPool(t, pool, "victim"), postgres.Config{MaxConns: 2})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	mustAppendOnce(t, victim, newKey(), eventstore.Outcome{}, eventstore.To(newStream("warm"), eventstore.NoStream, newEvent("1")))
	start := time.Now()
	mustAppendOnce(t, victim, newKey(), eventstore.Outcome{}, eventstore.To(newStream("warm"), eventstore.NoStream, newEvent("1")))
	usual := time.Since(start)
	failed, repeated := 0, 0
	for round := range testscale.N(250) {
		c, id := newKey(), newStream("s")
		moment := time.NewTimer(time.Duration(r.Int64N(int64(usual) + 1)))
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			<-moment.C
			if _, err := pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = current_database()`); err != nil {
				t.Error(err)
			}
		}()
		for sent := 1; ; sent++ {
			o, err := victim.AppendOnce(context.Background(), c, eventstore.Outcome{Text: "ok"}, eventstore.To(id, eventstore.NoStream, newEvent("1"), newEvent("2")))
			if err == nil {
				if o.Repeated || o.Versions()[id] != 2 {
					t.Fatalf("round %d: %+v", round, o)
				}
				if sent > 1 {
					repeated++
				}
				break
			}
			failed++
			if sent == 20 {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		<-killed
		var first eventstore.Outcome
		await(t, "the outcome", func() bool {
			got, found, err := victim.FirstOutcome(context.Background(), anotherCall(c))
			first = got
			return err == nil && found
		})
		if n := value[int](t, pool, `SELECT count(*) FROM daybook.events WHERE stream_id = $1`, id.String()); n != 2 || !first.Repeated || first.Versions()[id] != 2 || first.Text != "ok" {
			t.Fatalf("round %d: %d events, %+v", round, n, first)
		}
	}
	t.Logf("%d calls failed, %d commands were sent more than once", failed, repeated)
}

// postgrestestPool is a pool on the same database under another name.
func postgrestestPool(t *testing.T, pool *pgxpool.Pool, name string) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	named, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(named.Close)
	return named
}

// R-LB07: requests with few distinct keys and many writers. The look-up reads as much at the end as at the beginning.
func TestLookUpsStayFlat(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{MaxConns: 16})
	requests := 1_200
	if testscale.Factor() >= 1 {
		requests = 400_000
	}
	keys := make([]eventstore.Claim, requests/10)
	for i := range keys {
		keys[i] = newKey()
		keys[i].Key = fmt.Sprint("key ", i)
	}
	var next atomic.Int64
	run := func(until int) {
		for _, err := range concurrently(16, func(int) error {
			for {
				i := int(next.Add(1)) - 1
				if i >= until {
					return nil
				}
				c := anotherCall(keys[i%len(keys)])
				id := eventstore.NewStreamID("req", fmt.Sprint(i))
				if _, err := store.AppendOnce(context.Background(), c, eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, newEvent("1"))); err != nil {
					return err
				}
			}
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		next.Store(int64(until))
	}
	// buffers counts the pages that a look-up reads, as the store plans it.
	buffers := func() int {
		t.Helper()
		conn, err := store.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		sql := strings.NewReplacer("$1", "'s'", "$2", "'key 7'").Replace(postgres.Statements("daybook")["firstOutcome"])
		rows, err := conn.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) `+sql, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Rows Removed") {
			t.Errorf("the look-up reads more than its row:\n%s", plan)
		}
		n, read := 0, 0
		for _, line := range lines {
			if _, err := fmt.Sscanf(strings.TrimSpace(line), "Buffers: shared hit=%d read=%d", &n, &read); n > 0 || err == nil {
				break
			}
		}
		return n + read
	}
	run(requests / 4)
	early := buffers()
	run(requests)
	late := buffers()
	t.Logf("%d requests, %d keys: a look-up reads %d pages, after a quarter %d", requests, len(keys), late, early)
	if late == 0 || late > early+8 || late > 24 {
		t.Errorf("a look-up reads %d pages, %d before", late, early)
	}
	if events, outcomes := value[int](t, pool, `SELECT count(*) FROM daybook.events`), value[int](t, pool, `SELECT count(*) FROM daybook.outcomes`); events != len(keys) || outcomes != len(keys) {
		t.Errorf("%d events and %d outcomes of %d keys", events, outcomes, len(keys))
	}
}

// R-AC09: a lost race, a key that was used, and a user's own unique violation are told apart, and only the first is tried
// again.
func TestWhichConstraintFailed(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	mustExec(t, pool, `CREATE TABLE users_own (name text PRIMARY KEY)`)
	store := openStore(t, pool, postgres.Config{Hooks: []postgres.Hook{func(ctx context.Context, tx pgx.Tx, events []eventstore.RecordedEvent) error {
		_, err := tx.Exec(ctx, `INSERT INTO users_own VALUES ($1)`, string(events[0].Data))
		return err
	}}})
	id, c := newStream("s"), newKey()
	mustAppendOnce(t, store, c, eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, newEvent("a")))
	_, race := store.AppendOnce(t.Context(), newKey(), eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, newEvent("b")))
	other := c
	other.Request = []byte("other")
	_, reused := store.AppendOnce(t.Context(), other, eventstore.Outcome{}, eventstore.To(id, eventstore.Exactly(1), newEvent("c")))
	third := newKey()
	_, users := store.AppendOnce(t.Context(), third, eventstore.Outcome{}, eventstore.To(id, eventstore.Exactly(1), newEvent("a")))
	if !errors.Is(race, eventstore.ErrConflict) || !eventstore.IsRetryable(race) {
		t.Errorf("race: %v", race)
	}
	if !errors.Is(reused, eventstore.ErrReusedKey) || eventstore.IsRetryable(reused) {
		t.Errorf("reused: %v", reused)
	}
	if pgErr, ok := users.(*pgconn.PgError); !ok || pgErr.Code != "23505" || pgErr.TableName != "users_own" || eventstore.IsRetryable(users) { //nolint:errorlint // untouched
		t.Errorf("the user's own: %v", users)
	}
	if _, found, err := store.FirstOutcome(t.Context(), third); found || err != nil {
		t.Errorf("an outcome of what was rolled back: %t, %v", found, err)
	}
	if n := len(streamEvents(t, store, id)); n != 1 {
		t.Errorf("%d events", n)
	}
}

// Requests are kept as hashes that differ from store to store and key to key, and survive a change of the epoch.
func TestRequestsAreHashedWithASecret(t *testing.T) {
	t.Parallel()
	a, pool := freshStore(t, postgres.Config{})
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{Schema: "other"}); err != nil { // a copy has the secret of its original
		t.Fatal(err)
	}
	b := openStore(t, pool, postgres.Config{Schema: "other"})
	c := newKey()
	mustAppendOnce(t, a, c, eventstore.Outcome{})
	stored := value[[]byte](t, pool, `SELECT request FROM daybook.outcomes`)
	plain := sha256.Sum256(c.Request)
	other := c
	other.Key = "other"
	if len(stored) != 32 || bytes.Equal(stored, plain[:]) || bytes.Equal(stored, b.HashRequest(c)) || bytes.Equal(stored, a.HashRequest(other)) || !bytes.Equal(stored, a.HashRequest(c)) {
		t.Errorf("stored %x", stored)
	}
	if _, err := postgres.SetEpoch(t.Context(), pool, "", postgres.EpochNew); err != nil {
		t.Fatal(err)
	}
	again := openStore(t, pool, postgres.Config{})
	if got := mustAppendOnce(t, again, anotherCall(c), eventstore.Outcome{}); !got.Repeated {
		t.Error("the key is forgotten")
	}
}

// A repeat of a command whose events became messages with positions of their own waits for all of them.
func TestTokenOfARepeatCoversMessages(t *testing.T) {
	t.Parallel()
	store, _ := freshStore(t, postgres.Config{Routes: routes()})
	c, id := newKey(), eventstore.NewStreamID("order", uuid.NewString())
	first := mustAppendOnce(t, store, c, eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, newEvent("1"), newEvent("2")))
	got := mustAppendOnce(t, store, anotherCall(c), eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, newEvent("1")))
	if a, b := first.Token.Marks()[0], got.Token.Marks()[0]; !got.Repeated || a.Partition != b.Partition || b.Position.Before(a.Position) {
		t.Errorf("first %+v, repeat %+v", a, b)
	}
}
