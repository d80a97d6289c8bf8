package commands

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	defaultWorkers  = 8
	maxWorkers      = 1024
	defaultBatch    = 100
	defaultTimeout  = 30 * time.Second
	defaultAttempts = 5
	defaultKeep     = 24 * time.Hour
	defaultClean    = time.Minute
)

// Config of a [Dispatcher]. The zero value works.
type Config struct {
	// Workers is how many commands are carried out at once, never two of one target. Default 8.
	Workers int
	// BatchSize is the greatest number of commands between two checkpoints: what is run again, without effect, after a
	// crash. One slow command keeps those of the next batch waiting. Default 100.
	BatchSize int
	// Timeout is how long one command may take, with all its attempts; its own deadline may be sooner. Time during which
	// the database is away or a gate ([bus.Admit]) sends commands away does not count. Default 30 s.
	Timeout time.Duration
	// Attempts is how often a command is tried that fails for another reason than that of its domain: conflicts, a service
	// that does not answer. Default 5.
	Attempts int
	// Lease is how long a dispatcher that fell silent keeps the others from taking over. Default 10 s.
	Lease time.Duration
	// KeepOperations is how long an operation can be asked for after its end. Default 24 h.
	KeepOperations time.Duration
	// CleanEvery is how often operations that are older are removed. Default 1 min.
	CleanEvery time.Duration
	// Logger gets a line per change of the dispatcher's state and per command that failed, and none for any other command.
	// Default: slog.Default(); slog.New(slog.DiscardHandler) is for who wants none.
	Logger *slog.Logger
	// Observer is told of each batch. Default: none.
	Observer eventstore.Observer
	// Wake, usually that of the store, is called after replies were stored, so that a relay publishes them at once. Without it
	// the relay looks within a second.
	Wake func()
	// Clock says which operations are old enough to go. Default: the clock of the database.
	Clock func() time.Time

	probe func(place string)
}

// The places that Config.probe is told, besides those of the consumer.
const (
	probeRan     = "ran"     // the commands of a batch have ended, and nothing of that is committed
	probeTold    = "told"    // some ends are committed, and the checkpoint is not
	probeReplied = "replied" // the replies are in the transaction, which is not committed
)

// inner is the configuration of the consumer, which never gives up: no command can make it fail.
func (c Config) inner() consumer.Config {
	return consumer.Config{
		Lease: c.Lease, BatchSize: c.BatchSize, OnFailure: consumer.StopConsumer, Attempts: math.MaxInt32, Logger: c.Logger, Observer: c.Observer, Probe: c.probe,
	}
}

// validate joins all faults.
func (c Config) validate() error {
	inner := c.inner()
	faults := []error{inner.Validate()}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Workers < 0 || c.Workers > maxWorkers {
		fault("Config.Workers: %d: must be between 1 and %d, or 0 for %d", c.Workers, maxWorkers, defaultWorkers)
	}
	if c.Attempts < 0 {
		fault("Config.Attempts: %d: must be at least 1, or 0 for %d", c.Attempts, defaultAttempts)
	}
	for _, d := range []struct {
		name       string
		value, def time.Duration
	}{
		{"Timeout", c.Timeout, defaultTimeout}, {"KeepOperations", c.KeepOperations, defaultKeep}, {"CleanEvery", c.CleanEvery, defaultClean},
	} {
		if d.value < 0 {
			fault("Config.%s: %v: must be positive, or 0 for %v", d.name, d.value, d.def)
		}
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, defaultWorkers)
	c.BatchSize = cmp.Or(c.BatchSize, defaultBatch)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Attempts = cmp.Or(c.Attempts, defaultAttempts)
	c.KeepOperations = cmp.Or(c.KeepOperations, defaultKeep)
	c.CleanEvery = cmp.Or(c.CleanEvery, defaultClean)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Wake == nil {
		c.Wake = func() {}
	}
	if c.probe == nil {
		c.probe = func(string) {}
	}
	return c
}
