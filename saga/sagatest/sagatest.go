package sagatest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/saga"
)

// StartedAt is when every scenario begins.
var StartedAt = time.Date(2024, time.February, 29, 12, 0, 0, 0, time.UTC)

// Scenario is one instance of a saga. It is for the goroutine of its test.
type Scenario struct {
	t     testing.TB
	def   saga.Definition
	parts flow.Parts

	now    time.Time
	stream eventstore.StreamID
	events int
	i      *flow.Instance // nil: none has begun
	timers map[string]time.Time
	does   map[string]string

	sent   []flow.Command // what nothing has looked at yet
	last   map[string]flow.Command
	fresh  bool // something has happened that can be looked at
	lines  []string
	source preparer
}

// For begins a scenario without an instance. A definition that is not valid fails the test.
func For(t testing.TB, def saga.Definition) *Scenario {
	t.Helper()
	parts, err := def.Parts()
	if err != nil {
		t.Fatalf("sagatest: the definition cannot run:\n%v", err)
	}
	s := &Scenario{
		t: t, def: def, parts: parts, now: StartedAt, stream: eventstore.NewStreamID("scenario", "1"),
		timers: map[string]time.Time{}, does: map[string]string{}, last: map[string]flow.Command{},
		source: preparer{payloads: map[string]any{}},
	}
	t.Cleanup(func() {
		if left := unseen(s.sent); len(left) > 0 && !t.Failed() {
			t.Errorf("sagatest: nothing looked at what was sent last, %s: end the scenario with ThenSends or ThenCompensates%s", describe(left), s.story())
		}
	})
	return s
}

// In says in which stream what follows happens, such as "order-812". It matters to sagas whose keys are the ids of streams,
// and to answers that come by key. Default: "scenario-1".
func (s *Scenario) In(stream string) *Scenario {
	s.t.Helper()
	id, err := eventstore.ParseStreamID(stream)
	if err != nil {
		s.fatalf("In: %v", err)
	}
	s.stream = id
	return s
}

// Given lets events happen one after the other. What is sent meanwhile is not looked at.
func (s *Scenario) Given(events ...any) *Scenario {
	s.t.Helper()
	s.settled("Given")
	for _, e := range events {
		s.happen("Given", e, s.resolve)
	}
	s.sent, s.fresh = nil, false
	return s
}

// When lets an event happen. It is caused by the last command of the step that waits for such an event; one that answers by
// key comes from outside, and its key must be that of the instance.
func (s *Scenario) When(event any) *Scenario {
	s.t.Helper()
	return s.when("When", event, s.resolve)
}

// WhenCausedBy lets an event happen that the last command of a step has caused.
func (s *Scenario) WhenCausedBy(step string, event any) *Scenario {
	s.t.Helper()
	return s.WhenCausedByAttempt(step, 0, event)
}

// WhenCausedByAttempt lets an event happen that the nth command of a step has caused, from 1; 0 stands for the last.
func (s *Scenario) WhenCausedByAttempt(step string, n int, event any) *Scenario {
	s.t.Helper()
	return s.when("WhenCausedBy", event, func(name string, in *flow.Input) {
		s.t.Helper()
		s.caused(name, step, n, in)
	})
}

// WhenKeyed lets an event happen that no command has caused, and that its key finds.
func (s *Scenario) WhenKeyed(event any) *Scenario {
	s.t.Helper()
	return s.when("WhenKeyed", event, func(name string, in *flow.Input) {
		s.t.Helper()
		if !s.keyed(name, in) {
			s.fatalf("%s: %T is of no declared key: use OnKey or ReactKey in the definition", name, in.Payload)
		}
	})
}

func (s *Scenario) when(name string, event any, find func(string, *flow.Input)) *Scenario {
	s.t.Helper()
	s.settled(name)
	s.happen(name, event, find)
	s.fresh = true
	return s
}

// settled refuses to go on from commands that nobody has looked at.
func (s *Scenario) settled(name string) {
	s.t.Helper()
	if left := unseen(s.sent); len(left) > 0 && s.fresh {
		s.fatalf("%s: nothing looked at what was sent before, %s: put ThenSends or ThenCompensates in between", name, describe(left))
	}
	s.sent = nil
}

// unseen are commands that somebody should look at. The last command of a saga follows from its end.
func unseen(commands []flow.Command) []flow.Command {
	var left []flow.Command
	for _, c := range commands {
		if c.Direction != flow.End {
			left = append(left, c)
		}
	}
	return left
}

// happen stores an event, reads it back, and gives it to the saga.
func (s *Scenario) happen(name string, event any, find func(string, *flow.Input)) {
	s.t.Helper()
	in := s.input()
	in.Event, in.Payload = s.record(name, event)
	if s.parts.Reactor != nil {
		s.reactor(name, in)
		return
	}
	if s.i == nil || s.i.State.Over() {
		key, starts, err := s.parts.Machine.Starts(in.Event, in.Payload)
		if err != nil {
			s.fatalf("%s: %T: %v", name, event, err)
		}
		if starts {
			s.begin(name, key, in)
			return
		}
	}
	if s.i == nil {
		s.fatalf("%s: %T begins no instance, and there is none: give an event that begins one first", name, event)
	}
	find(name, &in)
	s.react(name, in)
}

