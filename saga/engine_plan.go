package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// core is what machines have in common: a name, events, and a state. It has no type parameters; what is typed is in closures.
type core struct {
	name    string
	version int
	kind    string
	catalog *eventstore.Catalog
	types   []string // sorted
	starts  map[string]startPlan
	keys    map[string][]keyed
	answers map[string]bool
	plan    []string // the names of all steps, in order
	state   statePlan
}

type startPlan struct {
	key   *keyed
	begin func(any, *eventstore.RecordedEvent) (any, error)
}

// statePlan stores the user's state.
type statePlan struct {
	encode func(any) ([]byte, error)
	decode func([]byte) (any, error)
}

func (c *core) Name() string    { return c.name }
func (c *core) Version() int    { return c.version }
func (c *core) Kind() string    { return c.kind }
func (c *core) Types() []string { return c.types }

func (c *core) Decode(e eventstore.RecordedEvent) (any, error) { return c.catalog.Decode(e) }

func (c *core) Starts(e *eventstore.RecordedEvent, payload any) (string, bool, error) {
	start, ok := c.starts[e.Type]
	if !ok {
		return "", false, nil
	}
	key := e.Stream.ID
	if start.key != nil {
		var err error
		if key, err = start.key.of(payload, e); err != nil || key == "" {
			return "", false, err
		}
	}
	return key, true, checkKey(key)
}

func (c *core) Keys(e *eventstore.RecordedEvent, payload any) ([]string, error) {
	var found []string
	for _, k := range c.keys[e.Type] {
		key, err := k.of(payload, e)
		if err != nil {
			return nil, err
		}
		if key == "" || len(found) > 0 && found[len(found)-1] == key {
			continue
		}
		if err := checkKey(key); err != nil {
			return nil, err
		}
		found = append(found, key)
	}
	return found, nil
}

func (c *core) Answers(e *eventstore.RecordedEvent) bool { return c.answers[e.Type] }

// instance makes the one that an event begins.
func (c *core) instance(ref flow.Ref, in flow.Input) (*flow.Instance, error) {
	if in.Event == nil {
		return nil, errors.New("saga: begin: there is no event")
	}
	start, ok := c.starts[in.Event.Type]
	if !ok {
		return nil, fmt.Errorf("saga: begin %s: %q begins none", ref, in.Event.Type)
	}
	data, err := start.begin(in.Payload, in.Event)
	if err != nil {
		return nil, err
	}
	return newInstance(c.version, ref, in, data), nil
}

func newInstance(version int, ref flow.Ref, in flow.Input, data any) *flow.Instance {
	i := &flow.Instance{
		Ref: ref, Version: version, State: flow.Running, Data: data, Extra: map[string]string{}, StartedBy: in.Event.ID,
		Tenant: in.Event.Metadata.Tenant, CorrelationID: in.Event.Metadata.CorrelationID, StartedAt: instant(in.Now),
	}
	if i.CorrelationID == "" {
		i.CorrelationID = in.Event.ID.String()
	}
	return i
}

// progress is the stored form of Steps and Extra. Plan has the names of all steps in their order, for who explains an
// instance without knowing its definition.
type progress struct {
	Steps []flow.Step       `json:"steps"`
	Extra map[string]string `json:"extra,omitempty"`
	Plan  []string          `json:"plan,omitempty"`
}

func (c *core) Encode(i *flow.Instance) (data []byte, contentType string, steps []byte, err error) {
	return c.encode(i, nil)
}

// Encode stores the names of the steps too.
func (m *processMachine) Encode(i *flow.Instance) (data []byte, contentType string, steps []byte, err error) {
	names := make([]string, len(m.steps))
	for n, s := range m.steps {
		names[n] = s.name
	}
	return m.encode(i, names)
}

