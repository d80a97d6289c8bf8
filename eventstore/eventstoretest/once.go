package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// onceStore is what the tests of commands with a key need.
type onceStore interface {
	eventstore.Store
	eventstore.OnceAppender
	eventstore.StreamLocker
}

func openOnce(t *testing.T, open Open) onceStore {
	t.Helper()
	store, ok := open(t).(onceStore)
	if !ok {
		t.Fatal("Features.Once is set, but the store is no OnceAppender and StreamLocker")
	}
	return store
}

// claim has a key of its own.
func claim() eventstore.Claim {
	return eventstore.Claim{Scope: "tenant/actor", Key: uuid.NewString(), Request: []byte("withdraw 5"), Call: uuid.New()}
}

// again is the same command, sent another time.
func again(c eventstore.Claim) eventstore.Claim {
	c.Call = uuid.New()
	return c
}

func done(result string) eventstore.Outcome {
	return eventstore.Outcome{Result: []byte(result), ContentType: "text/plain"}
}

func mustAppendOnce(t *testing.T, store eventstore.OnceAppender, c eventstore.Claim, o eventstore.Outcome, writes ...eventstore.Write) eventstore.Outcome {
	t.Helper()
	got, err := store.AppendOnce(context.Background(), c, o, writes...)
	if err != nil {
		t.Fatalf("append once: %v", err)
	}
	return got
}

// wantRepeat checks that got is first, marked as a repeat.
func wantRepeat(t *testing.T, first, got eventstore.Outcome) {
	t.Helper()
	first.Repeated = true
	tokens := cmp.Comparer(func(a, b eventstore.Token) bool { return a.String() == b.String() })
	if diff := cmp.Diff(first, got, tokens); diff != "" {
		t.Errorf("the repeat differs from the first outcome:\n%s", diff)
	}
}

func wantFirst(t *testing.T, store eventstore.OnceAppender, c eventstore.Claim, first eventstore.Outcome) {
	t.Helper()
	got, found, err := store.FirstOutcome(context.Background(), again(c))
	if err != nil || !found {
		t.Fatalf("the first outcome was not found: %v", err)
	}
	wantRepeat(t, first, got)
}

func wantNone(t *testing.T, store eventstore.OnceAppender, c eventstore.Claim) {
	t.Helper()
	if got, found, err := store.FirstOutcome(context.Background(), c); found || err != nil || got.Token.String() != (eventstore.Token{}).String() {
		t.Errorf("an outcome is stored under %q: %+v, %v", c.Key, got, err)
	}
}

