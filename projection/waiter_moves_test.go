package projection

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// A wait that ends before it has asked the database says what the worker of this process has told.
func TestStaleErrorBeforeTheFirstQuery(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := logged("told", func(ctx context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N == 2 {
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	w := newWorld(t, p)
	w.start(w.runner(Config{}, p))
	first := w.append("s", added{1})
	w.wait(first, p)
	second := w.append("s", added{2})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := mustBe[*StaleError](t, NewWaiter(noDatabase{}, WaiterConfig{}).WaitFor(ctx, second, p))
	if e.Have != first.Marks()[0].Position || e.Behind != 1 || e.Idle || !errors.Is(e, context.Canceled) {
		t.Errorf("%+v", e)
	}
	close(release)
	w.wait(second, p)
}

// noDatabase answers nothing.
type noDatabase struct{}

func (noDatabase) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errors.New("there is no database")
}

// A worker that moves all the time does not keep a wait from asking the database what the worker cannot say.
func TestWaitForeverWhileTheWorkerMoves(t *testing.T) {
	t.Parallel()
	v := counts("moving")
	w := newWorld(t, v)
	w.start(w.runner(Config{}, v))
	token := w.append("s", added{1})
	w.wait(token, v)
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	for n := range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if _, err := w.store.Append(ctx, eventstore.To(stream(string(rune('a'+n))), eventstore.AnyVersion, encode(t, added{1})...)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	beyond := eventstore.MakeToken(token.Epoch(), eventstore.Mark{Partition: 3, Position: eventstore.PositionAt(1 << 40)})
	for range 5 {
		waiting, end := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		err := w.waiter().WaitFor(waiting, beyond, v)
		end()
		mustBe[*eventstore.HistoryError](t, err)
		if took := time.Since(began); took > patience/3 {
			t.Errorf("answered after %v", took)
		}
	}
}
