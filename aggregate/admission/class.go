package admission

import (
	"strconv"

	"github.com/daybook-go/daybook/eventstore"
)

// Class says how much a request matters when not all can be served. The zero value is [Normal].
type Class int

// The classes. A higher one is let in before a lower one, and when the queue is full the lower one is sent away.
const (
	// Normal is what most requests are.
	Normal Class = iota
	// Critical goes before all others that wait, and is sent away last.
	Critical
	// Bulk goes after all others, and is sent away first: imports, reports, what nobody waits for.
	Bulk
	// Operator is never sent away and never waits: health checks, and people who mend things. It is not counted
	// against the limit either, so it must be rare, and nothing that a stranger can ask for.
	Operator
)

// queues is how many classes wait; rank is their order.
const queues = 3

var classNames = [...]string{Normal: "normal", Critical: "critical", Bulk: "bulk", Operator: "operator"}

// String returns "critical", "normal", "bulk" or "operator".
func (c Class) String() string {
	if c.valid() {
		return classNames[c]
	}
	return "Class(" + strconv.Itoa(int(c)) + ")"
}

// ParseClass is the reverse of [Class.String]; the empty text is [Normal]. The error is an [*eventstore.InvalidError].
func ParseClass(text string) (Class, error) {
	if text == "" {
		return Normal, nil
	}
	for c, name := range classNames {
		if name == text {
			return Class(c), nil
		}
	}
	return 0, &eventstore.InvalidError{
		Field: "admission class", Value: text, Reason: "is not known", Remedy: "use critical, normal, bulk or operator",
	}
}

func (c Class) valid() bool { return c >= Normal && c <= Operator }

// rank is the place in the order of the queues, from 0.
func (c Class) rank() int {
	switch c {
	case Critical:
		return 0
	case Bulk:
		return 2
	}
	return 1
}
