package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/testscale"
)

// testOnceRaces lets commands with one key meet.
func testOnceRaces(t *testing.T, open Open) {
	store := openOnce(t, open)
	const callers = 20

	// meet sends the commands of one key at once and returns what they were told, without conflicts.
	meet := func(t *testing.T, c eventstore.Claim, write func(i int) eventstore.Write) []eventstore.Outcome {
		t.Helper()
		got := make([]eventstore.Outcome, callers)
		together(callers, func(i int) (eventstore.AppendResult, error) {
			var err error
			if got[i], err = store.AppendOnce(context.Background(), again(c), done("ok"), write(i)); err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
			return eventstore.AppendResult{}, nil
		})
		return got
	}
	oneFirst := func(t *testing.T, c eventstore.Claim, got []eventstore.Outcome) {
		t.Helper()
		var first *eventstore.Outcome
		for i := range got {
			if !got[i].Repeated {
				if first != nil {
					t.Fatal("two callers say that they were the first")
				}
				first = &got[i]
			}
		}
		if first == nil {
			t.Fatal("nobody was the first")
		}
		for i := range got {
			if &got[i] != first {
				wantRepeat(t, *first, got[i])
			}
		}
		wantFirst(t, store, c, *first)
	}

	t.Run("one stream", func(t *testing.T) {
		for range max(testscale.N(20), 4) {
			c, id := claim(), stream("race")
			oneFirst(t, c, meet(t, c, func(i int) eventstore.Write {
				return eventstore.To(id, eventstore.NoStream, event("race.happened", fmt.Sprint(i)))
			}))
			if n := len(readStream(t, store, id, eventstore.Range{})); n != 1 {
				t.Fatalf("%d events", n)
			}
		}
	})

	t.Run("a stream each", func(t *testing.T) {
		for range max(testscale.N(20), 4) {
			c := claim()
			var ids [callers]eventstore.StreamID
			for i := range ids {
				ids[i] = stream("race")
			}
			oneFirst(t, c, meet(t, c, func(i int) eventstore.Write {
				return eventstore.To(ids[i], eventstore.NoStream, event("race.happened", fmt.Sprint(i)))
			}))
			n := 0
			for _, id := range ids {
				n += len(readStream(t, store, id, eventstore.Range{}))
			}
			if n != 1 {
				t.Fatalf("%d events", n)
			}
		}
	})

	t.Run("many keys on one stream, each sent three times", func(t *testing.T) {
		id := stream("race")
		const keys, times = 8, 3
		var wg sync.WaitGroup
		for k := range keys {
			c := claim()
			c.Key = fmt.Sprint(c.Key, k)
			for range times {
				wg.Go(func() {
					if err := decideOnce(store, again(c), id, fmt.Sprint(k)); err != nil {
						t.Errorf("key %d: %v", k, err)
					}
				})
			}
		}
		wg.Wait()
		seen := map[string]int{}
		for _, text := range payloads(readStream(t, store, id, eventstore.Range{})) {
			seen[text]++
		}
		for k := range keys {
			if n := seen[fmt.Sprint(k)]; n != 1 {
				t.Errorf("command %d took effect %d times", k, n)
			}
		}
	})

	t.Run("hold", func(t *testing.T) {
		c := claim()
		release, err := store.HoldKey(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		var running *eventstore.InProgressError
		if _, err := store.HoldKey(context.Background(), again(c)); !errors.As(err, &running) || running.Key != c.Key || running.Scope != c.Scope {
			t.Errorf("held twice: %v, want an InProgressError", err)
		}
		other := c
		other.Scope = "other"
		releaseOther, err := store.HoldKey(context.Background(), other)
		if err != nil {
			t.Fatalf("the key of another scope: %v", err)
		}
		first := mustAppendOnce(t, store, c, done("ok")) // holding is a courtesy
		wantFirst(t, store, c, first)
		release()
		release2, err := store.HoldKey(context.Background(), c)
		if err != nil {
			t.Fatalf("held after its release: %v", err)
		}
		release() // is not the release of the second
		if _, err := store.HoldKey(context.Background(), c); !errors.Is(err, eventstore.ErrInProgress) {
			t.Errorf("released by the wrong one: %v", err)
		}
		release2()
		releaseOther()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := store.HoldKey(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("hold with a context that has ended: %v", err)
		}
		held := 0
		var mu sync.Mutex
		together(callers, func(int) (eventstore.AppendResult, error) {
			release, err := store.HoldKey(context.Background(), eventstore.Claim{Key: c.Key + "all"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				t.Cleanup(release)
				held++
			} else if !errors.Is(err, eventstore.ErrInProgress) {
				t.Errorf("hold: %v", err)
			}
			return eventstore.AppendResult{}, nil
		})
		if held != 1 {
			t.Errorf("%d hold one key", held)
		}
	})
}

// decideOnce appends one event behind the end of the stream, deciding again after each conflict.
func decideOnce(store onceStore, c eventstore.Claim, id eventstore.StreamID, data string) error {
	for range 1000 {
		if _, found, err := store.FirstOutcome(context.Background(), c); found || err != nil {
			return err
		}
		var version eventstore.Version
		for e, err := range store.ReadStream(context.Background(), id, eventstore.Range{}) {
			if err != nil {
				return err
			}
			version = e.Version
		}
		e := event("race.happened", data)
		e.ID = uuid.New()
		_, err := store.AppendOnce(context.Background(), c, done(""), eventstore.To(id, eventstore.Exactly(version), e))
		if !eventstore.IsRetryable(err) {
			return err
		}
	}
	return errors.New("eventstoretest: a thousand conflicts")
}
