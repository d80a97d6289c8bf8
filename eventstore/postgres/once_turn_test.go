package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/testscale"
)

// steppedClock goes on when a test says so.
type steppedClock struct{ at atomic.Int64 }

func newSteppedClock() *steppedClock {
	c := &steppedClock{}
	c.at.Store(time.Date(2024, 2, 29, 23, 59, 59, 0, time.UTC).UnixMicro())
	return c
}

func (c *steppedClock) now() time.Time       { return time.UnixMicro(c.at.Load()).UTC() }
func (c *steppedClock) step(d time.Duration) { c.at.Add(d.Microseconds()) }
func newKey() eventstore.Claim {
	return eventstore.Claim{Scope: "s", Key: uuid.NewString(), Request: []byte("r"), Call: uuid.New()}
}
func turnOf(t *testing.T, p *pgxpool.Pool) int {
	return value[int](t, p, `SELECT turn::int FROM daybook.outcome_turn`)
}

func mustTurn(t *testing.T, store *postgres.Store) {
	t.Helper()
	if err := store.TurnOutcomes(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func mustAppendOnce(t testing.TB, store eventstore.OnceAppender, c eventstore.Claim, o eventstore.Outcome, writes ...eventstore.Write) eventstore.Outcome {
	t.Helper()
	got, err := store.AppendOnce(context.Background(), c, o, writes...)
	if err != nil {
		t.Fatalf("append once: %v", err)
	}
	return got
}

// clockedStore is a store whose keys and events follow a clock of the test's. The clock of the first turn is set to it.
func clockedStore(t *testing.T, keep time.Duration) (*postgres.Store, *pgxpool.Pool, *steppedClock) {
	t.Helper()
	clock := newSteppedClock()
	store, pool := freshStore(t, postgres.Config{KeepKeys: keep, Clock: clock.now})
	mustExec(t, pool, `UPDATE daybook.outcome_turn SET since = $1`, clock.now())
	return store, pool, clock
}

// No key goes within the retention, at whatever moments it was stored and the parts are seen to; and all go afterwards.
func TestKeysAreKeptAndGo(t *testing.T) {
	t.Parallel()
	const keep = time.Hour
	for name, longest := range map[string]time.Duration{"often": keep / 16, "now and then": keep / 3, "rarely": 3 * keep} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, pool, clock := clockedStore(t, keep)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			type stored struct {
				claim eventstore.Claim
				at    time.Time
			}
			var all []stored
			check := func() {
				t.Helper()
				left := all[:0:0]
				for _, s := range all {
					_, found, err := store.FirstOutcome(context.Background(), s.claim)
					age := clock.now().Sub(s.at)
					switch {
					case err != nil:
						t.Fatal(err)
					case !found && age <= keep:
						t.Fatalf("a key is gone after %s, turn %d", age, turnOf(t, pool))
					case found && longest <= keep/16 && age > 11*keep/4:
						t.Fatalf("a key is there after %s, turn %d", age, turnOf(t, pool))
					}
					if found {
						left = append(left, s)
						if got := mustAppendOnce(t, store, eventstore.Claim{Scope: s.claim.Scope, Key: s.claim.Key, Request: s.claim.Request}, eventstore.Outcome{}); !got.Repeated {
							t.Fatalf("a repeat slipped through after %s", age)
						}
					}
				}
				all = left
			}
			for range max(testscale.N(1000), 100) {
				if r.IntN(3) == 0 { // exactly when something may happen, or just before or after
					since := value[time.Time](t, pool, `SELECT since FROM daybook.outcome_turn`)
					target := since.Add(keep * 5 / 4)
					if d := target.Add(time.Duration(r.IntN(3)-1) * time.Microsecond).Sub(clock.now()); d > 0 && d <= longest {
						clock.step(d)
					}
				} else {
					clock.step(time.Duration(r.Int64N(int64(longest))).Truncate(time.Microsecond))
				}
				for range r.IntN(3) {
					c := newKey()
					all = append(all, stored{c, clock.now()})
					if got := mustAppendOnce(t, store, c, eventstore.Outcome{}); !got.At.Equal(clock.now()) {
						t.Fatalf("stored at %s, not %s", got.At, clock.now())
					}
				}
				if longest > keep/16 && r.IntN(3) > 0 {
					continue // nobody looks for a while
				}
				mustTurn(t, store)
				if testscale.Factor() >= 1 || r.IntN(3) == 0 { // a key that went too soon is still missing later
					check()
				}
			}
			for range 4 * 16 * 2 {
				clock.step(keep / 32)
				mustTurn(t, store)
			}
			if n := value[int](t, pool, `SELECT count(*) FROM daybook.outcomes`); n != 0 {
				t.Errorf("%d keys stay for ever", n)
			}
		})
	}
}

func TestManyTurnAtOnce(t *testing.T) {
	t.Parallel()
	store, pool, clock := clockedStore(t, time.Hour)
	for round := range 8 {
		before := turnOf(t, pool)
		clock.step(time.Hour)
		for _, err := range concurrently(8, func(int) error { return store.TurnOutcomes(context.Background()) }) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if after := turnOf(t, pool); after > before+1 {
			t.Fatalf("round %d: from turn %d to %d in one moment", round, before, after)
		}
	}
	if turnOf(t, pool) < 2 {
		t.Error("nothing turned")
	}
}

