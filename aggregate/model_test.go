package aggregate_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
)

// move takes n items from one shelf and puts them on another; from is empty for new items.
type move struct {
	from, to, item string
	n              int
}

func (m move) do(w *aggregate.Work, shelves *aggregate.Repository[shelf, event]) error {
	for range m.n {
		if m.from != "" {
			if err := shelves.In(w, m.from).Decide(reserve(m.item)); err != nil {
				return err
			}
		}
		if err := shelves.In(w, m.to).Decide(stock(m.item)); err != nil {
			return err
		}
	}
	return nil
}

// apply is the same on a model: one number for each shelf and item.
func (m move) apply(held map[string]int) (events int, ok bool) {
	for range m.n {
		if m.from != "" {
			if held[m.from+m.item] == 0 {
				return events, false
			}
			held[m.from+m.item]--
			events++
		}
		held[m.to+m.item]++
		events++
	}
	return events, true
}

// Random commands run at once. Then the log says in which order they took effect, and in that order, one after the
// other, each must be allowed by a simple model and lead to as many events. Snapshots are taken and used meanwhile.
func TestConcurrentCommandsEqualASerialRun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		moves := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) move {
			return move{
				from: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(r, "from"),
				to:   rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "to"),
				item: rapid.SampledFrom([]string{"pen", "ink"}).Draw(r, "item"),
				n:    rapid.IntRange(1, 3).Draw(r, "n"),
			}
		}), 1, 60).Draw(r, "moves")
		policy := snapshot.Every(rapid.IntRange(0, 4).Draw(r, "snapshot every"))
		store := memory.New(memory.Config{})
		succeeded := runAtOnce(r, store, policy, moves)

		held := map[string]int{}
		for _, group := range groups(r, store) {
			if !succeeded[group.command] {
				r.Fatalf("command %d has events but did not succeed, or has them in two places", group.command)
			}
			delete(succeeded, group.command)
			events, ok := moves[group.command].apply(held)
			if !ok || events != group.events {
				r.Fatalf("command %d, %+v: %d events in the log; the model has %d, allowed: %v", group.command, moves[group.command], group.events, events, ok)
			}
		}
		if len(succeeded) > 0 {
			r.Fatalf("commands %v succeeded without a trace", succeeded)
		}
		for _, id := range []string{"a", "b", "c"} {
			plain, err := newShelves(store).Load(context.Background(), id)
			fast, err2 := newShelves(store, aggregate.WithSnapshots(store.Snapshots(), policy)).Load(context.Background(), id)
			if err != nil || err2 != nil || plain.Version != fast.Version || plain.State.Seen != fast.State.Seen || !maps.Equal(plain.State.Stock, fast.State.Stock) {
				r.Fatalf("shelf %s: %+v, %v by events, %+v, %v by snapshot", id, plain, err, fast, err2)
			}
			for _, item := range []string{"pen", "ink"} {
				if plain.State.Stock[item] != held[id+item] {
					r.Fatalf("shelf %s has %d of %s, the model %d", id, plain.State.Stock[item], item, held[id+item])
				}
			}
		}
	})
}

// runAtOnce runs the moves from several goroutines and returns which succeeded. A command's events carry its number.
func runAtOnce(r *rapid.T, store *memory.Store, policy snapshot.Policy, moves []move) map[int]bool {
	queue := make(chan int, len(moves))
	for i := range moves {
		queue <- i
	}
	close(queue)
	var mu sync.Mutex
	succeeded := map[int]bool{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			shelves := newShelves(store, aggregate.WithSnapshots(store.Snapshots(), policy))
			var naps sleeps
			retry := naps.retry()
			retry.Retries = 1000
			for i := range queue {
				ctx := eventstore.WithMetadata(context.Background(), eventstore.Metadata{CausationID: strconv.Itoa(i)})
				_, err := aggregate.Transact(ctx, store, func(w *aggregate.Work) error { return moves[i].do(w, shelves) }, aggregate.WithRetry(retry))
				mu.Lock()
				succeeded[i] = err == nil
				mu.Unlock()
				if err != nil && !errors.Is(err, errOutOfStock) {
					r.Errorf("%+v: %v", moves[i], err)
				}
			}
		})
	}
	group.Wait()
	maps.DeleteFunc(succeeded, func(_ int, ok bool) bool { return !ok })
	return succeeded
}

type group struct{ command, events int }

// groups returns the runs of events of one command in the log; this engine writes an append in one piece.
func groups(r *rapid.T, store *memory.Store) (found []group) {
	for e, err := range store.ReadAll(context.Background(), eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			r.Fatal(err)
		}
		command, err := strconv.Atoi(e.Metadata.CausationID)
		if err != nil {
			r.Fatal(err)
		}
		if n := len(found); n == 0 || found[n-1].command != command {
			found = append(found, group{command: command})
		}
		found[len(found)-1].events++
	}
	return found
}
