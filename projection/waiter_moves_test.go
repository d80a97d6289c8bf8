package projection

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
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
	var last eventstore.Token
	for range 20 {
		events := make([]any, 200)
		for i := range events {
			events[i] = added{1}
		}
		last = w.append("s", events...)
	}
	end := last.Marks()[0].Position.Ordinal()
	beyond := eventstore.MakeToken(last.Epoch(), eventstore.Mark{Partition: 3, Position: eventstore.PositionAt(1 << 40)})
	floor := func() int64 { return ask[int64](w, "SELECT floor FROM daybook.segments") }
	w.start(w.runner(Config{BatchSize: 1}, v)) // moves at each event
	livetest.Eventually(t, "it moves", func() bool { return floor() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	mustBe[*eventstore.HistoryError](t, w.waiter().WaitFor(ctx, beyond, v))
	if at := floor(); at >= end {
		t.Errorf("answered when the worker was at %d of %d and had come to rest", at, end)
	}
}
