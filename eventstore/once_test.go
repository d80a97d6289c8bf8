package eventstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
)

func TestValidateOnce(t *testing.T) {
	t.Parallel()
	claim := eventstore.Claim{Scope: "s", Key: "k"}
	id := eventstore.NewStreamID("a", "1")
	event := eventstore.EventData{Type: "t"}
	for name, c := range map[string]struct {
		claim   eventstore.Claim
		outcome eventstore.Outcome
		writes  []eventstore.Write
		field   string // of the fault; none when empty
	}{
		"plain":            {claim: claim, writes: []eventstore.Write{eventstore.To(id, eventstore.NoStream, event)}},
		"check":            {claim: claim, writes: []eventstore.Write{eventstore.Check(id, eventstore.Exactly(3))}},
		"refused":          {claim: claim, outcome: eventstore.Outcome{Kind: eventstore.OutcomeRefused, Code: "c", Text: "t"}},
		"longest":          {claim: eventstore.Claim{Scope: strings.Repeat("s", 200), Key: strings.Repeat("k", 255)}},
		"no key":           {claim: eventstore.Claim{Scope: "s"}, field: "key"},
		"long key":         {claim: eventstore.Claim{Key: strings.Repeat("k", 256)}, field: "key"},
		"long scope":       {claim: eventstore.Claim{Key: "k", Scope: strings.Repeat("s", 201)}, field: "scope"},
		"zero byte":        {claim: eventstore.Claim{Key: "a\x00"}, field: "key"},
		"bad UTF-8":        {claim: eventstore.Claim{Key: "k", Scope: "\xff"}, field: "scope"},
		"unknown kind":     {claim: claim, outcome: eventstore.Outcome{Kind: 3}, field: "Outcome.Kind"},
		"long text":        {claim: claim, outcome: eventstore.Outcome{Text: strings.Repeat("t", 8<<10+1)}, field: "Outcome.Text"},
		"long result":      {claim: claim, outcome: eventstore.Outcome{Result: make([]byte, 1<<20+1)}, field: "Outcome.Result"},
		"any version":      {claim: claim, writes: []eventstore.Write{eventstore.To(id, eventstore.AnyVersion, event)}, field: "writes[0].Expected"},
		"stream exists":    {claim: claim, writes: []eventstore.Write{eventstore.Check(id, eventstore.StreamExists)}, field: "writes[0].Expected"},
		"refused, written": {claim: claim, outcome: eventstore.Outcome{Kind: eventstore.OutcomeRefused}, writes: []eventstore.Write{eventstore.To(id, eventstore.NoStream, event)}, field: "writes[0].Events"},
		"expired, written": {claim: claim, outcome: eventstore.Outcome{Kind: eventstore.OutcomeExpired}, writes: []eventstore.Write{eventstore.To(id, eventstore.NoStream, event)}, field: "writes[0].Events"},
	} {
		err := eventstore.ValidateOnce(c.claim, c.outcome, c.writes)
		var invalid *eventstore.InvalidError
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.field != "" && (!errors.As(err, &invalid) || invalid.Field != c.field || invalid.Remedy == ""):
			t.Errorf("%s: got %v, want a fault of %s", name, err, c.field)
		}
	}
}

func TestOutcomeTexts(t *testing.T) {
	t.Parallel()
	var got []string
	for kind := eventstore.OutcomeDone; kind <= eventstore.OutcomeExpired+1; kind++ {
		got = append(got, kind.String())
	}
	if diff := cmp.Diff([]string{"done", "refused", "expired", "OutcomeKind(3)"}, got); diff != "" {
		t.Error(diff)
	}
	a, b := eventstore.NewStreamID("a", "1"), eventstore.NewStreamID("b", "1")
	outcome := eventstore.Outcome{Streams: []eventstore.OutcomeStream{{Stream: a, Version: 3, Events: 2}, {Stream: b, Version: 0}}}
	if diff := cmp.Diff(map[eventstore.StreamID]eventstore.Version{a: 3, b: 0}, outcome.Versions()); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		err      error
		sentinel error
	}{
		{&eventstore.ReusedKeyError{Scope: "s", Key: "k"}, eventstore.ErrReusedKey},
		{&eventstore.InProgressError{Scope: "s", Key: "k"}, eventstore.ErrInProgress},
	} {
		if !errors.Is(c.err, c.sentinel) || !strings.Contains(c.err.Error(), `"k"`) || eventstore.IsRetryable(c.err) {
			t.Errorf("%v", c.err)
		}
	}
}

// A key that is too long comes from callers, who are told what to do about it.
func TestALongKey(t *testing.T) {
	for name, tc := range map[string]struct {
		claim eventstore.Claim
		want  string
	}{
		"key":   {eventstore.Claim{Key: strings.Repeat("k", 256)}, "has 256 bytes, more than 255: shorten it, for example to a UUID"},
		"scope": {eventstore.Claim{Key: "k", Scope: strings.Repeat("s", 201)}, "has 201 bytes, more than 200: shorten it, for example to a hash"},
	} {
		if err := tc.claim.Validate(); err == nil || !strings.HasPrefix(err.Error(), "eventstore: "+name+" ") || !strings.HasSuffix(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
