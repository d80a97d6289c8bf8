package deadletter

import (
	"fmt"
	"testing"
	"time"
)

// Who discards many letters leaves the owner time to go on between them.
func TestOwnerGoesOnWhileManyAreDiscarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	const n = 3*discardBatch + 1
	for i := range n {
		k.fail(w.append(fmt.Sprint("s", i), "x"), "odd")
	}
	done := make(chan error, 1)
	go func() {
		d, err := w.letters.Discard(t.Context(), Matching(Filter{Consumer: "orders", Version: 1}), ann)
		if len(d.Letters) != n || d.Left != 0 {
			err = fmt.Errorf("%d letters discarded, %d left: %w", len(d.Letters), d.Left, err)
		}
		done <- err
	}()
	work := time.NewTicker(discardRest / 5) // how long a batch takes
	defer work.Stop()
	committed := 0
	for {
		k.take()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			if committed < n/discardBatch { // one in each rest, at the least
				t.Errorf("the owner has committed %d times meanwhile", committed)
			}
			return
		case <-work.C:
		}
		if err := k.commit(t.Context(), k.floor, k.set.Change()); err == nil {
			committed++
		}
	}
}
