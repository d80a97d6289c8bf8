package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/daybook-go/daybook/internal/flow"
)

// flowMachine is a Flow at work. It records by the same recorder as the machine of a Process, whose reactions are those of
// the rules for steps.
type flowMachine struct {
	core
	caused  map[string][]reactionPlan // by wire name
	byKey   map[string][]reactionPlan
	timers  map[string][]reactionPlan
	replies []reactionPlan
	cancels []reactionPlan
}

type reactionPlan func(state any, in reacted, fx *Effects) (any, error)

func (f Flow[S]) define() *definition {
	d := &definition{name: f.Name, version: f.Version}
	c := &checks{saga: f.Name, version: f.Version, catalog: f.Events}
	checkFlow(c, &f)
	m := f.machine()
	d.diagram = m.diagram
	if d.err = c.joined(); d.err == nil {
		d.parts = flow.Parts{Machine: m, Events: f.Events}
	}
	return d
}

func checkFlow[S any](c *checks, f *Flow[S]) {
	c.named()
	checkState[S](c)
	checkStart(c, f.Start)
	if len(f.Reactions) == 0 {
		c.fault("", "add one", "field Reactions is empty")
	}
	for _, r := range f.Reactions {
		switch {
		case r.kind == 0:
			c.fault("", "make it with React and its neighbours", "field Reactions has a zero value in it")
			continue
		case r.run == nil:
			c.fault("", "pass one", "field Reactions: a reaction has no function")
		case r.kind == toTimer && (r.timer == "" || len(r.timer) > 100 || keyFault(r.timer) != ""):
			c.fault("", "use 1 to 100 bytes of text", "field Reactions: %q is no name of a timer", r.timer)
		}
		if r.kind == toEvent && c.event("", "Reactions", r.event) {
			c.keyed("", "Reactions", r.event, r.key)
		}
	}
}

func (f *Flow[S]) machine() *flowMachine {
	m := &flowMachine{
		core:   newCore[S](f.Name, f.Version, "flow", f.Events, f.Start),
		caused: map[string][]reactionPlan{}, byKey: map[string][]reactionPlan{}, timers: map[string][]reactionPlan{},
	}
	for _, r := range f.Reactions {
		plan := func(state any, in reacted, fx *Effects) (any, error) { return r.run(state.(S), in, fx) }
		switch r.kind {
		case toEvent:
			wire, ok := m.wire(r.event)
			switch {
			case !ok:
			case r.key == nil:
				m.caused[wire] = append(m.caused[wire], plan)
				m.answers[wire] = true
			default:
				m.byKey[wire] = append(m.byKey[wire], plan)
				m.keys[wire] = append(m.keys[wire], *r.key)
			}
		case toTimer:
			m.timers[r.timer] = append(m.timers[r.timer], plan)
		case toReply:
			m.replies = append(m.replies, plan)
		case toCancel:
			m.cancels = append(m.cancels, plan)
		}
	}
	m.core.settle()
	return m
}

func (m *flowMachine) effects(ctx context.Context, prep flow.Preparer, i *flow.Instance, in flow.Input) *Effects {
	return &Effects{recorder: record(ctx, prep, i, in), m: m}
}

func (m *flowMachine) Begin(ctx context.Context, prep flow.Preparer, ref flow.Ref, in flow.Input) (*flow.Instance, flow.Effects, error) {
	i, err := m.instance(ref, in)
	if err != nil {
		return nil, flow.Effects{}, err
	}
	fx := m.effects(ctx, prep, i, in)
	fx.note("started", "", in.Event.Type)
	r := reacted{event: in.Event, payload: in.Payload}
	if err = fx.run(m.caused[in.Event.Type], r); err == nil {
		err = fx.run(m.byKey[in.Event.Type], r)
	}
	if err != nil {
		return nil, flow.Effects{}, err
	}
	fx.finish()
	return i, fx.fx, nil
}