func (c *core) encode(i *flow.Instance, plan []string) (data []byte, contentType string, steps []byte, err error) {
	if data, err = c.state.encode(i.Data); err != nil {
		return nil, "", nil, fmt.Errorf("saga: encode the state of %s: %w", i.Ref, err)
	}
	if steps, err = json.Marshal(progress{i.Steps, i.Extra, plan}); err != nil {
		return nil, "", nil, fmt.Errorf("saga: encode the steps of %s: %w", i.Ref, err)
	}
	return data, eventstore.Msgpack.ContentType(), steps, nil
}

func (c *core) Restore(i *flow.Instance, data []byte, contentType string, steps []byte) error {
	if want := eventstore.Msgpack.ContentType(); contentType != want {
		return fmt.Errorf("saga: restore %s: its state is stored as %q, not %q", i.Ref, contentType, want)
	}
	var p progress
	if err := json.Unmarshal(steps, &p); err != nil {
		return fmt.Errorf("saga: restore the steps of %s: %w", i.Ref, err)
	}
	state, err := c.state.decode(data)
	if err != nil {
		return fmt.Errorf("saga: restore the state of %s: %w", i.Ref, err)
	}
	if i.Data, i.Steps, i.Extra = state, p.Steps, p.Extra; i.Extra == nil {
		i.Extra = map[string]string{}
	}
	return nil
}

// processMachine is a Process at work.
type processMachine struct {
	core
	entries      []*entryPlan
	steps        []*stepPlan // in order, members of groups too
	byName       map[string]*stepPlan
	byKey        map[string]*stepPlan // wire names of the answers that come by key
	pivot        *stepPlan            // nil: none
	completed    commandPlan
	compensated  commandPlan
	undoRetry    Retry
	undoDeadline time.Duration
}

// entryPlan is a place in the list: a step, or a group of them.
type entryPlan struct {
	name  string
	group bool
	cond  func(any) bool // of a group; nil: always
	steps []*stepPlan
}

type stepPlan struct {
	name          string
	group         string         // the name of its group; empty: none
	cond          func(any) bool // nil: always
	send, undo    commandPlan
	answers       map[string]answerPlan // by wire name
	fromReply     bool                  // no answers of success: that it was carried out is one
	deadline      time.Duration
	retry         Retry
	nothingToUndo string
	pivot, behind bool // behind: after the pivot
}

func (s *stepPlan) mayRetry(attempts int) bool {
	return s.retry.Forever || attempts < max(1, s.retry.Attempts)
}

type commandPlan struct {
	name string // of the Go type, for people
	make func(any) (to string, payload any)
}

func (c commandPlan) isSet() bool { return c.make != nil }

type outcome int

const (
	succeeded outcome = iota + 1
	refused
	failed
)

type answerPlan struct {
	outcome outcome
	byKey   bool
	fold    func(any, any, *eventstore.RecordedEvent) (any, error)
}

func (m *processMachine) Begin(ctx context.Context, prep flow.Preparer, ref flow.Ref, in flow.Input) (*flow.Instance, flow.Effects, error) {
	i, err := m.instance(ref, in)
	if err != nil {
		return nil, flow.Effects{}, err
	}
	c := &course{recorder: record(ctx, prep, i, in), m: m}
	c.note("started", "", in.Event.Type)
	if err := c.advance(); err != nil {
		return nil, flow.Effects{}, err
	}
	c.settle()
	return i, c.fx, nil
}

func (m *processMachine) React(ctx context.Context, prep flow.Preparer, i *flow.Instance, in flow.Input) (flow.Effects, error) {
	c := &course{recorder: record(ctx, prep, i, in), m: m}
	var err error
	switch {
	case in.Action != nil:
		err = c.action()
	case in.Event != nil:
		err = c.event()
	case in.Reply != nil:
		err = c.reply()
	case in.Timer != "":
		err = c.due()
	default:
		err = errors.New("saga: react: there is no input")
	}
	if err != nil {
		return flow.Effects{}, err
	}
	c.settle()
	return c.fx, nil
}
