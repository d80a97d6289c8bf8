package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	defaultLanes     = 8
	maxLanes         = 1024
	defaultPage      = 500
	defaultHeadEvery = 50 * time.Millisecond
	defaultRetention = 7 * 24 * time.Hour
	defaultClean     = time.Minute
	defaultParked    = 10_000

	// idleQuiets is how much rarer the cursor moves while nothing of its own was published: no crash repeats anything then.
	idleQuiets = 5

	// defaultQuiet bounds what a crash repeats of what was published while the relay kept up.
	defaultQuiet = 10 * time.Millisecond

	// longestCall is how long a publisher may take for one message before Health says that it does not return.
	longestCall = 5 * time.Second
)

// Config of a [Relay]. The zero value works.
type Config struct {
	// Lease is how long a relay that fell silent keeps the others from taking over. Default 10 s.
	Lease time.Duration
	// BatchSize is how many messages of one of the four ranges are read and published before its cursor moves: what is
	// published again when a relay dies. Two such pages of each range are in memory. Default 500.
	BatchSize int
	// Lanes is how many messages of this process may be on their way to the broker at once, never two of one partition.
	// Default 8.
	Lanes int
	// HeadTopics get head messages although no subscription of this store follows them: topics that inboxes follow. Topics
	// that a subscription follows get them in any case.
	HeadTopics []string
	// HeadEvery is the shortest time between two rounds of head messages. Default 50 ms.
	HeadEvery time.Duration
	// Retention is how long a subscriber may stay behind before it is declared lost, by name in the log, and the outbox
	// no longer keeps messages for it. Default 7 days.
	Retention time.Duration
	// CleanEvery is how often messages that are sent, and passed by every subscriber, are removed. Default 1 min.
	CleanEvery time.Duration
	// Logger gets a line per change of state and per lost subscriber, never one per message. Default: none.
	// Besides there are one for each sequence that is parked, or released after that:
	// at most ten of a kind in a second, and one that counts what was left out.
	Logger *slog.Logger
	// Observer is told of each attempt to publish a page. Default: none.
	Observer eventstore.Observer

	// Classify judges what Publish returned. [eventstore.Environment]: the relay waits, and tries this message alone.
	// [eventstore.Permanent]: the message's sequence, its topic and partition key, is parked, and everything else goes on.
	// [eventstore.Transient]: the same, and it is tried again after a pause.
	//
	// Default: by trial. A message is to blame, for the time being, when the broker takes something harmless on the same topic
	// and partition and then refuses the message again; a topic, when the broker takes nothing on it and something on another.
	// Otherwise it is environment.
	Classify eventstore.Classifier
	// Attempts is how often a message is tried before its sequence is parked. Default 5.
	Attempts int
	// RetryBase and RetryCap bound the pauses between attempts at a message that is set aside: random, and doubled each time.
	// Default 1 s and 60 s.
	RetryBase, RetryCap time.Duration
	// MaxParked is how many sequences may be set aside in each of the four ranges. When so many are, the relay waits for the
	// broker instead: it is its set-up, and not the messages. Default 10,000.
	MaxParked int
	// Clock says when messages that are set aside are due. Default [time.Now].
	Clock func() time.Time

	probe func(place string)
	late  time.Duration // how long Publish may take before Health says so
	quiet time.Duration // the shortest time between two moves of the cursor while the relay keeps up
}

// The places that Config.probe is told, besides those of the consumer.
const (
	probePublished = "published" // the broker has the page, the cursor has not moved
	probeCommitted = "committed" // the cursor has moved
)

func (c Config) inner() consumer.Config {
	return consumer.Config{
		Lease: c.Lease, BatchSize: c.BatchSize, Logger: c.Logger, Observer: c.Observer, Probe: c.probe,
		Attempts: c.Attempts, RetryBase: c.RetryBase, RetryCap: c.RetryCap, MaxParked: c.MaxParked, Clock: c.Clock,
	}
}

// validate joins all faults.
func (c Config) validate() error {
	faults := []error{c.inner().Validate()}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Lanes < 0 || c.Lanes > maxLanes {
		fault("Config.Lanes: %d: must be between 1 and %d, or 0 for %d", c.Lanes, maxLanes, defaultLanes)
	}
	for _, topic := range c.HeadTopics {
		if err := eventstore.ValidateRoutes([]eventstore.Route{{Topic: topic}}); err != nil {
			fault("Config.HeadTopics: %w", err)
		}
	}
	for _, d := range []struct {
		name       string
		value, def time.Duration
	}{
		{"HeadEvery", c.HeadEvery, defaultHeadEvery}, {"Retention", c.Retention, defaultRetention}, {"CleanEvery", c.CleanEvery, defaultClean},
	} {
		if d.value < 0 {
			fault("Config.%s: %v: must be positive, or 0 for %v", d.name, d.value, d.def)
		}
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.HeadTopics = slices.Clone(c.HeadTopics)
	c.BatchSize = cmp.Or(c.BatchSize, defaultPage)
	c.Lanes = cmp.Or(c.Lanes, defaultLanes)
	c.HeadEvery = cmp.Or(c.HeadEvery, defaultHeadEvery)
	c.MaxParked = cmp.Or(c.MaxParked, defaultParked)
	c.Retention = cmp.Or(c.Retention, defaultRetention)
	c.CleanEvery = cmp.Or(c.CleanEvery, defaultClean)
	c.quiet = cmp.Or(c.quiet, defaultQuiet)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.late = cmp.Or(c.late, longestCall)
	if c.Observer == nil {
		c.Observer = eventstore.NopObserver{}
	}
	if c.probe == nil {
		c.probe = func(string) {}
	}
	return c
}