// Someone who reads the part that is to be emptied delays that, and no more.
func TestReaderDelaysTheEmptying(t *testing.T) {
	t.Parallel()
	store, pool, clock := clockedStore(t, time.Hour)
	c := newKey()
	mustAppendOnce(t, store, c, eventstore.Outcome{})
	there := func() bool { return value[bool](t, pool, `SELECT EXISTS (SELECT FROM daybook.outcomes_0)`) }
	for turnOf(t, pool) < 1 {
		clock.step(time.Hour / 4)
		mustTurn(t, store)
	}
	reader := beginTx(t, pool)
	value[int](t, reader, `SELECT count(*) FROM daybook.outcomes`)
	for range 5 {
		clock.step(time.Hour)
		within(t, patience, "a turn", func() { mustTurn(t, store) })
	}
	if !there() || turnOf(t, pool) != 1 {
		t.Fatalf("there %t, turn %d", there(), turnOf(t, pool))
	}
	mustAppendOnce(t, store, newKey(), eventstore.Outcome{}) // goes on meanwhile
	mustCommit(t, reader)
	mustTurn(t, store)
	if there() || turnOf(t, pool) != 2 {
		t.Error("the part was not emptied afterwards")
	}
	if _, found, err := store.FirstOutcome(t.Context(), c); found || err != nil {
		t.Errorf("found %t, %v", found, err)
	}
}

func TestClockThatJumpsBack(t *testing.T) {
	t.Parallel()
	store, pool, clock := clockedStore(t, time.Hour)
	c := newKey()
	mustAppendOnce(t, store, c, eventstore.Outcome{})
	for turnOf(t, pool) < 1 {
		clock.step(time.Hour / 4)
		mustTurn(t, store)
	}
	for range 20 { // back and forth over the same hours: no time goes by
		clock.step(-3 * time.Hour)
		mustTurn(t, store)
		clock.step(3 * time.Hour)
		mustTurn(t, store)
	}
	if turn := turnOf(t, pool); turn != 1 {
		t.Errorf("turn %d", turn)
	}
	if _, found, err := store.FirstOutcome(t.Context(), c); !found || err != nil {
		t.Errorf("found %t, %v", found, err)
	}
}

// Commands are sent twice, and some thrice, while parts turn under them.
func TestAppendOnceWhilePartsTurn(t *testing.T) {
	t.Parallel()
	const keep = time.Hour
	store, pool, clock := clockedStore(t, keep)
	ctx, cancel := context.WithCancel(t.Context())
	var turner, wg sync.WaitGroup
	turner.Go(func() {
		for ctx.Err() == nil {
			clock.step(keep / 32)
			if err := store.TurnOutcomes(context.Background()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var proved atomic.Int32
	for w := range 4 {
		wg.Go(func() {
			for i := range max(testscale.N(1000), 100) {
				c, id := newKey(), newStream("once")
				write := eventstore.To(id, eventstore.NoStream, newEvent("1"))
				first, err := store.AppendOnce(context.Background(), c, eventstore.Outcome{}, write)
				if err != nil {
					t.Errorf("writer %d, command %d: %v", w, i, err)
					return
				}
				for range 1 + i%2 {
					_, err := store.AppendOnce(context.Background(), c, eventstore.Outcome{}, write)
					if clock.now().Sub(first.At) > keep {
						break // it may be gone, and the stream is there
					}
					if err != nil {
						t.Errorf("writer %d, command %d: %v", w, i, err)
						return
					}
					proved.Add(1)
				}
			}
		})
	}
	wg.Wait()
	cancel()
	turner.Wait()
	if n := turnOf(t, pool); n < 3 || proved.Load() < 50 {
		t.Errorf("only %d turns and %d repeats: the test shows little", n, proved.Load())
	}
}

// Programs without Run turn too.
func TestAppendOnceSeesToOldKeys(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{KeepKeys: time.Second})
	await(t, "two turns", func() bool {
		mustAppendOnce(t, store, newKey(), eventstore.Outcome{})
		return turnOf(t, pool) >= 2
	})
}

func TestRunSeesToOldKeys(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{KeepKeys: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	await(t, "two turns", func() bool { return turnOf(t, pool) >= 2 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRoleThatTurns(t *testing.T) {
	t.Parallel()
	_, owner := freshStore(t, postgres.Config{})
	pool := rolePool(t, owner, "daybook")
	clock := newSteppedClock()
	store := openStore(t, pool, postgres.Config{KeepKeys: time.Hour, Clock: clock.now})
	mustExec(t, owner, `UPDATE daybook.outcome_turn SET since = $1`, clock.now())
	mustAppendOnce(t, store, newKey(), eventstore.Outcome{})
	for range 8 {
		clock.step(time.Hour / 2)
		mustTurn(t, store)
	}
	if n := value[int](t, owner, `SELECT count(*) FROM daybook.outcomes`); n != 0 {
		t.Errorf("%d keys", n)
	}
	for _, sql := range []string{
		`UPDATE daybook.outcomes SET kind = 0`, `DELETE FROM daybook.outcomes`, `TRUNCATE daybook.outcomes_0`, `UPDATE daybook.outcome_turn SET turn = 9`,
		`UPDATE daybook.store SET secret = ''`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("allowed: %s", sql)
		}
	}
}

func TestKeepKeysIsChecked(t *testing.T) {
	t.Parallel()
	_, pool := freshStore(t, postgres.Config{})
	for _, keep := range []time.Duration{-1, time.Millisecond} {
		if _, err := postgres.New(t.Context(), pool, postgres.Config{KeepKeys: keep}); err == nil {
			t.Error(fmt.Sprint("accepted ", keep))
		}
	}
}
