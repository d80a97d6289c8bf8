package bus_test

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
)

// Many senders, each command sent several times at once: each takes effect once, and all of its senders get one answer.
func TestStormOnFewKeys(t *testing.T) {
	const keys, senders = 20, 8
	gate, err := admission.New(admission.Config{Queue: keys * senders, MaxWaitNormal: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, bus.Config{}, func(s *store) []bus.Middleware { return inOrder(s, gate, slog.New(slog.DiscardHandler)) })
	var mu sync.Mutex
	versions := map[string]map[string]int{}
	var group sync.WaitGroup
	for n := range keys * senders {
		group.Go(func() {
			key := fmt.Sprint(n % keys)
			reply, err := w.Send(t.Context(), payIn{"1", 1}, bus.WithKey(key))
			mu.Lock()
			defer mu.Unlock()
			if versions[key] == nil {
				versions[key] = map[string]int{}
			}
			versions[key][fmt.Sprint(reply.Version, err)]++
		})
	}
	group.Wait()
	if n := len(events(t, w.store, "1")); n != keys {
		t.Fatalf("%d events, want %d", n, keys)
	}
	for key, answers := range versions {
		if len(answers) != 1 {
			t.Fatalf("key %s has several answers: %v", key, answers)
		}
	}
}

// One answer, too, when the rule would say something else by now.
func TestStormOfRefusals(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	if _, err := w.Send(t.Context(), payOut{"1", 1}, bus.WithKey("k")); err != errEmpty {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if _, err := w.Send(t.Context(), payIn{"1", 1}); err != nil {
				t.Error(err)
			}
			if reply, err := w.Send(t.Context(), payOut{"1", 1}, bus.WithKey("k")); !errors.Is(err, aggregate.ErrRefused) || !reply.Repeated {
				t.Errorf("got %+v, %v", reply, err)
			}
		})
	}
	group.Wait()
	if n := len(events(t, w.store, "1")); n != 16 {
		t.Fatalf("%d events, want 16", n)
	}
}
