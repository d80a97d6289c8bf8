package saga

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// keptEvent is the stored form of an answer that came before its step began. Names never change.
type keptEvent struct {
	ID           uuid.UUID         `json:"id"`
	Type         string            `json:"type"`
	Schema       int               `json:"schema"`
	ContentType  string            `json:"contentType"`
	Data         []byte            `json:"data"`
	Category     string            `json:"category"`
	Stream       string            `json:"stream"`
	Version      int64             `json:"version"`
	Position     int64             `json:"position"`
	Partition    int               `json:"partition"`
	PartitionKey string            `json:"partitionKey"`
	RecordedAt   time.Time         `json:"recordedAt"`
	Tenant       string            `json:"tenant,omitempty"`
	Correlation  string            `json:"correlation,omitempty"`
	Causation    string            `json:"causation,omitempty"`
	Actor        string            `json:"actor,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
}

func keep(e *eventstore.RecordedEvent) (string, error) {
	text, err := json.Marshal(keptEvent{
		ID: e.ID, Type: e.Type, Schema: e.SchemaVersion, ContentType: e.ContentType, Data: e.Data,
		Category: e.Stream.Category, Stream: e.Stream.ID, Version: int64(e.Version), Position: e.Position.Ordinal(),
		Partition: e.Partition, PartitionKey: e.PartitionKey, RecordedAt: e.RecordedAt,
		Tenant: e.Metadata.Tenant, Correlation: e.Metadata.CorrelationID, Causation: e.Metadata.CausationID,
		Actor: e.Metadata.Actor, Headers: e.Metadata.Headers,
	})
	return string(text), err
}

func unkeep(text string) (*eventstore.RecordedEvent, error) {
	var k keptEvent
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return nil, fmt.Errorf("saga: read an answer that was kept: %w", err)
	}
	return &eventstore.RecordedEvent{
		EventData: eventstore.EventData{
			ID: k.ID, Type: k.Type, SchemaVersion: k.Schema, ContentType: k.ContentType, Data: k.Data,
			Metadata: eventstore.Metadata{
				Tenant: k.Tenant, CorrelationID: k.Correlation, CausationID: k.Causation, Actor: k.Actor, Headers: k.Headers,
			},
		},
		Stream:  eventstore.StreamID{Category: k.Category, ID: k.Stream},
		Version: eventstore.Version(k.Version), Position: eventstore.PositionAt(k.Position),
		Partition: k.Partition, PartitionKey: k.PartitionKey, RecordedAt: k.RecordedAt,
	}, nil
}

// early takes an answer of a step that has not begun.
func (c *course) early(step *stepPlan, answer answerPlan, wire string) error {
	if c.i.State == flow.Running {
		if before, ok := c.i.Extra[earlyExtra+step.name]; ok {
			e, err := unkeep(before)
			if err != nil {
				return err
			}
			if step.answers[e.Type].outcome == succeeded {
				c.ignore(step.name, wire+", when "+e.Type+" had come before the step began")
				return nil
			}
		}
		text, err := keep(c.in.Event)
		if err != nil {
			return fmt.Errorf("saga: keep %q: %w", wire, err)
		}
		c.i.Extra[earlyExtra+step.name] = text
		c.note("answered", step.name, wire+", before the step began; it is kept")
		return nil
	}
	// The saga goes back, or has ended, and outside it was done all the same.
	if answer.outcome != succeeded || c.i.State == flow.Completed || !step.undo.isSet() {
		c.ignore(step.name, wire+", of a step that has not begun and will not")
		return nil
	}
	if err := c.fold(answer); err != nil {
		return err
	}
	c.note("late", step.name, wire+", of a step that had not begun")
	c.i.State = flow.Compensating
	c.appendDone(step)
	return c.undoNext()
}

// appendDone records a step as done whose command was never sent.
func (c *course) appendDone(step *stepPlan) {
	c.i.Steps = append(c.i.Steps, flow.Step{Name: step.name, State: flow.Done, Place: c.nextPlace(), BeganAt: c.now})
}

// takeEarly folds the answer that was kept for a step, and returns its wire name; empty: there is none.
func (c *course) takeEarly(step *stepPlan) (string, outcome, error) {
	text, ok := c.i.Extra[earlyExtra+step.name]
	if !ok {
		return "", 0, nil
	}
	delete(c.i.Extra, earlyExtra+step.name)
	e, err := unkeep(text)
	if err != nil {
		return "", 0, err
	}
	answer, ok := step.answers[e.Type]
	if !ok {
		return "", 0, fmt.Errorf("saga: %s: %q was kept for %q, which does not wait for it: raise Version when answers change", c.i.Ref, e.Type, step.name)
	}
	payload, err := c.m.Decode(*e)
	if err != nil {
		return "", 0, err
	}
	c.i.Data, err = answer.fold(c.i.Data, payload, e)
	return e.Type, answer.outcome, err
}

func (c *course) dropEarly(step *stepPlan, why string) {
	if _, ok := c.i.Extra[earlyExtra+step.name]; ok {
		delete(c.i.Extra, earlyExtra+step.name)
		c.note("ignored", step.name, "the answer that was kept: "+why)
	}
}

// takeEarlySuccesses makes steps of the answers that were kept, so that they are undone: what is outside was done.
func (c *course) takeEarlySuccesses() error {
	for _, step := range c.m.steps {
		if _, ok := c.i.Extra[earlyExtra+step.name]; !ok {
			continue
		}
		wire, outcome, err := c.takeEarly(step)
		if err != nil {
			return err
		}
		if outcome == succeeded {
			c.note("answered", step.name, wire+", which came before the step began")
			c.appendDone(step)
		}
	}
	return nil
}
