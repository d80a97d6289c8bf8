package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/retry"
)

const (
	defaultLease    = 10 * time.Second
	minLease        = 100 * time.Millisecond
	maxLease        = 24 * time.Hour // PostgreSQL's time-outs end at 24 days
	defaultBatch    = 500
	maxBatch        = 100_000
	defaultAttempts = 5
	defaultParked   = 10_000
	maxParked       = 100_000
)

// DefaultTimeout is how long handlers may take for one transaction where nothing else was said.
const DefaultTimeout = 30 * time.Second

// Config of a worker. The zero value works.
type Config struct {
	// Lease is how long a silent owner keeps the others waiting. Default 10 s.
	Lease time.Duration
	// BatchSize is the greatest number of events of one transaction. Default 500.
	BatchSize int
	// OnFailure says what becomes of an event that fails. Default [ParkSequence].
	OnFailure OnFailure
	// Attempts is how often a failing event is applied before its sequence is parked, or before the consumer stops.
	// Default 5.
	Attempts int
	// RetryBase and RetryCap bound the pauses between attempts at a sequence that is set aside; see [retry.Policy].
	// Default 1 s and 60 s.
	RetryBase, RetryCap time.Duration
	// Budget bounds the retries of sequences that are set aside. Workers of one handler share one. Default: one of the
	// worker's own, with the defaults of [retry.Budget].
	Budget *retry.Budget
	// Classify judges what an Applier returns, except what the connection to Daybook's database says, which is judged
	// before, and events that cannot be decoded or have an unknown type, which are permanent. Default: all is transient.
	Classify eventstore.Classifier
	// MaxParked is how many sequences may be set aside; before the next failing event the consumer stops. Default 10,000.
	MaxParked int
	// Timeout is how long the work of the Applier for one transaction may take: then the context that it got ends, and it has
	// failed. When it ignores that too, it is left: its transaction is rolled back, everything else goes on, and what it does
	// takes no effect any more. Several events of which one has hung are tried again one by one. 0: no bound, and a hung
	// Applier holds its segment; for one that bounds its work itself. What runs code of others wants [DefaultTimeout].
	Timeout time.Duration
	// Clock says when sequences are due. Default [time.Now]. Leases are by the database's clock.
	Clock func() time.Time
	// Logger gets a line per change of state, and one for each sequence that is parked or released and for each redrive that
	// stops, as far as Lines lets it. Default: none.
	Logger *slog.Logger
	// Lines bounds the lines about single sequences. Workers of one handler share one. Default: one of the worker's own.
	Lines *Lines
	// Observer is told of each batch. Default: none.
	Observer eventstore.Observer
	// Home identifies the database to waiters of this process: the pool that the program itself asks. Default: none.
	Home any
	// Probe, for tests, is called with the name of each place where a crash would hurt most. Default: none.
	Probe func(place string)

	calls    *calls // handlers that were left; those of the process
	unfenced bool   // for tests that show what the fence is for: whoever commits, commits
}

// OnFailure says what becomes of an event that fails.
type OnFailure uint8

const (
	// ParkSequence sets the event's sequence aside, in the transaction of the checkpoint. It is tried again when it is due,
	// and everything else goes on.
	ParkSequence OnFailure = iota
	// StopConsumer tries the event again in place, with growing pauses, while everything waits, and stops the consumer just
	// before it when it has had its attempts.
	StopConsumer
)

// The places that Config.Probe is told.
const (
	// ProbeApplied: the effects are in the transaction, which is not committed.
	ProbeApplied = "applied"
	// ProbeCommitted: the transaction is committed, and the worker does not know it yet.
	ProbeCommitted = "committed"
	// ProbeParked: a sequence was set aside, and the transaction is committed.
	ProbeParked = "parked"
	// ProbeRetried: the letter of a sequence was tried again, and how that ended is committed.
	ProbeRetried = "retried"
	// ProbeDrained: what is queued behind a letter went on, and the transaction is committed.
	ProbeDrained = "drained"
	// ProbeReleased: a sequence was released, and the transaction is committed.
	ProbeReleased = "released"
	// ProbeTaken: the lease is taken, and nothing is read.
	ProbeTaken = "taken"
)

// Validate joins all faults.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Lease != 0 && c.Lease < minLease {
		fault("Config.Lease: %v is too short: want at least %v, or 0 for %v", c.Lease, minLease, defaultLease)
	}
	if c.Lease > maxLease {
		fault("Config.Lease: %v is too long: want at most %v, or 0 for %v", c.Lease, maxLease, defaultLease)
	}
	if c.BatchSize < 0 || c.BatchSize > maxBatch {
		fault("Config.BatchSize: %d: must be between 1 and %d, or 0 for %d", c.BatchSize, maxBatch, defaultBatch)
	}
	if c.Attempts < 0 {
		fault("Config.Attempts: %d: must be at least 1, or 0 for %d", c.Attempts, defaultAttempts)
	} else if err := c.policy().Validate(); err != nil {
		fault("Config.RetryBase, Config.RetryCap: %v, %v: %w", c.RetryBase, c.RetryCap, err)
	}
	if c.Timeout < 0 {
		fault("Config.Timeout: %v: must be positive, or 0", c.Timeout)
	}
	if c.OnFailure > StopConsumer {
		fault("Config.OnFailure: %d: must be ParkSequence or StopConsumer", c.OnFailure)
	}
	if c.MaxParked < 0 || c.MaxParked > maxParked {
		fault("Config.MaxParked: %d: must be between 1 and %d, or 0 for %d", c.MaxParked, maxParked, defaultParked)
	}
	return errors.Join(faults...)
}

func (c Config) policy() retry.Policy {
	return retry.Policy{Attempts: c.Attempts, Base: c.RetryBase, Cap: c.RetryCap}
}

func (c Config) withDefaults() Config {
	c.MaxParked = cmp.Or(c.MaxParked, defaultParked)
	if c.Budget == nil {
		c.Budget = new(retry.Budget)
	}
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.BatchSize = cmp.Or(c.BatchSize, defaultBatch)
	c.Attempts = cmp.Or(c.Attempts, defaultAttempts)
	if c.calls == nil {
		c.calls = leftHere
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Lines == nil {
		c.Lines = new(Lines)
	}
	if c.Observer == nil {
		c.Observer = eventstore.NopObserver{}
	}
	if c.Probe == nil {
		c.Probe = func(string) {}
	}
	return c
}
