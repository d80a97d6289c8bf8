package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

const (
	defaultSchema  = "daybook"
	defaultLease   = 30 * time.Second
	defaultPoll    = time.Second
	defaultRefresh = time.Minute
	defaultKeep    = 30 * 24 * time.Hour
	defaultWorkers = 8
	maxWorkers     = 1000
	defaultMargin  = 5 * time.Second // for writing down that an attempt begins, which is no part of its Timeout
)

// Config of a [Runner]. The zero value works.
type Config struct {
	// Schema is the PostgreSQL schema of the store. Default "daybook".
	Schema string
	// Lease is how long a process that fell silent keeps its firings from the others. Default 30 s.
	Lease time.Duration
	// Poll is how long a firing can wait before an idle process sees it, and about how soon a run learns that its firing was
	// taken from it. Default 1 s.
	Poll time.Duration
	// Refresh is how often jobs are asked for their tenants, and a process says that it knows its jobs. Default 1 min.
	Refresh time.Duration
	// Keep is how long firings that have ended are kept for [History]. Default 30 days.
	Keep time.Duration
	// Clock is asked for the time in place of the database: for tests. Default: none.
	Clock func() time.Time
	// Logger gets a line per change of state, for each firing that fails for good, and for what is stuck. Default: none.
	Logger *slog.Logger

	probe  func(place string)
	margin time.Duration
}

// The places that Config.probe is told.
const (
	probeDecided = "decided" // what is due was written down, and is not committed
	probeBegun   = "begun"   // a firing is running, and its job has not been called
	probeRan     = "ran"     // the job has returned, and nothing is written down
	probeEnded   = "ended"   // the end of a firing is committed
)

func (c Config) validate() error {
	var faults []error
	for _, d := range []struct {
		name       string
		value, def time.Duration
		min        time.Duration
	}{
		{"Lease", c.Lease, defaultLease, 100 * time.Millisecond},
		{"Poll", c.Poll, defaultPoll, time.Millisecond},
		{"Refresh", c.Refresh, defaultRefresh, time.Millisecond},
		{"Keep", c.Keep, defaultKeep, time.Second},
	} {
		if d.value != 0 && d.value < d.min {
			faults = append(faults, fmt.Errorf("schedule: Config.%s: %v: must be at least %v, or 0 for %v", d.name, d.value, d.min, d.def))
		}
	}
	if strings.IndexByte(c.Schema, 0) >= 0 {
		faults = append(faults, fmt.Errorf("schedule: Config.Schema: %q: has a zero byte: name a schema", c.Schema))
	}
	if full := c.withDefaults(); full.Poll > full.Lease/2 {
		faults = append(faults, fmt.Errorf("schedule: Config.Poll: %v: must be at most half of Config.Lease, which is %v: lower it, or raise Config.Lease", full.Poll, full.Lease))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Schema = cmp.Or(c.Schema, defaultSchema)
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.Poll = cmp.Or(c.Poll, defaultPoll)
	c.Refresh = cmp.Or(c.Refresh, defaultRefresh)
	c.Keep = cmp.Or(c.Keep, defaultKeep)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.margin = cmp.Or(c.margin, defaultMargin)
	if c.probe == nil {
		c.probe = func(string) {}
	}
	return c
}

// now is what statements are given for the time: nil is the database's.
func (c Config) now() *time.Time {
	if c.Clock == nil {
		return nil
	}
	now := c.Clock().Truncate(time.Microsecond)
	return &now
}
