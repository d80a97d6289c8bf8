package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// concurrently runs f n times at once and returns the errors.
func concurrently(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func count(errs []error, target error) int {
	n := 0
	for _, err := range errs {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

// R-AC01, R-AC02: the number of successes is the number of events, and the head of the stream agrees with its events.
func TestRacingAppendsOnOneStream(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	id := newStream("race")
	for _, err := range concurrently(50, func(i int) error {
		_, err := store.Append(t.Context(), eventstore.To(id, eventstore.AnyVersion, newEvent(fmt.Sprint(i))))
		return err
	}) {
		if err != nil {
			t.Errorf("any version: %v", err)
		}
	}
	errs := concurrently(50, func(i int) error {
		_, err := store.Append(t.Context(), eventstore.To(id, eventstore.Exactly(50), newEvent(fmt.Sprint(50+i))))
		return err
	})
	if won, lost := count(errs, nil), count(errs, eventstore.ErrConflict); won != 1 || lost != 49 {
		t.Errorf("%d successes and %d conflicts, want 1 and 49: %v", won, lost, errs)
	}
	for _, err := range errs {
		var conflict *eventstore.ConflictError
		if errors.As(err, &conflict) && (conflict.Actual != 51 || conflict.Expected != eventstore.Exactly(50) || conflict.Stream != id) {
			t.Errorf("conflict with other facts: %+v", conflict)
		}
	}
	result := mustAppend(t, store, eventstore.To(id, eventstore.Exactly(51), newEvent("last")))
	list := streamEvents(t, store, id)
	if len(list) != 52 || result.Versions[id] != 52 {
		t.Fatalf("%d events, version %d, want 52", len(list), result.Versions[id])
	}
	for i, e := range list {
		if e.Version != eventstore.Version(i+1) {
			t.Fatalf("event %d has version %d", i+1, e.Version)
		}
	}
	if head := value[int64](t, pool, `SELECT version FROM daybook.streams WHERE stream_id = $1`, id.String()); head != 52 {
		t.Errorf("head says %d", head)
	}
}

func TestRacingCreationsOfOneStream(t *testing.T) {
	t.Parallel()
	store, _ := freshStore(t, postgres.Config{})
	for round := range 20 {
		id := newStream("new")
		errs := concurrently(16, func(i int) error {
			_, err := store.Append(t.Context(), eventstore.To(id, eventstore.NoStream, newEvent(fmt.Sprint(i))))
			return err
		})
		if won, lost := count(errs, nil), count(errs, eventstore.ErrConflict); won != 1 || lost != 15 {
			t.Fatalf("round %d: %d successes and %d conflicts, want 1 and 15: %v", round, won, lost, errs)
		}
	}
}

// The loser's statement began before the winner's commit, so its snapshot does not show the stream.
func TestCreationThatWaitedForAnotherIsAConflict(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	id := newStream("new")
	tx := beginTx(t, pool)
	mustAppend(t, store.WithTx(tx), eventstore.To(id, eventstore.NoStream, newEvent("first"), newEvent("second")))
	lost := make(chan error, 1)
	go func() {
		_, err := store.Append(context.Background(), eventstore.To(id, eventstore.NoStream, newEvent("late")))
		lost <- err
	}()
	awaitBlocked(t, pool, 1)
	mustCommit(t, tx)
	var conflict *eventstore.ConflictError
	if err := <-lost; !errors.As(err, &conflict) || conflict.Actual != 2 {
		t.Errorf("got %v, want a conflict with version 2", err)
	}
}

// R-AC06: no two events at one version, also when somebody inserts by hand past the stream's row.
func TestTheDatabaseRefusesASecondEventAtOneVersion(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	id := newStream("twice")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1")))
	_, err := pool.Exec(t.Context(), `INSERT INTO daybook.events (version, id, partition, stream_id, type, data)
		VALUES (1, gen_random_uuid(), 0, $1, 'other.type', '')`, id.String())
	if err == nil || !strings.Contains(err.Error(), "23505") {
		t.Errorf("got %v, want a unique violation", err)
	}
}

func TestClosedStreamRefusesEventsOnly(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	id, other := newStream("closed"), newStream("open")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1")))
	mustExec(t, pool, `UPDATE daybook.streams SET closed = true WHERE stream_id = $1`, id.String())
	for _, writes := range [][]eventstore.Write{
		{eventstore.To(id, eventstore.Exactly(1), newEvent("2"))},
		{eventstore.To(id, eventstore.AnyVersion, newEvent("2"))},
		{eventstore.To(id, eventstore.StreamExists, newEvent("2"))},
		{eventstore.To(other, eventstore.NoStream, newEvent("1")), eventstore.To(id, eventstore.Exactly(1), newEvent("2"))},
	} {
		var closed *eventstore.ClosedError
		if _, err := store.Append(t.Context(), writes...); !errors.As(err, &closed) || closed.Stream != id {
			t.Errorf("got %v, want a ClosedError of %s", err, id)
		}
	}
	var conflict *eventstore.ConflictError
	if _, err := store.Append(t.Context(), eventstore.To(id, eventstore.Exactly(7), newEvent("2"))); !errors.Is(err, eventstore.ErrStreamClosed) && !errors.As(err, &conflict) {
		t.Errorf("closed and at another version: %v", err)
	}
	mustAppend(t, store, eventstore.Check(id, eventstore.Exactly(1)), eventstore.To(other, eventstore.NoStream, newEvent("1")))
	if got := streamEvents(t, store, id); len(got) != 1 {
		t.Errorf("the closed stream has %d events", len(got))
	}
}

// R-PG08: a statement of the append fails in the middle.
func TestFailingRowLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	mustExec(t, pool, `ALTER TABLE daybook.events ADD CONSTRAINT no_forbidden CHECK (type <> 'forbidden')`)
	store := openStore(t, pool, postgres.Config{MaxConns: 1})
	id := newStream("partly")
	bad := newEvent("2")
	bad.Type = "forbidden"
	for _, writes := range [][]eventstore.Write{
		{eventstore.To(id, eventstore.NoStream, newEvent("1"), bad, newEvent("3"))},
		{eventstore.To(newStream("whole"), eventstore.NoStream, newEvent("1")), eventstore.To(id, eventstore.AnyVersion, newEvent("1"), bad)},
	} {
		_, err := store.Append(t.Context(), writes...)
		if err == nil || !strings.Contains(err.Error(), "no_forbidden") {
			t.Fatalf("got %v, want the violation of no_forbidden", err)
		}
		if errors.Is(err, eventstore.ErrConflict) || errors.Is(err, postgres.ErrNoRange) || eventstore.IsRetryable(err) || errors.Is(err, eventstore.ErrUnconfirmed) {
			t.Errorf("mapped to something else: %v", err)
		}
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.events`); n != 0 {
		t.Errorf("%d events stored", n)
	}
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1"))) // on the only connection
}

// R-PG02: nothing of an append travels in a notification.
func TestLargeAppends(t *testing.T) {
	t.Parallel()
	store, _ := freshStore(t, postgres.Config{})
	id := newStream("large")
	large := newEvent(strings.Repeat("é", 1<<19))
	large.Metadata.Tenant = strings.Repeat("t", 255)
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, large))
	mustAppend(t, store, eventstore.To(id, eventstore.Exactly(1), manyEvents(500)...))
	list := streamEvents(t, store, id)
	if len(list) != 501 || len(list[0].Data) != 1<<20 || list[0].Metadata.Tenant != large.Metadata.Tenant {
		t.Errorf("%d events, the first of %d bytes", len(list), len(list[0].Data))
	}
}

// R-PG05: the time returned is the time stored, in microseconds, and the day does not change.
func TestTimeReturnedIsTimeStored(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	late := time.Date(2024, 12, 31, 23, 59, 59, 999_999_900, time.UTC)
	for name, cfg := range map[string]postgres.Config{
		"database": {},
		"clock":    {Clock: func() time.Time { return late.In(time.FixedZone("east", 3600)) }},
	} {
		store := openStore(t, pool, cfg)
		one, many := newStream("time"), newStream("time")
		for _, writes := range [][]eventstore.Write{
			{eventstore.To(one, eventstore.NoStream, newEvent("1"))},
			{eventstore.To(one, eventstore.Exactly(1), newEvent("2"))},
			{eventstore.To(one, eventstore.AnyVersion, newEvent("3")), eventstore.To(many, eventstore.NoStream, newEvent("1"), newEvent("2"))},
		} {
			result := mustAppend(t, store, writes...)
			for _, w := range writes {
				list := streamEvents(t, store, w.Stream)
				if last := list[len(list)-1]; !last.RecordedAt.Equal(result.RecordedAt) || last.RecordedAt.Location() != time.UTC {
					t.Errorf("%s: returned %v, stored %v", name, result.RecordedAt, last.RecordedAt)
				}
			}
			if want := late.Truncate(time.Microsecond); cfg.Clock != nil && !result.RecordedAt.Equal(want) {
				t.Errorf("%s: recorded at %v, want %v", name, result.RecordedAt, want)
			}
		}
	}
}

type observed struct {
	eventstore.NopObserver
	mu   sync.Mutex
	list []eventstore.AppendObservation
}

func (o *observed) ObserveAppend(a eventstore.AppendObservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, a)
}

func TestObserverSeesEveryAppend(t *testing.T) {
	t.Parallel()
	o := &observed{}
	store, pool := freshStore(t, postgres.Config{Observer: o})
	id := newStream("seen")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, manyEvents(3)...))
	_, conflict := store.Append(t.Context(), eventstore.To(id, eventstore.NoStream, newEvent("x")))
	tx := beginTx(t, pool)
	mustAppend(t, store.WithTx(tx), eventstore.To(id, eventstore.Exactly(3), newEvent("4")), eventstore.Check(newStream("none"), eventstore.NoStream))
	if len(o.list) != 3 || o.list[0].Events != 3 || o.list[0].Err != nil || o.list[2].Streams != 2 {
		t.Errorf("observed %+v", o.list)
	}
	if !errors.Is(conflict, eventstore.ErrConflict) || !errors.Is(o.list[1].Err, eventstore.ErrConflict) {
		t.Errorf("observed %v for %v", o.list[1].Err, conflict)
	}
}

// roundTrips counts what a connection sends in one go.
type roundTrips struct {
	mu sync.Mutex
	n  int
}

func (r *roundTrips) add() { r.mu.Lock(); r.n++; r.mu.Unlock() }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.add()
	return ctx
}
func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.add()
	return ctx
}
func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (r *roundTrips) during(f func()) int {
	r.mu.Lock()
	before := r.n
	r.mu.Unlock()
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n - before
}
