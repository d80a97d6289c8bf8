package aggregatetest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// Scenario is one history of one aggregate. It is for the goroutine of its test.
type Scenario[S, E any] struct {
	t       testing.TB
	typ     *aggregate.Type[S, E]
	state   S
	version eventstore.Version

	decided bool // When was called
	open    bool // nothing has looked at its outcome yet
	events  []E
	err     error
}

// For begins a scenario of an aggregate without events.
func For[S, E any](t testing.TB, typ *aggregate.Type[S, E]) *Scenario[S, E] {
	t.Helper()
	s := &Scenario[S, E]{t: t, typ: typ}
	t.Cleanup(func() {
		if s.open && !t.Failed() {
			t.Errorf("aggregatetest: nothing looked at the outcome of the last When: end the scenario with Then, ThenError or ThenState")
		}
	})
	return s
}

// Given adds events to the history, in addition to those that were given or decided before.
func (s *Scenario[S, E]) Given(events ...E) *Scenario[S, E] {
	s.t.Helper()
	s.settled("Given")
	s.decided, s.events, s.err = false, nil, nil
	s.record("Given", events)
	return s
}

// When lets the aggregate decide on the state that the history has led to. What it decides becomes part of the
// history.
func (s *Scenario[S, E]) When(decide func(S) ([]E, error)) *Scenario[S, E] {
	s.t.Helper()
	s.settled("When")
	s.decided, s.open = true, true
	s.events, s.err = decide(s.state)
	if s.err == nil {
		s.record("When", s.events)
	} else if len(s.events) > 0 {
		s.t.Fatalf("aggregatetest: When: the decision returned the error %q and also %d events, which would be lost: return one or the other", s.err, len(s.events))
	}
	return s
}

// Then demands that the decision led to exactly these events, in this order. Then without events demands that nothing
// happened, and that it was no error.
func (s *Scenario[S, E]) Then(events ...E) *Scenario[S, E] {
	s.t.Helper()
	s.needsWhen("Then")
	if s.err != nil {
		s.t.Fatalf("aggregatetest: Then: the decision was refused: %v", s.err)
	}
	if len(events) == 0 && len(s.events) == 0 {
		return s
	}
	if diff := cmp.Diff(events, s.events, everything, cmpopts.EquateEmpty()); diff != "" {
		s.t.Fatalf("aggregatetest: Then: other events than expected (-want +got):\n%s", diff)
	}
	return s
}

// ThenError demands that the decision was refused with an error that matches target, as errors.Is does.
func (s *Scenario[S, E]) ThenError(target error) *Scenario[S, E] {
	s.t.Helper()
	s.needsWhen("ThenError")
	switch {
	case target == nil:
		s.t.Fatalf("aggregatetest: ThenError: the target is nil: use Then to expect success")
	case s.err == nil:
		s.t.Fatalf("aggregatetest: ThenError: want the error %q, but the decision led to %s", target, describe(s.events))
	case !errors.Is(s.err, target):
		s.t.Fatalf("aggregatetest: ThenError: want an error that is %q, got %q", target, s.err)
	}
	return s
}

// ThenState demands that the history so far, decided events included, has led to this state.
func (s *Scenario[S, E]) ThenState(want S) *Scenario[S, E] {
	s.t.Helper()
	if diff := cmp.Diff(want, s.State(), everything, cmpopts.EquateEmpty()); diff != "" {
		s.t.Fatalf("aggregatetest: ThenState: another state than expected (-want +got):\n%s", diff)
	}
	return s
}

// State returns the state that the history has led to, to look at a part of it by hand. A decision that was refused
// fails the test: look at it with ThenError first.
func (s *Scenario[S, E]) State() S {
	s.t.Helper()
	if s.open && s.err != nil {
		s.t.Fatalf("aggregatetest: the decision was refused: %v", s.err)
	}
	s.open = false
	return s.state
}

// everything compares unexported fields too, where a type has no Equal method: a difference must not hide there.
var everything = cmp.Exporter(func(reflect.Type) bool { return true })

// record folds events as they come back from the codec.
func (s *Scenario[S, E]) record(step string, events []E) {
	s.t.Helper()
	for i, event := range events {
		s.version++
		data, err := s.typ.Catalog().Encode(event)
		if err != nil {
			s.t.Fatalf("aggregatetest: %s: event %d, %T, cannot be stored: %v", step, i+1, event, err)
		}
		decoded, err := s.typ.Catalog().Decode(eventstore.RecordedEvent{
			EventData: data, Stream: s.typ.Stream("scenario"), Version: s.version,
		})
		if err != nil {
			s.t.Fatalf("aggregatetest: %s: event %d, %T, cannot be read back: %v", step, i+1, event, err)
		}
		back, ok := decoded.(E)
		if !ok {
			s.t.Fatalf("aggregatetest: %s: event %d, %T, comes back as %T", step, i+1, event, decoded)
		}
		if diff := cmp.Diff(event, back, everything, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			s.t.Fatalf("aggregatetest: %s: event %d, %T, comes back as another (-stored +read):\n%s", step, i+1, event, diff)
		}
		s.state = s.typ.Fold(s.state, back)
	}
}

// settled refuses to go on from an outcome that nobody has looked at.
func (s *Scenario[S, E]) settled(step string) {
	s.t.Helper()
	if s.open {
		s.t.Fatalf("aggregatetest: %s: nothing looked at the outcome of the When before: put Then or ThenError in between", step)
	}
}

func (s *Scenario[S, E]) needsWhen(step string) {
	s.t.Helper()
	if !s.decided {
		s.t.Fatalf("aggregatetest: %s: there is no decision to look at: call When first", step)
	}
	s.open = false
}

func describe[E any](events []E) string {
	if len(events) == 0 {
		return "nothing"
	}
	texts := make([]string, len(events))
	for i, event := range events {
		texts[i] = fmt.Sprintf("%T%+v", event, event)
	}
	return strings.Join(texts, ", ")
}
