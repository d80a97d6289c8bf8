package saga

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/internal/flow"
)

// recorder is one reaction of one instance: it keeps what the reaction wants. The reactions of a list of steps are made of it,
// and so are those that users write for a Flow.
type recorder struct {
	ctx  context.Context
	prep flow.Preparer
	i    *flow.Instance
	in   flow.Input
	now  time.Time
	fx   flow.Effects
}

func record(ctx context.Context, prep flow.Preparer, i *flow.Instance, in flow.Input) *recorder {
	if i.Extra == nil {
		i.Extra = map[string]string{}
	}
	return &recorder{ctx: ctx, prep: prep, i: i, in: in, now: instant(in.Now)}
}

// instant is a time as a database keeps it.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// note adds a line to the history.
func (r *recorder) note(kind, step, text string) {
	e := flow.Entry{Kind: kind, Step: step, Text: text}
	if r.in.Event != nil {
		e.Event, e.Position = r.in.Event.ID, r.in.Event.Position
	}
	if r.in.Action != nil {
		e.Actor, e.Reason = r.in.Action.Actor, r.in.Action.Reason
	}
	r.fx.History = append(r.fx.History, e)
}

// ignore counts an input that changes nothing, and says so in the history.
func (r *recorder) ignore(step, text string) {
	r.fx.Ignored++
	r.note("ignored", step, text)
}

// command sends a new command. It returns what was sent, for people.
func (r *recorder) command(c flow.Command, to string, payload any) (string, error) {
	c.ID = flow.CommandID(r.i.Ref, c.Step, c.Direction, c.Intent)
	made, err := r.prep.Prepare(r.ctx, to, payload)
	if err != nil {
		return "", fmt.Errorf("saga: %s: prepare %T of %q: %w", r.i.Ref, payload, c.Step, err)
	}
	c.Type, c.Target, c.ContentType, c.Data, c.Payload = made.Type, made.Target, made.ContentType, made.Data, made.Payload
	r.fx.Commands = append(r.fx.Commands, c)
	return addressed(typeName(payload), to), nil
}

// again sends the stored bytes of a command once more.
func (r *recorder) again(step string, direction flow.Direction, intent, undoes int) {
	c := flow.Command{
		ID: flow.CommandID(r.i.Ref, step, direction, intent), Step: step, Direction: direction, Intent: intent, Again: true,
	}
	if direction == flow.Undo {
		c.Undoes = flow.CommandID(r.i.Ref, step, flow.Do, undoes)
	}
	r.fx.Commands = append(r.fx.Commands, c)
}

// closeDo keeps a command from being carried out from now on.
func (r *recorder) closeDo(step string, intent int) {
	id := flow.CommandID(r.i.Ref, step, flow.Do, intent)
	if !slices.Contains(r.fx.Closed, id) {
		r.fx.Closed = append(r.fx.Closed, id)
	}
}

// timer sets a timer; of one name the last word counts.
func (r *recorder) timer(t flow.Timer) {
	r.forget(t.Name)
	r.fx.Timers = append(r.fx.Timers, t)
}

func (r *recorder) cancel(names ...string) {
	for _, name := range names {
		r.forget(name)
		r.fx.Cancel = append(r.fx.Cancel, name)
	}
}

func (r *recorder) cancelAll() { r.fx.CancelAll, r.fx.Timers, r.fx.Cancel = true, nil, nil }

func (r *recorder) forget(name string) {
	r.fx.Cancel = slices.DeleteFunc(r.fx.Cancel, func(n string) bool { return n == name })
	r.fx.Timers = slices.DeleteFunc(r.fx.Timers, func(t flow.Timer) bool { return t.Name == name })
}

// pause is how long to wait after the nth failure, the last of which was that of a command.
func pause(r Retry, failed int, command uuid.UUID) time.Duration {
	return r.policy().Delay(failed, func() float64 {
		// An id is a hash: its bytes are as good as random ones, and the same whenever they are asked for.
		return float64(binary.BigEndian.Uint64(command[8:])<<2>>11) / (1 << 53)
	}).Truncate(time.Millisecond)
}
