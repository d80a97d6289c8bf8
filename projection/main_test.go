package projection

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// patience bounds every wait of these tests; none is expected to come near it.
const patience = livetest.Patience

type (
	added   struct{ N int64 }
	removed struct{ N int64 }
	other   struct{ Text string }
	listed  struct{ Keys []string }
)

var testEvents = eventstore.NewCatalog(
	eventstore.TypeOf[added]("test.added"), eventstore.TypeOf[removed]("test.removed"),
	eventstore.TypeOf[other]("test.other"), eventstore.TypeOf[listed]("test.listed"))

// count is the state of most views here: enough to notice a lost, doubled or reordered event.
type count struct {
	Sum    int64
	Events int64
	Last   int64
}

func (c count) added(e Event[added]) count     { return c.apply(e.Payload.N, int64(e.Version)) }
func (c count) removed(e Event[removed]) count { return c.apply(-e.Payload.N, int64(e.Version)) }
func (c count) apply(n, version int64) count {
	c.Sum += n
	c.Events++
	if version > c.Last {
		c.Last = version
	} else {
		c.Sum += 1_000_000 // out of order or doubled: makes every comparison fail
	}
	return c
}

func counts(name string) View[string, count] {
	return View[string, count]{
		Name: name, Version: 1, Events: testEvents,
		Folds: []Fold[string, count]{On(ByStream, count.added), On(ByStream, count.removed)},
	}
}

func encode(t testing.TB, events ...any) []eventstore.EventData {
	t.Helper()
	var all []eventstore.EventData
	for _, e := range events {
		d, err := testEvents.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

func stream(id string) eventstore.StreamID { return eventstore.StreamID{Category: "test", ID: id} }

// world is a store in a database of its own.
type world struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *postgres.Store
}

func newWorld(t testing.TB, defs ...Definition) *world {
	t.Helper()
	pool := postgrestest.New(t)
	return openWorld(t, pool, defs...)
}

func openWorld(t testing.TB, pool *pgxpool.Pool, defs ...Definition) *world {
	t.Helper()
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	w := &world{t, pool, store}
	w.install(defs...)
	return w
}

func (w *world) install(defs ...Definition) {
	w.t.Helper()
	if err := Install(w.t.Context(), w.pool, defs...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) append(id string, events ...any) eventstore.Token {
	w.t.Helper()
	r, err := w.store.Append(w.t.Context(), eventstore.To(stream(id), eventstore.AnyVersion, encode(w.t, events...)...))
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Token
}

func (w *world) runner(cfg Config, defs ...Definition) *Runner {
	w.t.Helper()
	r, err := NewRunner(w.pool, w.store.Log(), cfg, defs...)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// start runs r until stop is called, or the test ends.
func (w *world) start(r *Runner) (stop func()) {
	w.t.Helper()
	return livetest.Start(w.t, r.Run)
}

func (w *world) wait(token eventstore.Token, in ...Named) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := NewWaiter(w.pool, WaiterConfig{}).WaitFor(ctx, token, in...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) int64 {
	w.t.Helper()
	return livetest.Exec(w.t, w.pool, sql, args...)
}

func ask[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	return livetest.Ask[T](w.t, w.pool, sql, args...)
}

func rowsOf[K comparable, S any](w *world, v View[K, S]) map[K]S {
	w.t.Helper()
	rows := map[K]S{}
	for r, err := range v.All(context.Background(), w.pool) {
		if err != nil {
			w.t.Fatal(err)
		}
		rows[r.Key] = r.State
	}
	return rows
}

func mustBe[E error](t testing.TB, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("error is %T %v, want %T", err, err, e)
	}
	return e
}

// rounds is how often something is done whose full number is large: below the full size half of what the scale says, because
// what each round costs, a process or a database, is far more than what it shows.
func rounds(full int) int {
	if testscale.Factor() < 1 {
		return max(testscale.N(full)/2, 1)
	}
	return testscale.N(full)
}

// visits is how often a process is killed at each place.
func visits() int {
	if testscale.Factor() < 1 {
		return 2
	}
	return 3
}

func TestMain(m *testing.M) {
	if place := os.Getenv(childEnv); place != "" {
		if err := child(place); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	// A check of the property test needs the database; the flag may still say another number.
	if err := flag.Set("rapid.checks", fmt.Sprint(testscale.N(250))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(m.Run())
}
