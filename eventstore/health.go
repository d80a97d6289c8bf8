package eventstore

import "time"

// Health says how something that runs is doing, for readiness checks and people.
type Health struct {
	// Component names it: "store", "projection balances v1".
	Component string
	// Ready is false when work that should happen does not.
	Ready bool
	// State is one word, Reason a sentence that says why and what to do; Reason is empty when all is well.
	State  string
	Reason string
	// Since is when the state began, as far as it is known.
	Since time.Time
	// Parts are the healths of what it consists of.
	Parts []Health
}
