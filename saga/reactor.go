package saga

import "github.com/daybook-go/daybook/eventstore"

// NewReactor defines choreography: an event comes in, commands go out, once, and nothing is remembered. It needs no end,
// no answers and no compensation; where it needs one of them, use a [Process].
func NewReactor(name string, events *eventstore.Catalog, when ...Trigger) Definition {
	return defineReactor(name, events, when)
}
