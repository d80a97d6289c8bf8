package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

// testWriteSkew lets two appends meet that each check the stream which the other writes: exactly one may succeed. Some
// rounds find the streams missing, which an engine can lock less easily, some find one or both there.
func testWriteSkew(t *testing.T, open Open) {
	store := open(t)
	rounds := fewer(10_000)
	const workers = 4
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for round := w; round < rounds; round += workers {
				if err := skewRound(store, round); err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func skewRound(store eventstore.Store, round int) error {
	a, b := stream("skew"), stream("skew")
	versions := map[eventstore.StreamID]eventstore.Version{}
	for i, id := range []eventstore.StreamID{a, b} {
		if round>>i&1 == 1 {
			if _, err := store.Append(context.Background(), eventstore.To(id, eventstore.NoStream, event("skew.before", ""))); err != nil {
				return fmt.Errorf("prepare: %w", err)
			}
			versions[id] = 1
		}
	}
	decide := func(read, write eventstore.StreamID) (eventstore.AppendResult, error) {
		return store.Append(context.Background(),
			eventstore.Check(read, eventstore.Exactly(versions[read])),
			eventstore.To(write, eventstore.Exactly(versions[write]), event("skew.decided", "")))
	}
	wins := 0
	for _, o := range together(2, func(i int) (eventstore.AppendResult, error) {
		if i == 0 {
			return decide(a, b)
		}
		return decide(b, a)
	}) {
		var conflict *eventstore.ConflictError
		switch {
		case o.err == nil:
			wins++
		case !errors.As(o.err, &conflict):
			return fmt.Errorf("a decision ended with %w, want a conflict", o.err)
		case conflict.Actual != versions[conflict.Stream]+1:
			return fmt.Errorf("a decision was refused by %w", conflict)
		}
	}
	if wins != 1 {
		return fmt.Errorf("%d of two decisions succeeded that each read what the other writes (streams at %d and %d)",
			wins, versions[a], versions[b])
	}
	return nil
}
