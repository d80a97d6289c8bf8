package saga_test

import (
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/internal/flow"
)

// deliver takes any message that is on its way. Some come twice.
func (w *modelWorld) deliver() error {
	n := w.rand.IntN(len(w.queue))
	m := w.queue[n]
	if !w.chance(8) {
		w.queue = append(w.queue[:n:n], w.queue[n+1:]...)
	}
	switch {
	case m.command != nil:
		w.receive(*m.command)
		return nil
	case m.outside:
		// It happens once, whatever became of its command, and then somebody tells.
		w.log("outside: %s %d takes effect", m.origin.Step, m.origin.Intent)
		if _, before := w.effective[m.origin.ID]; !before {
			w.effective[m.origin.ID] = true
		}
		w.queue = append(w.queue, message{event: modelDone{}, origin: m.origin})
		return nil
	case m.redrive:
		if !w.closed[m.origin.ID] || w.notAsked {
			w.log("redrive: %s %d takes effect", m.origin.Step, m.origin.Intent)
			w.effective[m.origin.ID] = true
		}
		return nil
	case m.event != nil:
		if s := w.i.Step(m.origin.Step); w.noLate && (s.State != flow.Waiting || w.i.State != flow.Running) {
			return nil
		}
		in := w.event(m.event)
		in.Origin = m.origin
		w.log("event %T of %s %d", m.event, m.origin.Step, m.origin.Intent)
		return w.react(in)
	}
	if s := w.i.Step(m.origin.Step); w.lostReplies && m.origin.Direction == flow.Do && m.reply == flow.ReplyDone && s.State != flow.Waiting {
		return nil
	}
	w.log("reply %s to %s %s %d", m.reply, m.origin.Direction, m.origin.Step, m.origin.Intent)
	if m.reply == flow.ReplyFailed && m.origin.Direction == flow.Do && w.chance(20) {
		defer func() { w.queue = append(w.queue, message{redrive: true, origin: m.origin}) }()
	}
	return w.react(flow.Input{Reply: &flow.Reply{Command: m.origin.ID, State: m.reply}, Origin: m.origin})
}

// receive is what a dispatcher and a receiver do with a command: the first outcome counts.
func (w *modelWorld) receive(c flow.Command) {
	o := flow.Origin{ID: c.ID, Step: c.Step, Direction: c.Direction, Intent: c.Intent}
	if w.newIDs && c.Direction == flow.Do {
		// The receiver does not know it again.
		if _, before := w.outcome[c.ID]; before {
			fresh := uuid.NewSHA1(c.ID, []byte("again"))
			w.sent[fresh], w.effective[fresh] = c, true
			return
		}
	}
	state, before := w.outcome[c.ID]
	if !before {
		switch c.Direction {
		case flow.Do:
			state = w.do(c, o)
		case flow.Undo:
			state = w.undo(c)
		default:
			state = w.any(flow.ReplyDone, 70, flow.ReplyFailed, 20, flow.ReplyExpired, 8, flow.ReplyRefused, 2)
		}
		w.outcome[c.ID] = state
	}
	w.log("%s %s %d is carried out: %s", c.Direction, c.Step, c.Intent, state)
	w.queue = append(w.queue, message{reply: state, origin: o})
}

// any returns one of several states, each followed by its share in percent.
func (w *modelWorld) any(choices ...any) flow.ReplyState {
	n := w.rand.IntN(100)
	for k := 0; k < len(choices); k += 2 {
		if n -= choices[k+1].(int); n < 0 {
			return choices[k].(flow.ReplyState)
		}
	}
	return choices[0].(flow.ReplyState)
}

func (w *modelWorld) do(c flow.Command, o flow.Origin) flow.ReplyState {
	if !w.noTombstones && (w.closed[c.ID] || w.tombs[c.ID]) {
		return flow.ReplyExpired
	}
	step := w.steps[c.Step]
	tells := len(step.Succeeded) > 0
	refusals := 12
	if w.late[c.Step] {
		refusals = 2
	}
	state := w.any(flow.ReplyDone, 86-refusals, flow.ReplyRefused, refusals, flow.ReplyFailed, 14)
	switch {
	case state == flow.ReplyFailed && tells && w.undoable(step) && w.chance(50):
		w.queue = append(w.queue, message{outside: true, origin: o})
	case state == flow.ReplyDone && tells && w.chance(20):
		w.queue = append(w.queue, message{event: modelBusy{}, origin: o})
	case state == flow.ReplyRefused && tells && len(step.Refused) > 0:
		state = flow.ReplyDone
		w.queue = append(w.queue, message{event: modelRefused{}, origin: o})
	case state == flow.ReplyDone:
		w.effective[c.ID] = true
		if tells {
			w.queue = append(w.queue, message{event: modelDone{}, origin: o})
		}
	}
	return state
}

func (w *modelWorld) undo(c flow.Command) flow.ReplyState {
	state := flow.ReplyDone
	// One for an attempt that another has replaced is not tried again.
	if c.Intent == w.i.Step(c.Step).UndoIntent {
		state = w.any(flow.ReplyDone, 77, flow.ReplyFailed, 16, flow.ReplyExpired, 4, flow.ReplyRefused, 3)
	}
	if state != flow.ReplyDone {
		return state
	}
	w.tombs[c.Undoes] = true
	if w.effective[c.Undoes] {
		w.effective[c.Undoes] = false
	}
	return state
}
