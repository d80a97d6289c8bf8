package saga

import (
	"context"
	"fmt"
	"slices"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// reactorMachine is a reactor at work.
type reactorMachine struct {
	name    string
	catalog *eventstore.Catalog
	types   []string
	when    map[string][]Trigger
}

func defineReactor(name string, events *eventstore.Catalog, when []Trigger) *definition {
	d := &definition{name: name, version: 1}
	c := &checks{saga: name, version: 1, catalog: events}
	c.named()
	if len(when) == 0 {
		c.fault("", "pass When or WhenEach", "nothing makes it send anything")
	}
	m := &reactorMachine{name: name, catalog: events, when: map[string][]Trigger{}}
	for _, t := range when {
		c.trigger("when", t)
		if events == nil || t.event == nil {
			continue
		}
		if wire, ok := events.TypeName(t.event); ok {
			m.when[wire] = append(m.when[wire], t)
			m.types = append(m.types, wire)
		}
	}
	slices.Sort(m.types)
	m.types = slices.Compact(m.types)
	d.diagram, d.sends = m.diagram, c.sends
	if d.err = c.joined(); d.err == nil {
		d.parts = flow.Parts{Reactor: m, Events: events}
	}
	return d
}

func (m *reactorMachine) Name() string    { return m.name }
func (m *reactorMachine) Version() int    { return 1 }
func (m *reactorMachine) Types() []string { return m.types }

func (m *reactorMachine) Decode(e eventstore.RecordedEvent) (any, error) { return m.catalog.Decode(e) }

func (m *reactorMachine) Commands(ctx context.Context, prep flow.Preparer, e *eventstore.RecordedEvent, payload any) ([]flow.Command, error) {
	var commands []flow.Command
	var fault error
	send := func(to string, command any) {
		if fault != nil {
			return
		}
		made, err := prep.Prepare(ctx, to, command)
		if err != nil {
			fault = fmt.Errorf("saga: reactor %q: prepare %T: %w", m.name, command, err)
			return
		}
		made.ID, made.Direction = flow.ReactorCommandID(m.name, e.ID, len(commands)), flow.Do
		made.Intent = len(commands) + 1
		commands = append(commands, made)
	}
	for _, t := range m.when[e.Type] {
		if err := t.make(payload, e, send); err != nil {
			return nil, err
		}
	}
	return commands, fault
}
