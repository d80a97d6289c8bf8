package commands

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate/bus"
)

// A handler that panics: a command that had taken effect before is done, and one that had not never takes effect.
func TestPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t) // one after the other, each with a till of its own
	w.run(Config{})
	for n, test := range []struct {
		name, place string
		times       int
		state       bus.OperationState
		reason      string
		numbers     int
	}{
		{"behind its append", atAppended, 1, bus.OperationDone, "", 1},
		{"behind its append, each time", atAppended, 9, bus.OperationFailed, "how it ended is stored under its key", 1},
		{"before its append", atDeciding, 1, bus.OperationFailed, "panicked", 0},
	} {
		till := fmt.Sprint("till ", n)
		panics := 0
		w.puts(func(_ context.Context, place string, _ put) {
			if place == test.place && panics < test.times {
				panics++
				panic("a secret")
			}
		})
		c, err := w.bus.Encode(put{till, 1}, bus.ReplyTo("replies"))
		if err != nil {
			t.Fatal(err)
		}
		id, err := w.queue.Enqueue(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		o := w.ends(id, test.state)
		if !strings.Contains(o.Reason, test.reason) {
			t.Errorf("%s: its reason is %q", test.name, o.Reason)
		}
		if r := w.replies("replies")[id]; r.State != test.state {
			t.Errorf("%s: told was %+v", test.name, r)
		}
		w.puts(nothingAround)
		_, _ = w.bus.Dispatch(t.Context(), c) // whatever it brings, it takes no effect any more
		w.wantNumbers(till, test.numbers)
	}
}
