package consumer

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	defaultLease    = 10 * time.Second
	minLease        = 100 * time.Millisecond
	maxLease        = 24 * time.Hour // PostgreSQL's time-outs end at 24 days
	defaultBatch    = 500
	maxBatch        = 100_000
	defaultAttempts = 5
)

// Config of a worker. The zero value works.
type Config struct {
	// Lease is how long a silent owner keeps the others waiting. Default 10 s.
	Lease time.Duration
	// BatchSize is the greatest number of events of one transaction. Default 500.
	BatchSize int
	// Attempts is how often a failing event is applied before the consumer stops. Default 5.
	Attempts int
	// Logger gets a line per change of state. Default: none.
	Logger *slog.Logger
	// Observer is told of each batch. Default: none.
	Observer eventstore.Observer
	// Home identifies the database to waiters of this process: the pool that the program itself asks. Default: none.
	Home any
	// Probe, for tests, is called with the name of each place where a crash would hurt most. Default: none.
	Probe func(place string)
}

// The places that Config.Probe is told.
const (
	// ProbeApplied: the effects are in the transaction, which is not committed.
	ProbeApplied = "applied"
	// ProbeCommitted: the transaction is committed, and the worker does not know it yet.
	ProbeCommitted = "committed"
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
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.BatchSize = cmp.Or(c.BatchSize, defaultBatch)
	c.Attempts = cmp.Or(c.Attempts, defaultAttempts)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = eventstore.NopObserver{}
	}
	if c.Probe == nil {
		c.Probe = func(string) {}
	}
	return c
}

// ownerName tells people which process owns a segment; the random part makes it unique.
func ownerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}
