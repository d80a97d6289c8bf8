package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

type outcome struct {
	result eventstore.AppendResult
	err    error
}

// together calls f n times at once and returns what each gave.
func together(n int, f func(i int) (eventstore.AppendResult, error)) []outcome {
	outcomes := make([]outcome, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			outcomes[i].result, outcomes[i].err = f(i)
		})
	}
	close(start)
	wg.Wait()
	return outcomes
}

// testRaces lets appends meet on one stream. R-AC01, R-AC02, R-AC06: successes equal stored events, losers get the
// library's conflict, and the stream can be written afterwards.
func testRaces(t *testing.T, open Open) {
	store := open(t)
	const n = 32

	t.Run("any version", func(t *testing.T) {
		id := stream("race")
		for i, o := range together(n, func(i int) (eventstore.AppendResult, error) {
			return store.Append(context.Background(), eventstore.To(id, eventstore.AnyVersion, event("race.happened", fmt.Sprint(i))))
		}) {
			if o.err != nil {
				t.Errorf("append %d: %v", i, o.err)
				continue
			}
			v := o.result.Versions[id]
			got := readStream(t, store, id, eventstore.Range{From: v, To: v})
			if len(got) != 1 || string(got[0].Data) != fmt.Sprint(i) || !got[0].RecordedAt.Equal(o.result.RecordedAt) {
				t.Errorf("append %d was told version %d, where %v stands", i, v, payloads(got))
			}
		}
		if got := len(readStream(t, store, id, eventstore.Range{})); got != n {
			t.Errorf("%d events for %d successes", got, n)
		}
		oneWins(t, store, id, n, func(i int) eventstore.Write {
			return eventstore.To(id, eventstore.Exactly(n), event("race.happened", fmt.Sprint("second ", i)))
		})
	})

	t.Run("new stream", func(t *testing.T) {
		for range 4 {
			id := stream("race")
			oneWins(t, store, id, 0, func(i int) eventstore.Write {
				return eventstore.To(id, eventstore.NoStream, events("race.happened", i%3+1)...)
			})
		}
	})

	t.Run("other types", func(t *testing.T) { // R-AC06
		id := stream("race")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("race.created", "")))
		oneWins(t, store, id, 1, func(i int) eventstore.Write {
			return eventstore.To(id, eventstore.Exactly(1), event(fmt.Sprint("race.type", i), ""))
		})
	})

	t.Run("with conflict retry", func(t *testing.T) { // R-AC02
		id := stream("race")
		const writers = 50
		for i, o := range together(writers, func(int) (eventstore.AppendResult, error) {
			for {
				expected := eventstore.Exactly(0)
				for e, err := range store.ReadStream(context.Background(), id, eventstore.Range{}) {
					if err != nil {
						return eventstore.AppendResult{}, err
					}
					expected = eventstore.Exactly(e.Version)
				}
				result, err := store.Append(context.Background(), eventstore.To(id, expected, event("race.happened", "")))
				if !errors.Is(err, eventstore.ErrConflict) {
					return result, err
				}
			}
		}) {
			if o.err != nil {
				t.Errorf("append %d: %v", i, o.err)
			}
		}
		result := mustAppend(t, store, eventstore.To(id, eventstore.Exactly(writers), event("race.happened", "last")))
		wantVersions(t, result, map[eventstore.StreamID]eventstore.Version{id: writers + 1})
	})

	t.Run("stock of one", func(t *testing.T) { // R-AC07, the part of the store: the loser can decide again
		id := stream("stock")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("stock.added", "1")))
		reserved, refusedByRule := 0, 0
		for _, o := range together(2, func(int) (eventstore.AppendResult, error) {
			for {
				var version eventstore.Version
				free := 0
				for e, err := range store.ReadStream(context.Background(), id, eventstore.Range{}) {
					if err != nil {
						return eventstore.AppendResult{}, err
					}
					version = e.Version
					if e.Type == "stock.added" {
						free++
					} else {
						free--
					}
				}
				if free == 0 {
					return eventstore.AppendResult{}, errSoldOut
				}
				result, err := store.Append(context.Background(), eventstore.To(id, eventstore.Exactly(version), event("stock.reserved", "1")))
				if !errors.Is(err, eventstore.ErrConflict) {
					return result, err
				}
			}
		}) {
			switch {
			case o.err == nil:
				reserved++
			case errors.Is(o.err, errSoldOut):
				refusedByRule++
			default:
				t.Errorf("append: %v", o.err)
			}
		}
		if reserved != 1 || refusedByRule != 1 {
			t.Errorf("%d reserved, %d refused; want one of each", reserved, refusedByRule)
		}
	})
}

var errSoldOut = errors.New("eventstoretest: sold out")

// oneWins lets 32 appends with one expectation meet on a stream at a version, and then appends once more.
func oneWins(t *testing.T, store eventstore.Store, id eventstore.StreamID, version eventstore.Version, write func(i int) eventstore.Write) {
	t.Helper()
	wins, size := 0, 0
	for i, o := range together(32, func(i int) (eventstore.AppendResult, error) { return store.Append(context.Background(), write(i)) }) {
		var conflict *eventstore.ConflictError
		switch {
		case o.err == nil:
			wins++
			size = len(write(i).Events)
		case !errors.As(o.err, &conflict):
			t.Errorf("append %d: %v, want a ConflictError", i, o.err)
		case conflict.Stream != id || conflict.Actual <= version:
			t.Errorf("append %d: %v, which was no reason to refuse", i, conflict)
		}
	}
	if wins != 1 {
		t.Fatalf("%d of 32 appends with one expectation succeeded", wins)
	}
	after := version + eventstore.Version(size)
	if got := len(readStream(t, store, id, eventstore.Range{})); got != int(after) {
		t.Errorf("the stream has %d events, want %d", got, after)
	}
	result := mustAppend(t, store, eventstore.To(id, eventstore.Exactly(after), event("race.after", uuid.NewString())))
	wantVersions(t, result, map[eventstore.StreamID]eventstore.Version{id: after + 1})
}
