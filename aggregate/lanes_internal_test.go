package aggregate

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

func (t *turns[K]) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}

func TestTurnsComeInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns[string](time.Second)
		held, err := turns.enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := turns.enter(t.Context(), "b") // another key is free
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int
		inside := 0
		for i := range 20 {
			go func() {
				me, err := turns.enter(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				if inside++; inside != 1 {
					t.Errorf("%d at once", inside)
				}
				mu.Unlock()
				time.Sleep(10 * time.Millisecond) // of the bubble
				mu.Lock()
				inside--
				mu.Unlock()
				turns.leave("a", me, false)
				turns.leave("a", me, true) // more are harmless
			}()
			synctest.Wait() // it stands in line
		}
		turns.leave("a", held, false)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("order %v", order)
		}
		turns.leave("b", other, false)
		if n := turns.size(); n != 0 {
			t.Errorf("%d keys are remembered when nobody waits", n)
		}
	})
}

func TestTurnsThatLastTooLongAreLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns[string](time.Second)
		held, _ := turns.enter(t.Context(), "a")
		start := time.Now()
		entered := make([]time.Duration, 3)
		all := make([]*turn, 3)
		for i := range 3 {
			go func() {
				all[i], _ = turns.enter(t.Context(), "a")
				entered[i] = time.Since(start)
			}()
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for i, d := range entered { // one joins in each second, not all at once
			if want := time.Duration(i+1) * time.Second; d < want || d > want+10*time.Millisecond {
				t.Errorf("%d entered after %s, want %s", i, d, want)
			}
		}
		turns.leave("a", held, true) // lost long ago: it must not end another's turn
		turns.leave("a", all[0], false)
		if turns.tryEnter("a") != nil {
			t.Error("who had lost the turn gave away another's")
		}
		turns.leave("a", all[2], false)
		if n := turns.size(); n != 0 {
			t.Errorf("%d keys are remembered", n)
		}
	})
}

func TestWaitingForATurnEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns[string](time.Second)
		held, _ := turns.enter(t.Context(), "a")
		var errs []error
		var mu sync.Mutex
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			go func() {
				defer cancel()
				_, err := turns.enter(ctx, "a")
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}()
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		for _, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if len(errs) != 5 {
			t.Errorf("%d gave up", len(errs))
		}
		turns.leave("a", held, false)
		if n := turns.size(); n != 0 {
			t.Errorf("%d keys are remembered", n)
		}
	})
}

// When there is nothing to wait for any more, all go at once.
func TestAllGoWhenTheLineOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns[string](time.Hour)
		held, _ := turns.enter(t.Context(), "a")
		start := make(chan struct{})
		var all sync.WaitGroup
		all.Add(10)
		for range 10 {
			go func() {
				me, err := turns.enter(t.Context(), "a")
				all.Done()
				if err != nil {
					t.Error(err)
				}
				<-start
				turns.leave("a", me, false)
			}()
		}
		synctest.Wait()
		turns.leave("a", held, true)
		all.Wait() // all have entered, none has left
		if n := turns.size(); n != 0 {
			t.Errorf("%d keys are remembered", n)
		}
		close(start)
	})
}

// A turn that comes in the very moment in which its owner gives up goes to the next.
func TestTurnsAreNotLostWithWhoGivesUp(t *testing.T) {
	t.Parallel()
	turns := newTurns[int](time.Hour)
	var all sync.WaitGroup
	for i := range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			me, err := turns.enter(ctx, i%3)
			if err == nil {
				turns.leave(i%3, me, i%5 == 0)
			}
		})
		all.Go(cancel)
	}
	all.Wait()
	if n := turns.size(); n != 0 {
		t.Errorf("%d keys are remembered", n)
	}
}

func TestEveryLaneOrNone(t *testing.T) {
	t.Parallel()
	lanes := newTurns[lane](time.Hour)
	a, b := lane{"s", eventstore.NewStreamID("shelf", "a")}, lane{"s", eventstore.NewStreamID("shelf", "b")}
	taken, err := enterLanes(t.Context(), lanes, []lane{b})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := enterLanes(ctx, lanes, []lane{a, b}); !errors.Is(err, context.Canceled) || lanes.size() != 1 {
		t.Errorf("%v, %d lanes are taken", err, lanes.size())
	}
	taken()
	both, err := enterLanes(t.Context(), lanes, []lane{a, b})
	if err != nil || lanes.size() != 2 {
		t.Fatalf("%v, %d lanes", err, lanes.size())
	}
	both()
	if lanes.size() != 0 {
		t.Errorf("%d lanes are taken", lanes.size())
	}
}
