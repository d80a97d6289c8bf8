package timers

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/daybook-go/daybook/internal/owner"
	"github.com/daybook-go/daybook/internal/retry"
)

const (
	defaultSchema  = "daybook"
	defaultLease   = 30 * time.Second
	minLease       = 100 * time.Millisecond
	maxLease       = 24 * time.Hour
	defaultPoll    = time.Second
	minPoll        = time.Millisecond
	defaultBatch   = 500
	maxBatch       = 10_000
	defaultGroup   = 100
	defaultWorkers = 4
	maxWorkers     = 1000
)

// Config of a [Runner]. Only Queue must be set.
type Config struct {
	// Schema has the tables. Default "daybook".
	Schema string
	// Queue is whose timers are run. Each queue has runners of its own, in as many processes as you like.
	Queue string
	// Owner says for people who claims. Default: host, process and a random part.
	Owner string
	// Lease is how long a silent process keeps its timers from the others. Default 30 s.
	Lease time.Duration
	// Poll is how long a timer can be due before an idle runner sees it, when nobody calls Wake. Default 1 s.
	Poll time.Duration
	// Ahead is how long before they are due timers are claimed. They are held in memory until then, to be on time.
	// Default: Poll and a quarter. Below 0: not ahead.
	Ahead time.Duration
	// Batch is the greatest number of timers of one claim; at most twice as many are in the hands of a process. Default 500.
	Batch int
	// Group is the greatest number of timers of one call of the handler. When a call fails, its timers are handled alone, so
	// that one of them does not fail the others. A call that hangs keeps its group waiting for Timeout. Default 100.
	Group int
	// Workers is how many calls run at once. Each may need a connection; the pool must have one more for claims. Default 4.
	Workers int
	// Timeout is when the context of a call ends. One that does not return soon after hangs: it is reported, and another
	// takes its place, up to 16 times. Its timer stays its own as long as the process lives; those of a larger group are
	// given back. Default: Lease.
	Timeout time.Duration
	// Retry has the pauses between attempts at a timer that fails. Attempts are not counted here: a handler that wants to give
	// up looks at [Timer].Attempts, and finishes the timer.
	Retry retry.Policy
	// Clock is asked for the time in place of the database: for tests. Default: none.
	Clock func() time.Time
	// Logger gets a line per change of state, for what hangs, and for timers that fail, at most one a second. Default: none.
	Logger *slog.Logger
	// Probe, for tests, is called with the name of each place where a crash would hurt most. Default: none.
	Probe func(place string)
}

// The places that Config.Probe is told.
const (
	// ProbeClaimed: timers are claimed, and nothing is handled.
	ProbeClaimed = "claimed"
	// ProbeHandled: the handler has returned without an error, and the runner has not noted it.
	ProbeHandled = "handled"
)

// Validate joins all faults.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Queue == "" {
		fault("Config.Queue: is empty: name the queue whose timers are run")
	}
	if c.Lease != 0 && (c.Lease < minLease || c.Lease > maxLease) {
		fault("Config.Lease: %v: must be between %v and %v, or 0 for %v", c.Lease, minLease, maxLease, defaultLease)
	}
	full := c.withDefaults()
	if c.Poll != 0 && (c.Poll < minPoll || c.Poll > maxLease) {
		fault("Config.Poll: %v: must be between %v and %v, or 0 for %v", c.Poll, minPoll, maxLease, defaultPoll)
	}
	if full.Ahead > full.Lease/2 {
		fault("Config.Ahead: %v: must be at most half of Config.Lease, which is %v: lower it or Config.Poll, or raise Config.Lease", full.Ahead, full.Lease)
	}
	if c.Batch < 0 || c.Batch > maxBatch {
		fault("Config.Batch: %d: must be between 1 and %d, or 0 for %d", c.Batch, maxBatch, defaultBatch)
	}
	if c.Group < 0 || c.Group > maxBatch {
		fault("Config.Group: %d: must be between 1 and %d, or 0 for %d", c.Group, maxBatch, defaultGroup)
	}
	if c.Workers < 0 || c.Workers > maxWorkers {
		fault("Config.Workers: %d: must be between 1 and %d, or 0 for %d", c.Workers, maxWorkers, defaultWorkers)
	}
	if c.Timeout < 0 {
		fault("Config.Timeout: %v: must be above 0, or 0 for Config.Lease", c.Timeout)
	}
	if err := c.Retry.Validate(); err != nil {
		fault("Config.Retry: %w", err)
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Schema = cmp.Or(c.Schema, defaultSchema)
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.Poll = cmp.Or(c.Poll, defaultPoll)
	if c.Ahead == 0 {
		c.Ahead = min(c.Poll+c.Poll/4, c.Lease/2)
	}
	c.Ahead = max(c.Ahead, 0)
	c.Batch = cmp.Or(c.Batch, defaultBatch)
	c.Group = cmp.Or(c.Group, defaultGroup)
	c.Workers = cmp.Or(c.Workers, defaultWorkers)
	c.Timeout = cmp.Or(c.Timeout, c.Lease)
	if c.Owner == "" {
		c.Owner = owner.Name()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Probe == nil {
		c.Probe = func(string) {}
	}
	return c
}
