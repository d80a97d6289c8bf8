package saga

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

func (p Process[S]) define() *definition {
	d := &definition{name: p.Name, version: p.Version}
	c := &checks{saga: p.Name, version: p.Version, catalog: p.Events}
	checkProcess(c, &p)
	m := p.machine()
	d.diagram, d.sends = m.diagram, c.sends
	if d.err = c.joined(); d.err == nil {
		d.parts = flow.Parts{Machine: m, Events: p.Events}
	}
	return d
}

// machine takes the type parameter out. What is missing is left out; the checks have found it.
func (p *Process[S]) machine() *processMachine {
	m := &processMachine{
		core:      newCore[S](p.Name, p.Version, "process", p.Events, p.Start),
		byName:    map[string]*stepPlan{},
		byKey:     map[string]*stepPlan{},
		completed: commandOf(p.Completed), compensated: commandOf(p.Compensated),
		undoRetry: p.UndoRetry, undoDeadline: cmp.Or(p.UndoDeadline, defaultUndoDeadline),
	}
	m.undoRetry.Attempts = cmp.Or(m.undoRetry.Attempts, defaultUndoAttempts)
	for n := range p.Steps {
		s := &p.Steps[n]
		entry := &entryPlan{name: s.Name}
		if s.Together == nil {
			entry.steps = []*stepPlan{addStep(m, s, "")}
		} else {
			entry.group, entry.cond = true, condOf(s.If)
			for k := range s.Together {
				entry.steps = append(entry.steps, addStep(m, &s.Together[k], s.Name))
			}
		}
		m.entries = append(m.entries, entry)
	}
	for _, s := range m.steps {
		m.plan = append(m.plan, s.name)
	}
	m.core.settle()
	return m
}

func addStep[S any](m *processMachine, s *Step[S], group string) *stepPlan {
	plan := &stepPlan{
		name: s.Name, group: group, cond: condOf(s.If), send: commandOf(s.Send), undo: commandOf(s.Undo),
		answers: map[string]answerPlan{}, fromReply: len(s.Succeeded) == 0,
		deadline: s.Deadline, retry: s.Retry, nothingToUndo: s.NothingToUndo, pivot: s.Pivot, behind: m.pivot != nil,
	}
	for _, some := range answersOf(s) {
		for _, a := range some.answers {
			m.addAnswer(plan, a.event, a.key, answerPlan{outcome: some.outcome, byKey: a.key != nil, fold: foldOf(a)})
		}
	}
	m.steps = append(m.steps, plan)
	m.byName[plan.name] = plan
	if s.Pivot {
		m.pivot = plan
	}
	return plan
}

func (m *processMachine) addAnswer(plan *stepPlan, event reflect.Type, key *keyed, a answerPlan) {
	wire, ok := m.wire(event)
	if !ok {
		return
	}
	plan.answers[wire] = a
	m.answers[wire] = true
	if key != nil {
		m.keys[wire] = append(m.keys[wire], *key)
		m.byKey[wire] = plan
	}
}

type someAnswers[S any] struct {
	field   string
	outcome outcome
	answers []Answer[S]
}

func answersOf[S any](s *Step[S]) []someAnswers[S] {
	return []someAnswers[S]{{"Succeeded", succeeded, s.Succeeded}, {"Refused", refused, s.Refused}, {"Failed", failed, s.Failed}}
}

func foldOf[S any](a Answer[S]) func(any, any, *eventstore.RecordedEvent) (any, error) {
	return func(s, payload any, e *eventstore.RecordedEvent) (any, error) { return a.fold(s.(S), payload, e) }
}

func condOf[S any](f func(S) bool) func(any) bool {
	if f == nil {
		return nil
	}
	return func(s any) bool { return f(s.(S)) }
}

func commandOf[S any](c Command[S]) commandPlan {
	if c.make == nil {
		return commandPlan{}
	}
	return commandPlan{name: c.payload.Name(), make: func(s any) (string, any) { return c.make(s.(S)) }}
}

// newCore makes what machines have in common; settle ends it.
func newCore[S any](name string, version int, kind string, catalog *eventstore.Catalog, start Start[S]) core {
	c := core{
		name: name, version: version, kind: kind, catalog: catalog,
		starts: map[string]startPlan{}, keys: map[string][]keyed{}, answers: map[string]bool{},
		state: statePlan{
			encode: func(s any) ([]byte, error) { return eventstore.Msgpack.Marshal(s.(S)) },
			decode: func(data []byte) (any, error) {
				var s S
				err := eventstore.Msgpack.Unmarshal(data, &s)
				return s, err
			},
		},
	}
	for _, on := range start.on {
		if wire, ok := c.wire(on.event); ok {
			c.starts[wire] = startPlan{key: on.key, begin: func(payload any, e *eventstore.RecordedEvent) (any, error) {
				return on.begin(payload, e)
			}}
		}
	}
	return c
}

func (c *core) wire(event reflect.Type) (string, bool) {
	if c.catalog == nil || event == nil {
		return "", false
	}
	return c.catalog.TypeName(event)
}

func (c *core) settle() {
	types := map[string]bool{}
	maps.Copy(types, c.answers)
	for wire := range c.starts {
		types[wire] = true
	}
	for wire := range c.keys {
		types[wire] = true
	}
	c.types = slices.Sorted(maps.Keys(types))
}

func checkKey(key string) error {
	reason := keyFault(key)
	if reason == "" {
		return nil
	}
	return &eventstore.InvalidError{
		Field: "key of a saga", Value: fmt.Sprintf("%.80q", key), Reason: reason, Remedy: "let the key be the id of what the saga is about",
	}
}