func testOnce(t *testing.T, open Open) {
	store := openOnce(t, open)

	t.Run("the first outcome comes back", func(t *testing.T) {
		a, b, checked := stream("once"), stream("once"), stream("once")
		mustAppend(t, store, eventstore.To(a, eventstore.NoStream, event("once.before", "0")))
		writes := []eventstore.Write{
			eventstore.To(a, eventstore.Exactly(1), events("once.happened", 2)...), eventstore.Check(checked, eventstore.NoStream),
			eventstore.To(b, eventstore.NoStream, event("once.happened", "3")),
		}
		c := claim()
		wantNone(t, store, c)
		first := mustAppendOnce(t, store, c, done("ok"), writes...)
		if first.Repeated || first.Kind != eventstore.OutcomeDone || string(first.Result) != "ok" || first.ContentType != "text/plain" || first.At.IsZero() {
			t.Errorf("the outcome is %+v", first)
		}
		if diff := cmp.Diff([]eventstore.OutcomeStream{{Stream: a, Version: 3, Events: 2}, {Stream: checked}, {Stream: b, Version: 1, Events: 1}}, first.Streams); diff != "" {
			t.Error(diff)
		}
		wantToken(t, store, eventstore.AppendResult{Versions: first.Versions(), Token: first.Token}, a, b)
		if at := readStream(t, store, b, eventstore.Range{})[0].RecordedAt; !at.Equal(first.RecordedAt) {
			t.Errorf("recorded at %v, the outcome says %v", at, first.RecordedAt)
		}
		mustAppend(t, store, eventstore.To(a, eventstore.Exactly(3), event("once.after", "4"))) // changes nothing of what was
		wantFirst(t, store, c, first)
		wantRepeat(t, first, mustAppendOnce(t, store, again(c), done("other"), writes...))
		wantRepeat(t, first, mustAppendOnce(t, store, again(c), done("other"), eventstore.To(b, eventstore.Exactly(1), event("once.happened", "again"))))
		wantRepeat(t, first, mustAppendOnce(t, store, again(c), eventstore.Outcome{Kind: eventstore.OutcomeRefused}))
		wantPayloads(t, readStream(t, store, a, eventstore.Range{}), "0", "1", "2", "4")
		wantPayloads(t, readStream(t, store, b, eventstore.Range{}), "3")
	})

	t.Run("without events", func(t *testing.T) {
		id := stream("once")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("once.happened", 2)...))
		for name, o := range map[string]eventstore.Outcome{
			"refused": {Kind: eventstore.OutcomeRefused, Code: "funds", Text: "not enough\n„Geld“", Result: []byte{0, 255}},
			"expired": {Kind: eventstore.OutcomeExpired},
			"done":    {Result: []byte("nothing to do")},
			"empty":   {Result: []byte{}},
		} {
			for _, writes := range [][]eventstore.Write{nil, {eventstore.Check(id, eventstore.Exactly(2))}} {
				c := claim()
				first := mustAppendOnce(t, store, c, o, writes...)
				if first.Kind != o.Kind || first.Repeated || !first.Token.IsZero() || !first.RecordedAt.IsZero() || first.At.IsZero() || len(first.Streams) != len(writes) {
					t.Errorf("%s: %+v", name, first)
				}
				wantFirst(t, store, c, first)
				wantRepeat(t, first, mustAppendOnce(t, store, again(c), done("x"), eventstore.To(id, eventstore.Exactly(2), event("once.happened", "3"))))
			}
		}
		// Streams that the caller has read are kept as it says.
		c, read := claim(), []eventstore.OutcomeStream{{Stream: id, Version: 1}, {Stream: stream("once")}}
		first := mustAppendOnce(t, store, c, eventstore.Outcome{Streams: read})
		if diff := cmp.Diff(read, first.Streams); diff != "" {
			t.Error(diff)
		}
		wantFirst(t, store, c, first)
		for _, s := range []eventstore.OutcomeStream{{Stream: id, Version: 1, Events: 1}, {Stream: id, Version: -1}, {}} {
			if _, err := store.AppendOnce(context.Background(), claim(), eventstore.Outcome{Streams: []eventstore.OutcomeStream{s}}); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("%+v: %v", s, err)
			}
		}
		if n := len(readStream(t, store, id, eventstore.Range{})); n != 2 {
			t.Errorf("%d events", n)
		}
	})

	t.Run("another request under the key", func(t *testing.T) {
		id, c := stream("once"), claim()
		mustAppendOnce(t, store, c, done(""), eventstore.To(id, eventstore.NoStream, event("once.happened", "1")))
		for _, request := range []string{"", "withdraw 6", "withdraw 5 "} {
			other := c // with the same Call, too
			other.Request = []byte(request)
			_, err := store.AppendOnce(context.Background(), other, done(""), eventstore.To(id, eventstore.Exactly(1), event("once.happened", "2")))
			_, found, firstErr := store.FirstOutcome(context.Background(), other)
			for _, err := range []error{err, firstErr} {
				var reused *eventstore.ReusedKeyError
				if !errors.As(err, &reused) || reused.Key != c.Key || reused.Scope != c.Scope || eventstore.IsRetryable(err) {
					t.Errorf("request %q: %v, want a ReusedKeyError", request, err)
				}
			}
			if found {
				t.Error("an outcome of another request was found")
			}
		}
		wantPayloads(t, readStream(t, store, id, eventstore.Range{}), "1")
	})

	t.Run("a conflict stores nothing", func(t *testing.T) {
		a, b := stream("once"), stream("once")
		mustAppend(t, store, eventstore.To(a, eventstore.NoStream, events("once.happened", 3)...))
		for name, writes := range map[string][]eventstore.Write{
			"one":         {eventstore.To(a, eventstore.Exactly(2), event("once.happened", "x"))}, // comes to the version that there is
			"ahead":       {eventstore.To(a, eventstore.Exactly(4), event("once.happened", "x"))},
			"new":         {eventstore.To(a, eventstore.NoStream, events("once.happened", 3)...)},
			"missing":     {eventstore.To(b, eventstore.Exactly(1), event("once.happened", "x"))},
			"several":     {eventstore.To(b, eventstore.NoStream, event("once.happened", "x")), eventstore.To(a, eventstore.Exactly(2), event("once.happened", "x"))},
			"checked":     {eventstore.To(b, eventstore.NoStream, event("once.happened", "x")), eventstore.Check(a, eventstore.Exactly(2))},
			"check alone": {eventstore.Check(a, eventstore.Exactly(2))},
			"check new":   {eventstore.Check(a, eventstore.NoStream)},
		} {
			c := claim()
			_, err := store.AppendOnce(context.Background(), c, done(""), writes...)
			var conflict *eventstore.ConflictError
			if !errors.As(err, &conflict) {
				t.Errorf("%s: %v, want a conflict", name, err)
			}
			wantNone(t, store, c)
			// The same key, decided again.
			first := mustAppendOnce(t, store, again(c), done(name), eventstore.Check(a, eventstore.Exactly(3)))
			wantFirst(t, store, c, first)
		}
		if n := len(readStream(t, store, a, eventstore.Range{})) + len(readStream(t, store, b, eventstore.Range{})); n != 3 {
			t.Errorf("%d events", n)
		}
	})

	t.Run("a lost answer", func(t *testing.T) {
		id, c := stream("once"), claim()
		write := eventstore.To(id, eventstore.NoStream, event("once.happened", "1"))
		first := mustAppendOnce(t, store, c, done("ok"), write)
		got := mustAppendOnce(t, store, c, done("ok"), write)
		if got.Repeated {
			t.Error("a call met its own outcome and says that it is a repeat")
		}
		got.Repeated = true
		wantRepeat(t, first, got)
		if got, found, err := store.FirstOutcome(context.Background(), c); err != nil || !found || got.Repeated {
			t.Errorf("own outcome: %+v, %t, %v", got, found, err)
		}
		var anonymous eventstore.Claim
		anonymous.Key = uuid.NewString()
		mustAppendOnce(t, store, anonymous, done(""))
		if got := mustAppendOnce(t, store, anonymous, done("")); !got.Repeated {
			t.Error("a call without a name of its own is no repeat")
		}
		wantPayloads(t, readStream(t, store, id, eventstore.Range{}), "1")
	})

	t.Run("keys and scopes", func(t *testing.T) {
		prefix := uuid.NewString()
		for i, parts := range [][2]string{
			{"a", "bc"}, {"ab", "c"}, {"abc", "c"}, {"", "abc"}, {"'; DROP TABLE outcomes; --", `"\`}, {"ä", "\u2028"}, {"a", "Bc"},
			{strings.Repeat("s", 200-len(prefix)), strings.Repeat("k", 255)}, {strings.Repeat("s", 200-len(prefix)), strings.Repeat("k", 254)},
		} {
			c := eventstore.Claim{Scope: prefix + parts[0], Key: parts[1]}
			wantNone(t, store, c)
			first := mustAppendOnce(t, store, c, done(fmt.Sprint(i)))
			if first.Repeated || string(first.Result) != fmt.Sprint(i) {
				t.Errorf("%q met the outcome of another key: %+v", parts, first)
			}
			wantFirst(t, store, c, first)
		}
		for _, c := range []eventstore.Claim{
			{}, {Scope: "s"}, {Key: "a\x00b"}, {Key: "\xff"}, {Key: strings.Repeat("k", 256)}, {Scope: "\x00", Key: "k"}, {Scope: "\xc3", Key: "k"},
			{Scope: strings.Repeat("s", 201), Key: "k"},
		} {
			_, err := store.AppendOnce(context.Background(), c, done(""))
			_, _, firstErr := store.FirstOutcome(context.Background(), c)
			_, holdErr := store.HoldKey(context.Background(), c)
			lockErr := store.WithStreamsLocked(context.Background(), &c, nil, func(context.Context, eventstore.LockedStreams) error { return nil })
			for i, err := range []error{err, firstErr, holdErr, lockErr} {
				if !errors.Is(err, eventstore.ErrInvalid) {
					t.Errorf("claim %q, call %d: %v, want ErrInvalid", c, i, err)
				}
			}
		}
		if _, err := store.AppendOnce(context.Background(), claim(), done(""), eventstore.To(stream("once"), eventstore.AnyVersion, event("once.happened", ""))); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("any version: %v, want ErrInvalid", err)
		}
	})

	t.Run("what was passed in stays as it was", func(t *testing.T) {
		c, result := claim(), []byte("ok")
		mustAppendOnce(t, store, c, eventstore.Outcome{Result: result})
		result[0] = 'x'
		for range 2 {
			got, _, err := store.FirstOutcome(context.Background(), c)
			if err != nil || string(got.Result) != "ok" {
				t.Fatalf("result %q, %v", got.Result, err)
			}
			got.Result[0] = 'y'
		}
	})
}
