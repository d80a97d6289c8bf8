package projection

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// What a worker believes that was replaced meanwhile means nothing: it stands by, and works again when nobody else does.
func TestAReplacedWorkerDoesNotGiveUp(t *testing.T) {
	t.Parallel()
	var w *world
	var replaced atomic.Bool
	p := logged("replaced", func(context.Context, pgx.Tx, Event[added]) error {
		if replaced.CompareAndSwap(false, true) {
			w.exec(`UPDATE daybook.segments SET epoch = epoch + 1, owner = 'another', expires_at = clock_timestamp() + interval '300 ms'
				WHERE consumer = 'replaced'`)
			return errors.New("seen by one that stood still")
		}
		return nil
	})
	w = newWorld(t, p)
	token := w.append("s", added{1})
	r := w.runner(Config{OnFailure: Stop, Attempts: 1}, p)
	w.start(r)
	w.wait(token, p)
	if h := r.Health(t.Context()); !h.Ready {
		t.Errorf("health %+v", h)
	}
}
