package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

// testExpectedVersions tries every claim on streams of three lengths, with and without events, alone and beside an
// append to another stream, since engines take different ways for these.
func testExpectedVersions(t *testing.T, open Open) {
	store := open(t)
	claims := []eventstore.ExpectedVersion{
		eventstore.NoStream, eventstore.Exactly(1), eventstore.Exactly(2), eventstore.Exactly(3), eventstore.StreamExists, eventstore.AnyVersion,
	}
	for length := range 3 {
		for _, claim := range claims {
			for _, n := range []int{0, 1, 2} {
				for _, beside := range []bool{false, true} {
					name := fmt.Sprintf("%d events, claim %s, append %d, beside another %v", length, claim, n, beside)
					t.Run(name, func(t *testing.T) { tryClaim(t, store, length, claim, n, beside) })
				}
			}
		}
	}

	t.Run("a refused check does not make a stream", func(t *testing.T) {
		id := stream("refused")
		for _, claim := range []eventstore.ExpectedVersion{eventstore.StreamExists, eventstore.Exactly(1)} {
			wantConflict(t, store, id, claim, 0, eventstore.Check(id, claim))
		}
		mustAppend(t, store, eventstore.Check(id, eventstore.AnyVersion))
		mustAppend(t, store, eventstore.Check(id, eventstore.NoStream))
		wantConflict(t, store, id, eventstore.StreamExists, 0, eventstore.To(id, eventstore.StreamExists, event("refused.happened", "x")))
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("refused.happened", "x")))
	})
}

func tryClaim(t *testing.T, store eventstore.Store, length int, claim eventstore.ExpectedVersion, n int, beside bool) {
	id, other := stream("claim"), stream("claim")
	if length > 0 {
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("claim.before", length)...))
	}
	writes := []eventstore.Write{eventstore.To(id, claim, events("claim.after", n)...)}
	if beside {
		writes = append(writes, eventstore.To(other, eventstore.NoStream, events("claim.beside", 1)...))
	}
	actual := eventstore.Version(length)
	if !claim.Holds(actual) {
		wantConflict(t, store, id, claim, actual, writes...)
		if got := len(readStream(t, store, id, eventstore.Range{})); got != length {
			t.Errorf("a refused append left %d events, want %d", got, length)
		}
		if got := len(readStream(t, store, other, eventstore.Range{})); got != 0 {
			t.Errorf("a refused append wrote %d events to the other stream", got)
		}
		return
	}
	result := mustAppend(t, store, writes...)
	want := map[eventstore.StreamID]eventstore.Version{id: actual + eventstore.Version(n)}
	written := 0
	if n > 0 {
		written++
	}
	if beside {
		want[other] = 1
		written++
	}
	wantVersions(t, result, want)
	if got := len(readStream(t, store, id, eventstore.Range{})); got != length+n {
		t.Errorf("the stream has %d events, want %d", got, length+n)
	}
	if result.Token.IsZero() != (written == 0) || result.RecordedAt.IsZero() != (written == 0) || result.Repeated {
		t.Errorf("%d streams written gave %+v", written, result)
	}
}

// wantConflict expects an append to be refused for one stream.
func wantConflict(
	t *testing.T, store eventstore.Store, id eventstore.StreamID, claim eventstore.ExpectedVersion, actual eventstore.Version,
	writes ...eventstore.Write,
) {
	t.Helper()
	result, err := store.Append(context.Background(), writes...)
	var conflict *eventstore.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, eventstore.ErrConflict) || !eventstore.IsRetryable(err) {
		t.Fatalf("append gave %v, want a ConflictError", err)
	}
	if conflict.Stream != id || conflict.Expected != claim || conflict.Actual != actual {
		t.Errorf("conflict %v; want stream %q, expected %s, actual %d", conflict, id, claim, actual)
	}
	if len(result.Versions) != 0 || !result.Token.IsZero() || result.Repeated {
		t.Errorf("a refused append gave a result: %+v", result)
	}
}