// record passes an event through its codec.
func (s *Scenario) record(name string, event any) (*eventstore.RecordedEvent, any) {
	s.t.Helper()
	data, err := s.parts.Events.Encode(event)
	if err != nil {
		s.fatalf("%s: %T cannot be stored: %v", name, event, err)
	}
	s.events++
	data.ID = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "event %d", s.events))
	e := &eventstore.RecordedEvent{
		EventData: data, Stream: s.stream, Version: eventstore.Version(s.events), Position: eventstore.PositionAt(int64(s.events)),
		PartitionKey: s.stream.String(), RecordedAt: s.now,
	}
	back, err := s.parts.Events.Decode(*e)
	if err != nil {
		s.fatalf("%s: %T cannot be read back: %v", name, event, err)
	}
	if diff := gocmp.Diff(event, back, everything, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
		s.fatalf("%s: %T comes back as another (-stored +read):\n%s", name, event, diff)
	}
	return e, back
}

// resolve finds what the event answers: a key, or the command of the one step that waits for it.
func (s *Scenario) resolve(name string, in *flow.Input) {
	s.t.Helper()
	if s.keyed(name, in) {
		return
	}
	if _, starts, err := s.parts.Machine.Starts(in.Event, in.Payload); err == nil && starts {
		in.ByKey = true // one more beginning of what is under way
		return
	}
	var waiting, others []string
	if asker, ok := s.parts.Machine.(flow.Asker); ok {
		for _, step := range asker.AnsweredBy(s.i, in.Event.Type) {
			if s.i.Step(step).State == flow.Waiting {
				waiting = append(waiting, step)
			} else {
				others = append(others, step)
			}
		}
	}
	if len(waiting) == 0 {
		waiting = others
	}
	switch len(waiting) {
	case 0:
		s.fatalf("%s: %T answers no command that was sent, and no key finds the instance", name, in.Payload)
	case 1:
		s.caused(name, waiting[0], 0, in)
	default:
		s.fatalf("%s: %T answers each of %s: say which with WhenCausedBy", name, in.Payload, strings.Join(waiting, ", "))
	}
}

// keyed reports whether the event finds the instance by its key. One that finds another fails the test.
func (s *Scenario) keyed(name string, in *flow.Input) bool {
	s.t.Helper()
	keys, err := s.parts.Machine.Keys(in.Event, in.Payload)
	if err != nil {
		s.fatalf("%s: the key of %T: %v", name, in.Payload, err)
	}
	if len(keys) > 0 && !slices.Contains(keys, s.i.Key) {
		s.fatalf("%s: %T concerns the instance %q, not %q: correct the event, or the stream with In", name, in.Payload, keys[0], s.i.Key)
	}
	in.ByKey = len(keys) > 0
	return in.ByKey
}

func (s *Scenario) caused(name, step string, n int, in *flow.Input) {
	s.t.Helper()
	p := s.i.Step(step)
	if p == nil || p.Intent == 0 {
		s.fatalf("%s: no command of step %q was sent", name, step)
	}
	n = cmp.Or(n, p.Intent)
	in.Origin = flow.Origin{ID: flow.CommandID(s.i.Ref, step, flow.Do, n), Step: step, Direction: flow.Do, Intent: n}
	in.Event.Metadata.CausationID = in.Origin.ID.String()
}

func (s *Scenario) input() flow.Input { return flow.Input{Now: s.now} }

func (s *Scenario) begin(name, key string, in flow.Input) {
	s.t.Helper()
	ref := flow.Ref{Saga: s.def.Name(), Key: key, Run: 1}
	if s.i != nil {
		ref.Run = s.i.Run + 1
		if key != s.i.Key {
			s.fatalf("%s: %T begins the instance %q, not %q: a scenario is about one", name, in.Payload, key, s.i.Key)
		}
	}
	s.twice(name, func() (*flow.Instance, flow.Effects, error) {
		return s.parts.Machine.Begin(s.t.Context(), s.source, ref, in)
	})
}

func (s *Scenario) react(name string, in flow.Input) {
	s.t.Helper()
	if err := s.tryReact(name, in); err != nil {
		s.fatalf("%s: the reaction failed: %v", name, err)
	}
}

// tryReact returns the error of an operator's action that is refused; others fail the test.
func (s *Scenario) tryReact(name string, in flow.Input) error {
	s.t.Helper()
	before := s.i
	return s.twice(name, func() (*flow.Instance, flow.Effects, error) {
		i := s.stored(name, before)
		fx, err := s.parts.Machine.React(s.t.Context(), s.source, i, in)
		return i, fx, err
	})
}

func (s *Scenario) reactor(name string, in flow.Input) {
	s.t.Helper()
	var both [2][]flow.Command
	for n := range both {
		var err error
		if both[n], err = s.parts.Reactor.Commands(s.t.Context(), s.source, in.Event, in.Payload); err != nil {
			s.fatalf("%s: the reaction failed: %v", name, err)
		}
	}
	if diff := gocmp.Diff(both[0], both[1], everything); diff != "" {
		s.fatalf("%s: the reaction is not pure (-first +second):\n%s", name, diff)
	}
	s.lines = append(s.lines, "          "+in.Event.Type)
	s.carry(flow.Effects{Commands: both[0]})
}
