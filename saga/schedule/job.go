package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/daybook-go/daybook/internal/retry"
)

// Missed says what becomes of slots that could not begin when they were due: no process ran, or an earlier firing did.
type Missed string

const (
	// Once runs the latest of them, however late. It is the default.
	Once Missed = "once"
	// Skip runs the latest of them when it is not older than TooLate, a minute by default, and else none.
	Skip Missed = "skip"
	// All runs all of them, in order.
	All Missed = "all"
)

// Overlap says what a slot does that is due while an earlier firing of the same job and tenant has not ended.
type Overlap string

const (
	// Forbid lets it wait; when that firing has ended, [Missed] decides about what waited. It is the default.
	Forbid Overlap = "forbid"
	// Allow begins it beside the other.
	Allow Overlap = "allow"
	// Replace takes the rights from the earlier firing, ends its context, and begins the later one when the earlier has
	// returned, or five seconds later.
	Replace Overlap = "replace"
)

const (
	skipGrace      = time.Minute
	defaultTimeout = time.Hour
	maxTenant      = 500
	maxName        = 100
)

// Job is what recurs. It is a value; its functions must be safe for concurrent use.
type Job struct {
	// Name identifies the job for ever: up to 100 letters, digits, dashes, dots and underscores.
	Name string
	// Cron has the fields minute, hour, day of the month, month and weekday, with the second in front if there are six:
	// numbers, lists, ranges, steps as in */15 or 8-18/2, JAN to DEC, SUN to SAT, L for the last day of the month, 15W for the
	// weekday next to a day, 5L and FRIL for the last Friday, 1#2 for the second Monday. When both the day of the month and the weekday
	// are restricted, one of them is enough. H for the minute is one that a hash of job and tenant picks, so that tenants
	// come evenly over the hour, each at the same minute for ever.
	Cron string
	// Zone is the name of a time zone: "Europe/Berlin". Default "UTC".
	Zone string
	// Missed says what becomes of slots that could not begin in time. Default [Once].
	Missed Missed
	// TooLate is how old a slot may be when it begins. An older one is recorded as missed, and not run. Default: no limit,
	// with [Skip] a minute.
	TooLate time.Duration
	// Overlap says what a slot does while an earlier firing goes on. Default [Forbid].
	Overlap Overlap
	// Tenants, when set, returns the tenants; the job fires for each of them. It is asked every Config.Refresh. A tenant that
	// is no longer returned, to any process, ends to fire a little later; what it has stays.
	Tenants func(ctx context.Context) ([]string, error)
	// Attempts is how often a firing is tried before it has failed for good. An attempt whose process died counts. Default 5.
	Attempts int
	// RetryBase and RetryCap bound the pauses between attempts: each is random between nothing and a bound, which is RetryBase
	// at first and doubles up to RetryCap. Default 1 s and 60 s.
	RetryBase, RetryCap time.Duration
	// Timeout is how long an attempt may take. Then its context ends, and it has failed. One that does not return is
	// reported as stuck; it keeps its firing, so that no other begins beside it unless Overlap says so. Default 1 h.
	Timeout time.Duration
	// Workers is how many firings one process carries out at once. Default 8.
	Workers int
	// Run does the job. It is called at least once for each slot that is run; see [Firing.Finish] for once. ctx ends when the
	// attempt has taken Timeout, when another has taken over the firing, and when the runner ends. A panic is an error.
	Run func(ctx context.Context, f Firing) error
}

// job is a Job that was checked, with its defaults.
type job struct {
	Job
	calendar calendar
	policy   retry.Policy
}

func (j Job) check() (job, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("schedule: job %q: "+format, append([]any{j.Name}, args...)...))
	}
	if j.Name == "" || len(j.Name) > maxName || strings.ContainsFunc(j.Name, notInName) {
		fault("Name: is not a name of up to %d letters, digits, dashes, dots and underscores: give it one", maxName)
	}
	made := job{Job: j, policy: retry.Policy{Attempts: j.Attempts, Base: j.RetryBase, Cap: j.RetryCap}}
	if made.Zone == "" {
		made.Zone = "UTC"
	}
	var err error
	if made.calendar, err = calendarFor(j.Cron, made.Zone); err != nil {
		fault("%w", err)
	} else if _, err := made.calendar.of(j.Name, "").next(anyTime); err != nil {
		fault("Cron: %q: never comes: write a day that exists", j.Cron)
	}
	switch made.Missed {
	case "":
		made.Missed = Once
	case Once, Skip, All:
	default:
		fault("Missed: %q: is not known: use Once, Skip or All", j.Missed)
	}
	switch made.Overlap {
	case "":
		made.Overlap = Forbid
	case Forbid, Allow, Replace:
	default:
		fault("Overlap: %q: is not known: use Forbid, Allow or Replace", j.Overlap)
	}
	if made.Missed == All && made.Overlap == Replace {
		fault("Overlap: %q: contradicts Missed %q, as each of the slots would replace the one before: use Once, or Forbid", Replace, All)
	}
	if j.TooLate < 0 {
		fault("TooLate: %v: must not be negative: leave it out for no limit", j.TooLate)
	}
	if j.Timeout < 0 {
		fault("Timeout: %v: must be above 0, or 0 for %v", j.Timeout, defaultTimeout)
	} else if j.Timeout == 0 {
		made.Timeout = defaultTimeout
	}
	if j.Workers < 0 || j.Workers > maxWorkers {
		fault("Workers: %d: must be between 1 and %d, or 0 for %d", j.Workers, maxWorkers, defaultWorkers)
	} else if j.Workers == 0 {
		made.Workers = defaultWorkers
	}
	if err := made.policy.Validate(); err != nil {
		fault("Attempts, RetryBase, RetryCap: %w", err)
	}
	if j.Run == nil {
		fault("Run: is nil: say what the job does")
	}
	return made, errors.Join(faults...)
}

// anyTime is where expressions are tried.
var anyTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
}

func checkTenant(tenant string) error {
	switch {
	case tenant == "":
		return errors.New("a tenant is empty: leave Tenants out for a job without tenants")
	case len(tenant) > maxTenant:
		return fmt.Errorf("the tenant %.50q… has %d bytes: use at most %d", tenant, len(tenant), maxTenant)
	case !utf8.ValidString(tenant) || strings.IndexByte(tenant, 0) >= 0:
		return fmt.Errorf("the tenant %q is not valid UTF-8 without NUL: use text", tenant)
	}
	return nil
}

// calendarFor reads an expression and loads a zone.
func calendarFor(expression, zone string) (calendar, error) {
	c, err := parseCron(expression)
	if err != nil {
		return calendar{}, fmt.Errorf("field Cron: %q: %w", expression, err)
	}
	if zone == "Local" {
		return calendar{}, fmt.Errorf("field Zone: %q: is another on each machine: name one, e.g. Europe/Berlin", zone)
	}
	l, err := time.LoadLocation(zone)
	if err != nil {
		return calendar{}, fmt.Errorf("field Zone: %q: is not known: use a name of the IANA database, e.g. Europe/Berlin: %w", zone, err)
	}
	return calendar{c, l}, nil
}
