package commandhttp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
)

// Config of an [API]. Only the Bus is needed.
type Config struct {
	// Bus carries out the commands. With the middleware [bus.Idempotent] an Idempotency-Key means something; with
	// [bus.TellIfRunning] a repeat that comes too early is answered with 409 and does not wait.
	Bus *bus.Bus
	// Gate lets requests in. Default: all are let in at once.
	Gate *admission.Gate
	// Caller says who asks. An error that is [ErrUnauthenticated] is answered with 401, [bus.ErrForbidden] with 403, a
	// [*Problem] as it says; any other is a fault. It must not read the body. Default: nobody in particular.
	Caller func(*http.Request) (Caller, error)
	// Operations takes the commands of callers that do not wait (Prefer: respond-async), and is shown at
	// /operations/{id}. Default: callers wait.
	Operations bus.Operations
	// Prefix stands before /problems and /operations, such as "/v1"; the patterns of endpoints have it themselves.
	// Default: none.
	Prefix string
	// Problems is the registry of the answers of 400 and above. Default: that of NewProblems("").
	Problems *Problems
	// ExplainRefusal makes a problem of a refusal by the domain, before the registry is asked; nil leaves it to the
	// registry. Code and text are all that is known of a refusal that is repeated, and of that of an operation, so that it
	// is asked about these and about a first refusal alike, and all are answered with the same problem. code is the one of
	// [aggregate.Refuses]; of a refusal that is stored under no key it is the Code of the registry's type for the error, and
	// "" when there is none. An Explain of the endpoint is asked before it. Default: the registry says it.
	ExplainRefusal func(code, text string) *Problem
	// Explain is asked about errors that the registry does not know, such as a database that is away; nil means that it
	// does not know either. Default: an error of the network is 503, and what nobody knows is 500.
	Explain func(error) *Problem
	// Tokens says which tokens are of the store. Default: all are taken.
	Tokens Tokens
	// Wait waits for the Consistency-Token of a request, before it is carried out. Default: nothing waits.
	Wait WaitFunc
	// Patience is how long a request waits for its token when it does not say, MaxPatience the longest that it, or one
	// that prefers respond-async, can ask for. Defaults 2 s and 30 s.
	Patience, MaxPatience time.Duration
	// WaitParameter is the name of a parameter of the query that says the same as Prefer: wait, also in units, such as
	// "500ms", and is stronger. Default: there is none.
	WaitParameter string
	// MaxBody is the size of the largest body in bytes. Default 1 MiB.
	MaxBody int64
	// BodyTime is how long a body may take to arrive. Default 10 s.
	BodyTime time.Duration
	// Time is how long a request may be worked on, waiting for tokens aside. Default 10 s.
	Time time.Duration
	// Grace is what is left of that when the caller has gone or the server is ending. Default 700 ms.
	Grace time.Duration
	// Waiting is how many requests may wait for tokens and operations at once. Default 1024.
	Waiting int
	// Streams is how many event streams there may be at once, StreamsEach how many of one scope. Defaults 256 and 16.
	Streams, StreamsEach int
	// Heartbeat is the time between two signs of life on an event stream, WriteTime how long a client may take to
	// accept one piece of it. Defaults 15 s and 5 s.
	Heartbeat, WriteTime time.Duration
	// Logger gets a line for each fault, which is an answer of 500 and above with a cause, such as a command without a
	// handler, and never what was sent. Default: slog.Default(), as a fault that nobody reads of is found by nobody;
	// slog.New(slog.DiscardHandler) is for who wants none.
	Logger *slog.Logger
}

func (c Config) validate() error {
	var faults []error
	if c.Bus == nil {
		faults = append(faults, errors.New("commandhttp: Config.Bus: is nil: pass the bus that has the handlers"))
	}
	if c.Prefix != "" && (c.Prefix[0] != '/' || strings.HasSuffix(c.Prefix, "/") || strings.ContainsAny(c.Prefix, "{} ")) {
		faults = append(faults, fmt.Errorf("commandhttp: Config.Prefix: %q is no path: write it as \"/v1\"", c.Prefix))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Patience", int64(c.Patience)}, {"MaxPatience", int64(c.MaxPatience)}, {"MaxBody", c.MaxBody}, {"BodyTime", int64(c.BodyTime)},
		{"Time", int64(c.Time)}, {"Grace", int64(c.Grace)}, {"Waiting", int64(c.Waiting)}, {"Streams", int64(c.Streams)},
		{"StreamsEach", int64(c.StreamsEach)}, {"Heartbeat", int64(c.Heartbeat)}, {"WriteTime", int64(c.WriteTime)},
	} {
		if f.value < 0 {
			faults = append(faults, fmt.Errorf("commandhttp: Config.%s: must not be negative; leave it 0 for the default", f.name))
		}
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.Problems == nil {
		c.Problems = NewProblems("")
	}
	if c.Caller == nil {
		c.Caller = func(*http.Request) (Caller, error) { return Caller{}, nil }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.MaxPatience = cmp.Or(c.MaxPatience, 30*time.Second)
	c.Patience = min(cmp.Or(c.Patience, 2*time.Second), c.MaxPatience)
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	c.BodyTime = cmp.Or(c.BodyTime, 10*time.Second)
	c.Time = cmp.Or(c.Time, 10*time.Second)
	c.Grace = cmp.Or(c.Grace, 700*time.Millisecond)
	c.Waiting = cmp.Or(c.Waiting, 1024)
	c.Streams, c.StreamsEach = cmp.Or(c.Streams, 256), cmp.Or(c.StreamsEach, 16)
	c.Heartbeat, c.WriteTime = cmp.Or(c.Heartbeat, 15*time.Second), cmp.Or(c.WriteTime, 5*time.Second)
	return c
}
