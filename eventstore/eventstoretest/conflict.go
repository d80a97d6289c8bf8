package eventstoretest

import (
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

// testConflicts looks at what a conflict says. R-AC09(a): it is the library's error, whatever the engine ran into.
func testConflicts(t *testing.T, open Open) {
	store := open(t)

	t.Run("the first wrong claim is named", func(t *testing.T) {
		a, b, c := stream("c"), stream("b"), stream("a")
		mustAppend(t, store, eventstore.To(a, eventstore.NoStream, events("x", 1)...), eventstore.To(b, eventstore.NoStream, events("x", 2)...))
		wantConflict(t, store, b, eventstore.Exactly(1), 2,
			eventstore.To(a, eventstore.Exactly(1), events("x", 1)...),
			eventstore.Check(b, eventstore.Exactly(1)),
			eventstore.To(c, eventstore.StreamExists, events("x", 1)...))
		wantConflict(t, store, c, eventstore.StreamExists, 0,
			eventstore.To(c, eventstore.StreamExists, events("x", 1)...),
			eventstore.Check(b, eventstore.Exactly(1)))
	})

	t.Run("the text says what to know", func(t *testing.T) {
		id := eventstore.NewStreamID("account", "conflict-text")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("x", 4)...))
		err := refused(t, store, eventstore.To(id, eventstore.Exactly(3), events("x", 1)...))
		for _, part := range []string{`"account-conflict-text"`, "expected version 3", "found version 4"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	})

	t.Run("type makes no difference", func(t *testing.T) { // R-AC06, one after the other; races have a test of their own
		id := stream("typed")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("typed.created", "")))
		mustAppend(t, store, eventstore.To(id, eventstore.Exactly(1), event("typed.renamed", "")))
		wantConflict(t, store, id, eventstore.Exactly(1), 2, eventstore.To(id, eventstore.Exactly(1), event("typed.deactivated", "")))
	})

	t.Run("the future is a conflict too", func(t *testing.T) {
		id := stream("future")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("x", 1)...))
		wantConflict(t, store, id, eventstore.Exactly(1<<62), 1, eventstore.To(id, eventstore.Exactly(1<<62), events("x", 1)...))
	})

	t.Run("writing goes on after a conflict", func(t *testing.T) {
		id := stream("after")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("x", 1)...))
		for range 3 {
			wantConflict(t, store, id, eventstore.NoStream, 1, eventstore.To(id, eventstore.NoStream, events("x", 1)...))
		}
		mustAppend(t, store, eventstore.To(id, eventstore.Exactly(1), events("x", 1)...))
	})
}

// refused expects an error and returns it.
func refused(t *testing.T, store eventstore.Store, writes ...eventstore.Write) error {
	t.Helper()
	_, err := store.Append(t.Context(), writes...)
	if err == nil {
		t.Fatal("the append was accepted")
	}
	return err
}
