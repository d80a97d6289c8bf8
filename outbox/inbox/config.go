package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	defaultSchema     = "daybook"
	defaultPartitions = 64
	maxPartitions     = 4096
	defaultHoldFor    = 200 * time.Millisecond
	defaultHoldAtMost = 1000
	maxHoldAtMost     = 100_000
	defaultGapAfter   = 10 * time.Second
	maxSubscriptions  = 256
)

// Mode says what an inbox does with the order of messages.
type Mode int

const (
	// Chain: every message takes effect once, in the order of its partition; what is missing is waited for.
	Chain Mode = iota
	// Latest: messages carry the whole state of what they are about, and a version. One that is older than what took effect
	// last, or as old, is ignored; nothing is waited for, and nothing is missed for longer than until the next.
	Latest
)

// Start says where an inbox begins that has never applied anything.
type Start int

const (
	// AtBeginning: with the first message of the topic. What the broker no longer has is missing then, and shows as a gap.
	AtBeginning Start = iota
	// AtHead: each partition with the first head message that comes; see package outbox. What lies before it is never
	// applied. Heads are sent for topics that are followed in the publishing store.
	AtHead
)

// Config sets up an [Inbox]. Name and Topic are needed.
type Config struct {
	// Schema is where the tables of Daybook are in the inbox's own database. Default "daybook".
	Schema string
	// Name names the consumer, for leases and operators; 1 to 200 bytes without control characters.
	Name string
	// Version, from 1: another one begins anew. Default 1.
	Version int
	// Topic is what is subscribed to and followed.
	Topic string
	// Partitions is how many the publishing store has, which was chosen when that was installed. Default 64.
	Partitions int
	// Mode is Chain or Latest. Default Chain.
	Mode Mode
	// Latest tells, in mode Latest, what a message is about and which version it has of that. Default: the stream of an event
	// and its version there, and the partition key of what is no event and its position. An error is a failure of the message.
	Latest func(Message) (key string, version int64, err error)
	// StartAt says where an inbox begins that has never applied anything. Default [AtBeginning].
	StartAt Start
	// Subscriptions is how many times the topic is subscribed to. Subscribers hand over one message of a subscription at a
	// time, so that this is how many a transaction can apply. More of them bring the messages out of order, which is put
	// right. Default 1.
	Subscriptions int
	// HoldFor is how long a message that came before its predecessor waits in memory. Then it is stored in the database
	// and acknowledged, so that a broker that waits for that can bring the predecessor. Default 200 ms.
	HoldFor time.Duration
	// HoldAtMost is how many of them wait in memory, at most; what is more is stored at once. Default 1,000.
	HoldAtMost int
	// GapAfter is how long a gap may last before the inbox raises the alarm: Health is not ready, with a line in the log
	// and a call of the Observer. Default 10 s.
	GapAfter time.Duration

	// Lease is how long a process that fell silent keeps the others from taking over. Default 10 s.
	Lease time.Duration
	// BatchSize is the greatest number of messages of one transaction. Default 500.
	BatchSize int
	// Attempts, RetryBase and RetryCap say how often a message that fails is tried, and how long the pauses are: see package
	// projection. Defaults 5, 1 s, 60 s.
	Attempts  int
	RetryBase time.Duration
	RetryCap  time.Duration
	// Classify judges what the handler returned. Default: everything is transient.
	Classify eventstore.Classifier
	// MaxParked is how many partition keys may be set aside; before the next failing message the inbox stops: the handler is
	// broken then, and not the messages. Each message that cannot be read counts like a key. Default 10,000.
	MaxParked int
	// Timeout is how long handlers may take for one transaction. Then the context that they got ends, and they have failed; when
	// they ignore that too, they are left, and everything else goes on. Messages that took too long together are tried again
	// one by one. Health says which handlers still run. Default 30 s.
	Timeout time.Duration
	// Clock says what time it is, for pauses and gaps. Default time.Now.
	Clock func() time.Time
	// Logger gets a line per change of state, never one per message. Default: none.
	// Besides there are one for each sequence that is parked, or released after that, and one for where a panic came from:
	// at most ten of a kind in a second, and one that counts what was left out.
	Logger *slog.Logger
	// Observer is told of each batch, failure and gap. Default: none.
	Observer eventstore.Observer

	probe func(place string)
}

func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("inbox: new: Config."+format, args...))
	}
	if c.Name == "" || len(c.Name) > 200 || strings.ContainsFunc(c.Name, func(r rune) bool { return r < ' ' }) {
		fault("Name: %q: want 1 to 200 bytes without control characters", c.Name)
	}
	if c.Version < 0 {
		fault("Version: %d: must be at least 1, or 0 for 1", c.Version)
	}
	if err := (eventstore.Route{Topic: c.Topic}).Validate(); err != nil {
		fault("Topic: %w", err)
	}
	if c.Partitions < 0 || c.Partitions > maxPartitions {
		fault("Partitions: %d: must be what the publishing store was installed with, 1 to %d, or 0 for %d", c.Partitions, maxPartitions, defaultPartitions)
	}
	if c.Mode != Chain && c.Mode != Latest {
		fault("Mode: %d: use Chain or Latest", c.Mode)
	}
	if c.Latest != nil && c.Mode != Latest {
		fault("Latest: is set, and Mode is Chain: set Mode: inbox.Latest, or leave it out")
	}
	if c.StartAt != AtBeginning && c.StartAt != AtHead {
		fault("StartAt: %d: use AtBeginning or AtHead", c.StartAt)
	}
	if c.Subscriptions < 0 || c.Subscriptions > maxSubscriptions {
		fault("Subscriptions: %d: must be between 1 and %d, or 0 for 1", c.Subscriptions, maxSubscriptions)
	}
	if c.HoldFor < 0 {
		fault("HoldFor: %v: must be positive, or 0 for %v", c.HoldFor, defaultHoldFor)
	}
	if c.HoldAtMost < 0 || c.HoldAtMost > maxHoldAtMost {
		fault("HoldAtMost: %d: must be between 1 and %d, or 0 for %d", c.HoldAtMost, maxHoldAtMost, defaultHoldAtMost)
	}
	if c.GapAfter < 0 {
		fault("GapAfter: %v: must be positive, or 0 for %v", c.GapAfter, defaultGapAfter)
	}
	if err := c.inner(nil).Validate(); err != nil {
		faults = append(faults, fmt.Errorf("inbox: new: %w", err))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Schema = cmp.Or(c.Schema, defaultSchema)
	c.Version = cmp.Or(c.Version, 1)
	c.Partitions = cmp.Or(c.Partitions, defaultPartitions)
	c.Subscriptions = cmp.Or(c.Subscriptions, 1)
	c.HoldFor = cmp.Or(c.HoldFor, defaultHoldFor)
	c.HoldAtMost = cmp.Or(c.HoldAtMost, defaultHoldAtMost)
	c.GapAfter = cmp.Or(c.GapAfter, defaultGapAfter)
	c.BatchSize = cmp.Or(c.BatchSize, 500)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = eventstore.NopObserver{}
	}
	return c
}

func (c Config) ref() consumer.Ref {
	return consumer.Ref{Store: c.Schema, Name: c.Name, Version: c.Version}
}
