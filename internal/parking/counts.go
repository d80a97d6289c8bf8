package parking

import (
	"fmt"
	"time"
)

// Degraded is the state in a health of what has something set aside. It is ready: everything else goes on, and to take the
// process from its work would help nobody.
const Degraded = "degraded"

// Aside counts what is set aside, for people. It is empty when nothing is.
func (c Counts) Aside() string {
	n := c.Retrying + c.Parked + c.Draining
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d sequences are set aside since %s: %d are tried again, %d wait for people (see `daybook deadletter list`), %d drain",
		n, c.Oldest.UTC().Format(time.RFC3339), c.Retrying, c.Parked, c.Draining)
}

// Plus is what two owners have set aside together.
func (c Counts) Plus(d Counts) Counts {
	if c.Oldest.IsZero() || !d.Oldest.IsZero() && d.Oldest.Before(c.Oldest) {
		c.Oldest = d.Oldest
	}
	c.Retrying, c.Parked, c.Draining = c.Retrying+d.Retrying, c.Parked+d.Parked, c.Draining+d.Draining
	return c
}
