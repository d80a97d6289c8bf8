package projection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

func (w *world) waiter() *Waiter { return NewWaiter(w.pool, WaiterConfig{}) }

// R-RW01: a position that was drawn and lost is nobody's target.
func TestWaitAfterALostRace(t *testing.T) {
	t.Parallel()
	v := counts("lost_race")
	w := newWorld(t, v)
	w.start(w.runner(Config{}, v))
	token := w.append("s", added{1})
	for range 5 {
		if _, err := w.store.Append(t.Context(), eventstore.To(stream("s"), eventstore.NoStream, encode(t, added{2})...)); !errors.Is(err, eventstore.ErrConflict) {
			t.Fatalf("the race was not lost: %v", err)
		}
		w.exec("SELECT nextval('daybook.log_position')")
	}
	w.wait(token, v)
}

// R-RW02: a projection that never had anything to do is not behind.
func TestWaitWithoutEventsOfItsOwn(t *testing.T) {
	t.Parallel()
	v := counts("nothing_to_do")
	w := newWorld(t, v)
	if err := w.waiter().WaitFor(t.Context(), eventstore.Token{}, v); err != nil { // also while nothing runs
		t.Fatal(err)
	}
	w.start(w.runner(Config{}, v))
	for range 20 {
		began := time.Now()
		w.wait(w.append("s", other{"x"}), v)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("waiting took %v", took)
		}
	}
}

// R-RW03: a handler that waits for its own projection is told so at once, and goes on.
func TestWaitInsideItsOwnHandler(t *testing.T) {
	t.Parallel()
	var w *world
	var self Projection
	answers := make(chan error, 1)
	self = logged("selfish", func(ctx context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N == 1 {
			token := w.append("s", added{2})
			answers <- w.waiter().WaitFor(ctx, token, self)
		}
		return nil
	})
	w = newWorld(t, self)
	w.append("s", added{1})
	w.start(w.runner(Config{}, self))
	select {
	case err := <-answers:
		if !errors.Is(err, ErrInsideHandler) {
			t.Errorf("the handler got %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the handler waits")
	}
	livetest.Eventually(t, "the consumer goes on", func() bool { return len(values(w, "selfish")) == 2 })
}

// R-RW05: whoever waits sees a row that is at least as new as its token, also while the projection is slow.
func TestNeverOlderThanTheToken(t *testing.T) {
	t.Parallel()
	v := counts("fresh")
	w := newWorld(t, v)
	w.start(w.runner(Config{}, v))
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			id := fmt.Sprint("s", n)
			for i := int64(1); i <= 25; i++ {
				token := w.append(id, added{1})
				row, err := v.Get(t.Context(), w.pool, id, AtLeast(token), Within(patience))
				if err != nil || row.Events < i {
					t.Errorf("after event %d of %s: %+v %v", i, id, row, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestStaleErrorSaysHowFar(t *testing.T) {
	t.Parallel()
	v := counts("stale")
	w := newWorld(t, v)
	w.append("s", added{1})
	token := w.append("s", added{2})
	e := mustBe[*StaleError](t, func() error {
		_, err := v.Get(t.Context(), w.pool, "s", AtLeast(token), Within(time.Second))
		return err
	}())
	if !errors.Is(e, context.DeadlineExceeded) || e.Projection != "stale" || e.Want != token.Marks()[0].Position || e.Have != (eventstore.Position{}) || e.Behind != e.Want.Ordinal() {
		t.Errorf("the error is %+v", e)
	}
	if !e.Idle || !strings.Contains(e.Error(), "no process runs it: is Runner.Run running?") {
		t.Errorf("%q does not say that nobody works", e)
	}
	w.exec("UPDATE daybook.segments SET owner = 'somebody', expires_at = clock_timestamp() + interval '1 hour'")
	e = mustBe[*StaleError](t, func() error {
		_, err := v.Get(t.Context(), w.pool, "s", AtLeast(token), Within(100*time.Millisecond))
		return err
	}())
	if e.Idle || strings.Contains(e.Error(), "Runner.Run") {
		t.Errorf("%q says that nobody works", e)
	}
}

func TestTokensThatCannotBeMet(t *testing.T) {
	t.Parallel()
	v := counts("unmet")
	w := newWorld(t, v)
	w.start(w.runner(Config{}, v))
	token := w.append("s", added{1})
	w.wait(token, v)
	beyond := eventstore.MakeToken(token.Epoch(), eventstore.Mark{Partition: 3, Position: eventstore.PositionAt(1 << 40)})
	foreign := eventstore.MakeToken(uuid.New(), token.Marks()...)
	for name, c := range map[string]eventstore.Token{"beyond the log": beyond, "another epoch": foreign} {
		began := time.Now()
		err := w.waiter().WaitFor(t.Context(), c, v)
		mustBe[*eventstore.HistoryError](t, err)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: answered after %v", name, took)
		}
	}
	mustBe[*NotInstalledError](t, w.waiter().WaitFor(t.Context(), token, counts("unknown")))
	mustBe[*eventstore.InvalidError](t, w.waiter().WaitFor(t.Context(), token, v, View[string, count]{Name: "x", Version: 1, StoreSchema: "elsewhere"}))
}

type waits struct {
	eventstore.NopObserver
	mu  sync.Mutex
	all []eventstore.WaitObservation
	n   int
}

func (o *waits) ObserveWait(w eventstore.WaitObservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, w)
}

func (o *waits) ObserveBatch(b eventstore.BatchObservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n += b.Events
}

func TestObserver(t *testing.T) {
	t.Parallel()
	v := counts("observed")
	w := newWorld(t, v)
	var o waits
	w.start(w.runner(Config{Observer: &o}, v))
	if err := NewWaiter(w.pool, WaiterConfig{Observer: &o}).WaitFor(t.Context(), w.append("s", added{1}, added{2}), v); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "the batch, which is told of after its commit", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.n == 2
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n != 2 || len(o.all) != 1 || o.all[0].Consumers[0] != "observed" || o.all[0].Err != nil || o.all[0].Duration <= 0 {
		t.Errorf("observed %d events and %+v", o.n, o.all)
	}
}
