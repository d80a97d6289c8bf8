package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/parking"
)

// patience bounds every wait of these tests; none is expected to come near it.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 64

var ann = Options{Actor: "ann@desk", Reason: "fixed in 1.4.2"}

// world is a store with letters.
type world struct {
	t       testing.TB
	pool    *pgxpool.Pool
	store   *postgres.Store
	letters *Letters
	base    time.Time
}

func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	pool := postgrestest.New(t)
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	letters, err := New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, pool: pool, store: store, letters: letters, base: time.Now().UTC().Truncate(time.Microsecond)}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func get[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// append stores an event of a stream, which is its own sequence.
func (w *world) append(id string, data string) eventstore.RecordedEvent {
	w.t.Helper()
	s := eventstore.NewStreamID("order", id)
	e := eventstore.EventData{
		Type: "order.paid", Data: []byte(data), ContentType: "text/plain",
		Metadata: eventstore.Metadata{Actor: "shop", Headers: map[string]string{"trace": "t1"}},
	}
	if _, err := w.store.Append(w.t.Context(), eventstore.To(s, eventstore.AnyVersion, e)); err != nil {
		w.t.Fatal(err)
	}
	var last eventstore.RecordedEvent
	for e, err := range w.store.ReadStream(w.t.Context(), s, eventstore.Range{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		last = e
	}
	return last
}

// worker does to the rows what the owner of a consumer does.
type worker struct {
	w     *world
	owner parking.Owner
	set   *parking.Set
	floor int64
	epoch int64
	rev   int64
}

// worker installs a consumer and owns it.
func (w *world) worker(consumer string) *worker {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.consumers (consumer, version, kind) VALUES ($1, 1, 'projection')`, consumer)
	w.exec(`INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition) VALUES ($1, 1, 0, 0, $2)`, consumer, partitions-1)
	k := &worker{w: w, owner: parking.Owner{Schema: "daybook", Consumer: consumer, Version: 1}}
	k.take()
	return k
}

// take is what an owner does when it begins, and after it was fenced.
func (k *worker) take() {
	k.w.t.Helper()
	err := k.w.pool.QueryRow(k.w.t.Context(), `UPDATE daybook.segments SET owner = 'me', epoch = epoch + 1, expires_at = clock_timestamp() + interval '1 hour'
		WHERE consumer = $1 RETURNING epoch, parked_rev, floor`, k.owner.Consumer).Scan(&k.epoch, &k.rev, &k.floor)
	if err != nil {
		k.w.t.Fatal(err)
	}
	k.set = must[*parking.Set](k.w.t)(parking.Load(k.w.t.Context(), k.w.pool, k.owner, 0, partitions-1))
}

// commit makes changes that bring the checkpoint to a position, as the last statements of a batch.
func (k *worker) commit(ctx context.Context, floor int64, c *parking.Changes) error {
	tx, err := k.w.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var b pgx.Batch
	b.Queue(`SELECT daybook.commit_batch($1, 1, 0, $2, $3, $4, $5, '{}', '{}', '{}', '{}', $6)`,
		k.owner.Consumer, k.epoch, k.rev, k.floor, floor, c.Raises())
	c.Queue(&b)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	k.floor = floor
	if c.Raises() {
		k.rev++
	}
	c.Committed(time.Now())
	return nil
}

func (k *worker) mustCommit(floor int64, c *parking.Changes) {
	k.w.t.Helper()
	if err := k.commit(k.w.t.Context(), floor, c); err != nil {
		k.w.t.Fatal(err)
	}
}

// fenced reports whether the owner is told that what it knows is old.
func (k *worker) fenced() bool {
	k.w.t.Helper()
	err := k.commit(k.w.t.Context(), k.floor, k.set.Change())
	var pg *pgconn.PgError
	if err != nil && (!errors.As(err, &pg) || pg.Code != "DB002") {
		k.w.t.Fatal(err)
	}
	return err != nil
}

// fail parks the sequence of an event, as its first failure.
func (k *worker) fail(e eventstore.RecordedEvent, cause string) uuid.UUID {
	k.w.t.Helper()
	c := k.set.Change()
	c.Park(k.failure(e, cause))
	k.mustCommit(max(k.floor, e.Position.Ordinal()), c)
	return parking.LetterID(k.owner, "", e.Position)
}

func (k *worker) failure(e eventstore.RecordedEvent, cause string) parking.Failure {
	return parking.Failure{
		Message: e, Kind: eventstore.Permanent, Handler: "orders", At: k.w.base,
		Err: fmt.Errorf("orders: book %s: %w", e.Stream, errors.New(cause)),
	}
}

// pass passes an event by that is behind a letter.
func (k *worker) pass(e eventstore.RecordedEvent) {
	k.w.t.Helper()
	c := k.set.Change()
	c.Passed(parking.Key{Sequence: e.PartitionKey}, e.Position)
	k.mustCommit(max(k.floor, e.Position.Ordinal()), c)
}

// through moves the checkpoint without anything failing.
func (k *worker) through(e eventstore.RecordedEvent) {
	k.w.t.Helper()
	k.mustCommit(e.Position.Ordinal(), k.set.Change())
}

// drain applies the events that are queued of a sequence, and releases it.
func (k *worker) drain(sequence string, events ...eventstore.RecordedEvent) {
	k.w.t.Helper()
	key := parking.Key{Sequence: sequence}
	for _, e := range events {
		c := k.set.Change()
		c.Advance(key, e.Position, 1)
		k.mustCommit(k.floor, c)
	}
	c := k.set.Change()
	c.Release(key)
	k.mustCommit(k.floor, c)
}

func wantRefused(t testing.TB, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, ErrRefused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	var r *RefusedError
	if !errors.As(err, &r) || r.What == "" {
		t.Errorf("%v has no facts", err)
	}
	wantText(t, err.Error(), parts...)
}

func wantText(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q lacks %q", text, p)
		}
	}
}

// appendKeyed stores the first event of a stream that shares a partition key.
func (w *world) appendKeyed(category, id, key string) eventstore.RecordedEvent {
	w.t.Helper()
	s := eventstore.NewStreamID(category, id)
	write := eventstore.To(s, eventstore.NoStream, eventstore.EventData{Type: "order.line", Data: []byte("x")})
	write.PartitionKey = key
	if _, err := w.store.Append(w.t.Context(), write); err != nil {
		w.t.Fatal(err)
	}
	for e, err := range w.store.ReadStream(w.t.Context(), s, eventstore.Range{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		return e
	}
	w.t.Fatal("nothing was stored")
	return eventstore.RecordedEvent{}
}

// until waits for a condition of the database.
func (w *world) until(what, sql string, args ...any) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !get[bool](w, sql, args...); <-tick.C {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s", what)
		}
	}
}
