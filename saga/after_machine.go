package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

const (
	dueTimer = "due"
	sendStep = "send" // the only step of a delayed command
)

// afterMachine is a delayed command at work. The command is made when the instance begins, and kept as its state.
type afterMachine struct {
	core
	wait   time.Duration
	spread time.Duration
	when   Trigger
}

// delayed is the state of a delayed command. Stored: names never change.
type delayed struct {
	To, Name, Type, Target, ContentType string
	Data                                []byte
}

func defineAfter(name string, wait, spread time.Duration, events *eventstore.Catalog, when Trigger, unless Cancel) *definition {
	d := &definition{name: name, version: 1}
	c := &checks{saga: name, version: 1, catalog: events}
	c.named()
	c.trigger("when", when)
	switch {
	case when.many:
		c.fault("", "use When", "a delayed command is one command")
	case wait <= 0:
		c.fault("", "use a positive time, or NewReactor", "there is no delay: %v", wait)
	}
	checkDuration(c, "", "Spread", spread)
	m := &afterMachine{core: newCore[delayed](name, 1, "after", events, Start[delayed]{}), wait: wait, spread: spread, when: when}
	if wire, ok := m.wire(when.event); ok {
		m.starts[wire] = startPlan{}
	}
	for _, k := range unless.keys {
		if k == nil {
			c.fault("", "make it with KeyOf", "Unless has a nil key in it")
			continue
		}
		key := k.key()
		if !c.event("", "Unless", key.event) {
			continue
		}
		c.keyed("", "Unless", key.event, &key)
		wire, _ := m.wire(key.event)
		if key.event == when.event {
			c.fault("", "use events of two types", "%s begins it and cancels it", key.event)
		}
		m.keys[wire] = append(m.keys[wire], key)
	}
	m.core.settle()
	d.diagram, d.sends = m.diagram, c.sends
	if d.err = c.joined(); d.err == nil {
		d.parts = flow.Parts{Machine: m, Events: events}
	}
	return d
}

func (c *checks) trigger(field string, t Trigger) {
	if !c.event("", field, t.event) {
		return
	}
	if t.make == nil {
		c.fault("", "pass one", "field %s: the trigger of %s has no function", field, t.event)
	}
	if t.payload != nil {
		checkCommand(c, "", field, Command[struct{}]{payload: t.payload, make: func(struct{}) (string, any) { return "", nil }})
	}
}

func (m *afterMachine) command(e *eventstore.RecordedEvent, payload any) (to string, command any, err error) {
	err = m.when.make(payload, e, func(t string, c any) { to, command = t, c })
	return to, command, err
}

func (m *afterMachine) Starts(e *eventstore.RecordedEvent, payload any) (string, bool, error) {
	if _, ok := m.starts[e.Type]; !ok {
		return "", false, nil
	}
	to, _, err := m.command(e, payload)
	if err != nil || to == "" {
		return "", false, err
	}
	return to, true, checkKey(to)
}

func (m *afterMachine) Begin(ctx context.Context, prep flow.Preparer, ref flow.Ref, in flow.Input) (*flow.Instance, flow.Effects, error) {
	if in.Event == nil {
		return nil, flow.Effects{}, errors.New("saga: begin: there is no event")
	}
	to, payload, err := m.command(in.Event, in.Payload)
	if err != nil {
		return nil, flow.Effects{}, err
	}
	made, err := prep.Prepare(ctx, to, payload)
	if err != nil {
		return nil, flow.Effects{}, fmt.Errorf("saga: %s: prepare %T: %w", ref, payload, err)
	}
	i := newInstance(m.version, ref, in, delayed{
		To: to, Name: typeName(payload), Type: made.Type, Target: made.Target, ContentType: made.ContentType, Data: made.Data,
	})
	r := record(ctx, prep, i, in)
	r.note("started", "", in.Event.Type)
	r.timer(flow.Timer{
		Name: dueTimer, After: m.wait, From: instant(in.Event.RecordedAt), Spread: m.spread,
		Does: "sends " + addressed(typeName(payload), to),
	})
	return i, r.fx, nil
}

