package saga

import (
	"time"

	"github.com/daybook-go/daybook/internal/retry"
)

// Step is one thing that a [Process] has done, with what undoes it.
type Step[S any] struct {
	// Name is how progress is stored, and how people name the step. It never changes while instances are under way. Lower-case
	// letters, digits and dashes, at most 48; unique within the saga.
	Name string
	// If leaves the step out when it is false at the time when the step would begin. Pure. Default: never left out.
	If func(S) bool
	// Send is the command that does it.
	Send Command[S]
	// Succeeded are the events that say that it was done. Without any, the step is done when its command was carried out.
	Succeeded []Answer[S]
	// Refused are the events that say that it was not done, and will not be: the saga compensates. Not behind the pivot.
	Refused []Answer[S]
	// Failed are the events that say that it was not done, and may be if it is tried again: see Retry.
	Failed []Answer[S]
	// Deadline is how long the step may take, its retries included. When it has passed, the outcome is unknown: the step is
	// undone too, so a step with a deadline has an Undo, the pivot included. Default: no deadline.
	Deadline time.Duration
	// Retry says how often the step is tried when it has failed. The zero value: once.
	Retry Retry
	// Undo is the command that undoes it. It may come when nothing was done, before the command that it undoes, or more than
	// once, and must be right each time: its handler finds the id of what it undoes in bus.CommandFrom(ctx).Undoes.
	Undo Command[S]
	// NothingToUndo says why the step needs no Undo: "reads only". Such a step has no deadline.
	NothingToUndo string
	// Pivot: when this step is done, the saga does not go back any more. At most one step is the pivot.
	Pivot bool
	// Together are steps that begin at the same time. The step that has them is their group, done when all of them are, and
	// has no other field than Name and If.
	Together []Step[S]
}

// Retry says how often something is tried, and how long the pauses are: uniform in [0, min(Cap, Base·2^(n-1))) after the
// nth failure. The part that is random derives from the id of the command, so that it is the same whenever it is asked.
type Retry struct {
	// Attempts is how often it is tried, the first time included. Default 1 for a step, 5 for what undoes one.
	Attempts int
	// Base is the upper bound of the first pause. Default 1 s.
	Base time.Duration
	// Cap is the upper bound of every pause. Default 60 s.
	Cap time.Duration
	// Forever tries without end, instead of Attempts; for steps behind the pivot.
	Forever bool
}

func (r Retry) policy() retry.Policy {
	return retry.Policy{Attempts: r.Attempts, Base: r.Base, Cap: r.Cap}
}