func (m *flowMachine) React(ctx context.Context, prep flow.Preparer, i *flow.Instance, in flow.Input) (flow.Effects, error) {
	fx := m.effects(ctx, prep, i, in)
	var err error
	switch {
	case in.Action != nil:
		err = m.action(fx)
	case i.State.Over():
		fx.fx.Ignored++
	case in.Event != nil:
		err = m.event(fx, in.Payload)
	case in.Reply != nil:
		err = m.reply(fx, in.Origin, *in.Reply)
	case in.Timer != "":
		fx.note("timer", "", in.Timer)
		err = fx.run(m.timers[in.Timer], reacted{})
	default:
		err = errors.New("saga: react: there is no input")
	}
	if err != nil {
		return flow.Effects{}, err
	}
	fx.finish()
	return fx.fx, nil
}

func (m *flowMachine) event(fx *Effects, payload any) error {
	e := fx.in.Event
	r := reacted{event: e, payload: payload}
	var reactions []reactionPlan
	if fx.in.Origin.Step != "" {
		reactions = append(reactions, m.caused[e.Type]...)
	}
	if fx.in.ByKey {
		reactions = append(reactions, m.byKey[e.Type]...)
	}
	if len(reactions) == 0 {
		fx.ignore(fx.in.Origin.Step, "nothing reacts to it: "+e.Type)
		return nil
	}
	fx.note("answered", fx.in.Origin.Step, e.Type)
	return fx.run(reactions, r)
}

// AnsweredBy returns the commands that an event may answer: a reaction does not say which.
func (m *flowMachine) AnsweredBy(i *flow.Instance, wire string) []string {
	if len(m.caused[wire]) == 0 {
		return nil
	}
	var names []string
	for n := range i.Steps {
		if i.Steps[n].Intent > 0 {
			names = append(names, i.Steps[n].Name)
		}
	}
	return names
}

// reply keeps what became of a command, and tells the reactions.
func (m *flowMachine) reply(fx *Effects, o flow.Origin, r flow.Reply) error {
	s := fx.i.Step(o.Step)
	if s == nil {
		fx.fx.Ignored++
		return nil
	}
	text := replyText(&r)
	undo, done := o.Direction == flow.Undo, r.State == flow.ReplyDone
	current := !undo && o.Intent == s.Intent || undo && o.Intent == s.UndoIntent
	last := current && (!undo && s.State == flow.Waiting || undo && s.State == flow.Undoing)
	switch {
	case last:
		fx.ended(s, &r, undo)
	case !undo && done && current && s.Carried, undo && current && (s.State == flow.Undone || s.State == flow.UndoFailed && !done):
		fx.fx.Ignored++ // a repeat, or somebody has said how it ended
		return nil
	case !undo && !done:
		// The flow went on without it, and nothing came of it.
		fx.ignore(s.Name, fmt.Sprintf("command %d of that name: %s, when it had been replaced, undone or answered", o.Intent, text))
		return nil
	default:
		what := "command"
		if undo {
			what = "undo"
		}
		fx.note("late", s.Name, fmt.Sprintf("%s %d of that name: %s", what, o.Intent, text))
		if current && done && (s.State == flow.Refused || s.State == flow.UndoFailed) {
			fx.ended(s, &r, undo) // what had been given up was sent again
			fx.unstick(s.Name)
		}
		s.Carried = s.Carried || current && !undo
	}
	if len(m.replies) > 0 {
		return fx.run(m.replies, reacted{reply: Reply{
			Name: o.Step, Undo: undo, Attempt: o.Intent, Late: !last, State: r.State, Code: r.Code, Reason: r.Reason,
		}})
	}
	switch {
	case done:
	case undo:
		fx.stick(s.Name, flow.CompensationFailed, text)
	case last:
		fx.stick(s.Name, flow.DeadLetter, text)
	}
	return nil
}

// ended keeps how the last command of a name ended.
func (fx *Effects) ended(s *flow.Step, r *flow.Reply, undo bool) {
	s.EndedAt = fx.now
	text := replyText(r)
	switch {
	case r.State == flow.ReplyDone && undo:
		s.State = flow.Undone
		fx.note("undone", s.Name, text)
	case r.State == flow.ReplyDone:
		s.State, s.Carried = flow.Done, true
		fx.note("answered", s.Name, "carried out")
	case undo:
		s.State, s.Text = flow.UndoFailed, text
		fx.note("failed", s.Name, "undoing: "+text)
	default:
		s.State, s.Text = flow.Refused, text
		fx.note(endKind(r.State), s.Name, text)
	}
}