func (m *afterMachine) React(ctx context.Context, prep flow.Preparer, i *flow.Instance, in flow.Input) (flow.Effects, error) {
	r := record(ctx, prep, i, in)
	s := i.Step(sendStep)
	switch {
	case in.Action != nil:
		if err := m.action(r, s); err != nil {
			return flow.Effects{}, err
		}
	case i.State.Over():
		r.fx.Ignored++
	case in.Event != nil && len(m.keys[in.Event.Type]) > 0 && s == nil:
		m.end(r, "not sent: "+in.Event.Type)
	case in.Event != nil:
		r.ignore("", "too late, or once more: "+in.Event.Type)
	case in.Reply != nil:
		m.reply(r, s)
	case in.Timer == dueTimer && s == nil, in.Timer == sendStep+retryTimer && s != nil && s.State == flow.RetryLater:
		m.send(r)
	default:
		r.fx.Ignored++
	}
	r.settle()
	return r.fx, nil
}

func (m *afterMachine) send(r *recorder) {
	if r.i.Step(sendStep) == nil {
		r.i.Steps = append(r.i.Steps, flow.Step{Name: sendStep, BeganAt: r.now})
	}
	s := r.i.Step(sendStep)
	d := r.i.Data.(delayed)
	s.Intent++
	s.State, s.SentAt, s.Sent = flow.Waiting, r.now, addressed(d.Name, d.To)
	r.fx.Commands = append(r.fx.Commands, flow.Command{
		ID: flow.CommandID(r.i.Ref, sendStep, flow.Do, s.Intent), Step: sendStep, Direction: flow.Do, Intent: s.Intent,
		Type: d.Type, Target: d.Target, ContentType: d.ContentType, Data: d.Data,
	})
	r.cancel(dueTimer, sendStep+retryTimer)
	r.note("sent", sendStep, s.Sent)
}

func (m *afterMachine) reply(r *recorder, s *flow.Step) {
	if s == nil || s.State != flow.Waiting || r.in.Origin.Intent != s.Intent {
		r.fx.Ignored++
		return
	}
	text := replyText(r.in.Reply)
	switch r.in.Reply.State {
	case flow.ReplyDone:
		s.State, s.Carried, s.EndedAt = flow.Done, true, r.now
		m.end(r, "carried out")
	case flow.ReplyRefused:
		s.State, s.Text, s.EndedAt = flow.Refused, text, r.now
		r.note("refused", sendStep, text)
		m.end(r, "its receiver did not want it any more")
	default:
		s.Attempts++
		s.State, s.Text = flow.RetryLater, text
		wait := pause(Retry{}, s.Attempts, flow.CommandID(r.i.Ref, sendStep, flow.Do, s.Intent))
		r.closeDo(sendStep, s.Intent)
		r.timer(flow.Timer{Name: sendStep + retryTimer, After: wait, Does: "sends " + s.Sent + " again"})
		r.note("failed", sendStep, text)
		r.note("retry", sendStep, fmt.Sprintf("attempt %d follows in %v", s.Attempts+1, wait))
	}
}

func (m *afterMachine) end(r *recorder, text string) {
	r.i.State = flow.Completed
	r.cancelAll()
	if s := r.i.Step(sendStep); s != nil {
		r.closeDo(sendStep, s.Intent)
	}
	r.note(string(flow.Completed), "", text)
}

func (m *afterMachine) action(r *recorder, s *flow.Step) error {
	if err := r.audited(); err != nil {
		return err
	}
	if r.i.State.Over() {
		return r.refusal("", "it has ended", "nothing is left to do")
	}
	switch a := r.in.Action; {
	case a.Name == flow.ActionCancel && s == nil:
		r.acted("", "it is not sent")
		m.end(r, "cancelled")
	case a.Name == flow.ActionRetry && s != nil && s.State == flow.Waiting:
		r.acted(sendStep, "what was sent is sent again")
		r.again(sendStep, flow.Do, s.Intent, 0)
		r.note("sent again", sendStep, s.Sent)
	case a.Name == flow.ActionRetry:
		r.acted(sendStep, "it is sent now")
		m.send(r)
	case a.Name == flow.ActionAnswer && s != nil && a.Event == nil:
		s.State, s.Marked, s.EndedAt = flow.Done, true, r.now
		r.acted(sendStep, "it is taken as carried out")
		m.end(r, "by hand")
	default:
		return r.refusal(a.Step, "that does not fit where it stands", "retry sends it now, cancel takes it back before it is sent, answer ends it after")
	}
	return nil
}

// Awaits says what the instance waits for.
func (m *afterMachine) Awaits(i *flow.Instance) string {
	d, _ := i.Data.(delayed)
	what := addressed(d.Name, d.To)
	s := i.Step(sendStep)
	switch {
	case i.State.Over():
		return ""
	case s == nil:
		return "the time to send " + what
	case s.State == flow.RetryLater:
		return "the next attempt to send " + what
	}
	return what + " to be carried out"
}
