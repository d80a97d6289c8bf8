package sagatest

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/saga"
)

// twice runs a reaction two times and demands one outcome.
func (s *Scenario) twice(name string, run func() (*flow.Instance, flow.Effects, error)) error {
	s.t.Helper()
	i, fx, err := run()
	if refusal := (*saga.ActionError)(nil); errors.As(err, &refusal) {
		return err
	}
	if err != nil {
		s.fatalf("%s: the reaction failed: %v", name, err)
	}
	other, fx2, err := run()
	if err != nil {
		s.fatalf("%s: the reaction is not pure: the second time it failed: %v", name, err)
	}
	if diff := gocmp.Diff(fx, fx2, everything) + gocmp.Diff(i, other, everything); diff != "" {
		s.fatalf("%s: the reaction is not pure: it depends on more than the state and what came in, such as the time, chance, or the order of a map (-first +second):\n%s", name, diff)
	}
	back := s.stored(name, i)
	if diff := gocmp.Diff(i.Data, back.Data, everything, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
		s.fatalf("%s: the state comes back as another (-stored +read):\n%s", name, diff)
	}
	s.i = back
	s.carry(fx)
	return nil
}

// stored is an instance as the database gives it back.
func (s *Scenario) stored(name string, i *flow.Instance) *flow.Instance {
	s.t.Helper()
	data, contentType, steps, err := s.parts.Machine.Encode(i)
	if err != nil {
		s.fatalf("%s: the state cannot be stored: %v", name, err)
	}
	back := *i
	if err := s.parts.Machine.Restore(&back, data, contentType, steps); err != nil {
		s.fatalf("%s: the state cannot be read back: %v", name, err)
	}
	return &back
}

// carry does what a manager does with effects.
func (s *Scenario) carry(fx flow.Effects) {
	for _, e := range fx.History {
		text := e.Kind
		if e.Step != "" {
			text += " " + e.Step
		}
		if e.Text != "" {
			text += ": " + e.Text
		}
		s.lines = append(s.lines, fmt.Sprintf("%8s  %s", "+"+s.now.Sub(StartedAt).String(), text))
	}
	for _, c := range fx.Commands {
		if before, ok := s.last[c.ID.String()]; ok && c.Again {
			c.Payload = before.Payload
		}
		if c.Payload == nil {
			c.Payload = s.source.payloads[c.Type+string(c.Data)]
		}
		s.last[c.ID.String()] = c
		s.sent = append(s.sent, c)
	}
	if fx.CancelAll {
		clear(s.timers)
	}
	for _, name := range fx.Cancel {
		delete(s.timers, name)
	}
	for _, t := range fx.Timers {
		from := s.now
		if !t.From.IsZero() {
			from = t.From
		}
		s.timers[t.Name], s.does[t.Name] = from.Add(t.After+t.Spread), t.Does
	}
}

// preparer stores commands by the default codec.
type preparer struct{ payloads map[string]any }

func (p preparer) Prepare(_ context.Context, to string, payload any) (flow.Command, error) {
	if payload == nil {
		return flow.Command{}, errors.New("the payload is nil")
	}
	data, err := eventstore.Msgpack.Marshal(payload)
	if err != nil {
		return flow.Command{}, err
	}
	back := reflect.New(reflect.TypeOf(payload))
	if err := eventstore.Msgpack.Unmarshal(data, back.Interface()); err != nil {
		return flow.Command{}, err
	}
	if diff := gocmp.Diff(payload, back.Elem().Interface(), everything, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
		return flow.Command{}, fmt.Errorf("it comes back as another (-stored +read):\n%s", diff)
	}
	c := flow.Command{Type: reflect.TypeOf(payload).String(), Target: to, ContentType: eventstore.Msgpack.ContentType(), Data: data, Payload: payload}
	p.payloads[c.Type+string(c.Data)] = payload
	return c, nil
}
