package outbox

import "github.com/daybook-go/daybook/eventstore"

// verdict is what the chain says about a message.
type verdict int

const (
	// drop: the message, or what stands in its place, has taken effect already.
	drop verdict = iota
	// apply: nothing lies between what was applied and the message.
	apply
	// hole: messages are missing. What lies in (applied, previous] of this topic and partition is read from the outbox
	// and applied first; the message is then judged again.
	hole
)

// String names the verdict, for logs and tests.
func (v verdict) String() string {
	switch v {
	case drop:
		return "drop"
	case apply:
		return "apply"
	case hole:
		return "hole"
	}
	return "verdict(?)"
}

// judge is the chain rule for one topic and partition. Each message carries its position and the position of the message
// before it: facts of the log, so whoever publishes it again sends the same pair. Whatever a broker loses, repeats or
// shuffles shows in them; whatever a relay does not send shows in the next message, heads included.
//
// A head message obeys the same rule, has no effect and is nobody's previous.
func judge(applied, previous, position eventstore.Position) verdict {
	switch {
	case !position.After(applied):
		return drop
	case previous.After(applied):
		return hole
	default:
		return apply
	}
}