// action does what operators decide. A flow makes its commands in reactions, so it can send none of them anew.
func (m *flowMachine) action(fx *Effects) error {
	if err := fx.audited(); err != nil {
		return err
	}
	a := fx.in.Action
	if fx.i.State.Over() {
		return fx.refusal(a.Step, "the instance is "+string(fx.i.State), "nothing is left to do")
	}
	if a.Name == flow.ActionCancel {
		if len(m.cancels) == 0 {
			return fx.refusal("", "the flow does not say how it is cancelled", "add a ReactCancel, or undo what it did by hand")
		}
		fx.acted("", "the flow decides what that means")
		return fx.run(m.cancels, reacted{})
	}
	s := fx.i.Step(a.Step)
	if s == nil {
		return fx.refusal(a.Step, "no such command was sent", "name one that was")
	}
	switch undoing := s.State == flow.Undoing || s.State == flow.UndoFailed; {
	case a.Name == flow.ActionRetry && (s.State == flow.Waiting || s.State == flow.Undoing):
		fx.acted(s.Name, "what was sent is sent again")
		if undoing {
			fx.again(s.Name, flow.Undo, s.UndoIntent, s.Undoes)
		} else {
			fx.again(s.Name, flow.Do, s.Intent, 0)
		}
		fx.note("sent again", s.Name, s.Sent)
		return nil
	case a.Name == flow.ActionRetry:
		return fx.refusal(s.Name, "its command has ended, and only reactions make new ones", "answer it, or cancel")
	case a.Name == flow.ActionMark && undoing:
		s.State, s.Marked = flow.Undoing, true
		fx.acted(s.Name, "it is taken as undone")
		fx.unstick(s.Name)
		return m.reply(fx, flow.Origin{Step: s.Name, Direction: flow.Undo, Intent: s.UndoIntent}, flow.Reply{State: flow.ReplyDone})
	case a.Name == flow.ActionAnswer && !undoing && s.Intent > 0:
		return m.answer(fx, s)
	}
	return fx.refusal(s.Name, "the command is "+string(s.State), "use what fits: retry, answer, mark or cancel")
}

func (m *flowMachine) answer(fx *Effects, s *flow.Step) error {
	a := fx.in.Action
	s.Marked = true
	fx.unstick(s.Name)
	fx.in.Origin = flow.Origin{ID: flow.CommandID(fx.i.Ref, s.Name, flow.Do, s.Intent), Step: s.Name, Direction: flow.Do, Intent: s.Intent}
	if a.Event == nil {
		state := flow.ReplyDone
		if a.Refuse {
			state = flow.ReplyRefused
		}
		s.State = flow.Waiting
		fx.acted(s.Name, "it is taken as "+string(state))
		return m.reply(fx, fx.in.Origin, flow.Reply{State: state, Reason: "by hand"})
	}
	reactions := m.caused[a.Event.Type]
	payload, err := m.Decode(*a.Event)
	if err != nil || len(reactions) == 0 {
		return fx.refusal(s.Name, "nothing reacts to the event", "give one of a type that the flow has a React for")
	}
	fx.acted(s.Name, "answered by "+a.Event.Type)
	return fx.run(reactions, reacted{event: a.Event, payload: payload})
}

// Awaits says what the instance waits for.
func (m *flowMachine) Awaits(i *flow.Instance) string {
	if i.State.Over() {
		return ""
	}
	var waits []string
	for n := range i.Steps {
		if text := awaitsStep(i, &i.Steps[n]); text != "" {
			waits = append(waits, text)
		}
	}
	if len(waits) == 0 {
		return "an event or a timer"
	}
	return strings.Join(waits, "; ")
}

func endKind(s flow.ReplyState) string {
	if s == flow.ReplyFailed {
		return "failed"
	}
	return "refused"
}
