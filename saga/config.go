package saga

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/retry"
)

const (
	defaultLease     = 10 * time.Second
	defaultAttempts  = 5
	defaultKeepEnded = 30 * 24 * time.Hour
	defaultPoll      = time.Second
	defaultTimeout   = consumer.DefaultTimeout
	minPoll          = 10 * time.Millisecond
	maxPoll          = time.Minute
)

// Config of a [Manager]. The zero value works.
type Config struct {
	// Lease is how long a process that fell silent keeps the others from taking over: its sagas' events and replies, and
	// the timers that it has claimed. A transaction that rests longer is ended by the server. Default 10 s.
	Lease time.Duration
	// BatchSize is the greatest number of events, replies or timers of one transaction. Default 500.
	BatchSize int
	// Attempts is how often an event that makes a definition fail is tried, with growing pauses, before its sequence waits
	// for people, and how often a timer is, before its instance is stuck. Default 5.
	Attempts int
	// RetryBase and RetryCap bound these pauses: each is random between nothing and a bound, which is RetryBase at first and
	// doubles up to RetryCap. Default 1 s and 60 s.
	RetryBase, RetryCap time.Duration
	// Classify judges what definitions return and panic with; see [eventstore.Classifier]. Default: all is transient, but for
	// what cannot be decoded.
	Classify eventstore.Classifier
	// MaxParked is how many sequences of events a saga sets aside; before the next event that fails it stops. Default 10,000.
	MaxParked int
	// KeepEnded is how long an instance that has ended is kept, with its history and its commands. While it is, no event can
	// begin it anew, late answers find it, and its commands are known to dispatchers: let it be longer than anything
	// outside may take. Commands of a reactor are kept so long too, and as long as their ends are not known. Default 30 days.
	KeepEnded time.Duration
	// Poll is how often a manager looks for what operators have decided and for inputs that can be taken by now, and the
	// longest time that a due timer waits to be seen when nobody tells of it. Default 1 s.
	Poll time.Duration
	// Timeout is how long definitions may take for one transaction of events, replies, inputs that were kept, or decisions. Then
	// the context that Senders got ends, and they have failed. Those that do not return then either are left to themselves
	// where they hold up events or replies: their transaction is rolled back, what they do takes no effect any more, and
	// everything else goes on. What took too long together is tried again one by one, each with a time of its own, and is set
	// aside like what fails. Health says which still run; beyond 64 in a process the saga stops. Timers have Lease for the
	// same. Default 30 s.
	Timeout time.Duration
	// Clock says what time it is, for definitions, due times and everything that is written down. Default: the clock of the
	// database. It is for tests.
	Clock func() time.Time
	// Wake is called after each commit that has sent commands: pass store.Wake, and they leave at once. It must not block.
	// Default: none; commands leave within the dispatcher's own time.
	Wake func()
	// Logger gets a line per change of state, never one per event, and an error for each instance that becomes stuck, with its
	// key, run, reason and step, at most ten a second and counting what that leaves out. Default: none.
	Logger *slog.Logger
	// Observer is told of each batch of events and replies, under the consumers' names. Default: none.
	Observer eventstore.Observer
	// Probe, for tests, is called with the name of each place where a crash would hurt most: those of a consumer, such as
	// "applied" and "committed", and [ProbeReacted], [ProbeFired] and [ProbeActed]. Default: none.
	Probe func(place string)
}

// Places that Config.Probe is told, besides those of a consumer.
const (
	// ProbeReacted: instances have reacted to events or replies, and nothing is written.
	ProbeReacted = "reacted"
	// ProbeFired: instances have reacted to timers, and the transaction is not committed.
	ProbeFired = "fired"
	// ProbeActed: an operator's action has taken effect, and the transaction is not committed.
	ProbeActed = "acted"
)

func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	faults = append(faults, c.inner("").Validate())
	if c.KeepEnded < 0 {
		fault("Config.KeepEnded: %v: must be positive, or 0 for %v", c.KeepEnded, defaultKeepEnded)
	}
	if c.Poll != 0 && (c.Poll < minPoll || c.Poll > maxPoll) {
		fault("Config.Poll: %v: must be between %v and %v, or 0 for %v", c.Poll, minPoll, maxPoll, defaultPoll)
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.BatchSize = cmp.Or(c.BatchSize, 500)
	c.Attempts = cmp.Or(c.Attempts, defaultAttempts)
	c.KeepEnded = cmp.Or(c.KeepEnded, defaultKeepEnded)
	c.Poll = cmp.Or(c.Poll, defaultPoll)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	if c.Wake == nil {
		c.Wake = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Probe == nil {
		c.Probe = func(string) {}
	}
	return c
}

// inner is the configuration of the consumers of a saga.
func (c Config) inner(saga string) consumer.Config {
	inner := consumer.Config{
		Lease: c.Lease, BatchSize: c.BatchSize, Attempts: c.Attempts, RetryBase: c.RetryBase, RetryCap: c.RetryCap, Classify: c.Classify,
		MaxParked: c.MaxParked, Timeout: cmp.Or(c.Timeout, defaultTimeout), Clock: c.Clock, Observer: c.Observer, Probe: c.Probe,
	}
	if c.Logger != nil {
		inner.Logger = c.Logger.With("saga", saga)
	}
	return inner
}

func (c Config) policy() retry.Policy {
	return retry.Policy{Attempts: c.Attempts, Base: c.RetryBase, Cap: c.RetryCap}
}
