package commandhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
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
	// Logger gets a line for each fault, which is an answer of 500 and above with a cause, and never what was sent.
	// Default: none.
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
		c.Logger = slog.New(slog.DiscardHandler)
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

// API answers requests. It is an [http.Handler] and safe for concurrent use; add all endpoints before it serves.
type API struct {
	cfg     Config
	mux     *http.ServeMux
	waiting chan struct{} // a place for each request that waits
	streams streamCount
	ending  context.Context // ends with Close
	end     context.CancelFunc
}

// New returns an API that answers GET /problems, GET /problems/{name} and, with Operations, GET /operations/{id}. The
// error names every fault of the config.
func New(cfg Config) (*API, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	a := &API{cfg: cfg, mux: http.NewServeMux(), waiting: make(chan struct{}, cfg.Waiting)}
	a.ending, a.end = context.WithCancel(context.Background())
	a.streams.most, a.streams.each = cfg.Streams, cfg.StreamsEach
	a.handle("GET "+cfg.Prefix+"/problems", cfg.Problems.list)
	a.handle("GET "+cfg.Prefix+"/problems/{name}", cfg.Problems.one)
	if cfg.Operations != nil {
		a.handle("GET "+a.operationPath("{id}"), a.operation)
	}
	return a, nil
}

// Close ends event streams and long waits, so that a server that is shutting down need not wait for them:
//
//	server.RegisterOnShutdown(api.Close)
//
// Commands in hand are done to their end. It may be called more than once.
func (a *API) Close() { a.end() }

// Problems returns the registry.
func (a *API) Problems() *Problems { return a.cfg.Problems }

// handler answers a request, or returns why not: a [*Problem], or an error that [API.problemOf] makes one of.
type handler func(http.ResponseWriter, *http.Request) error

// handle adds an endpoint. Like [http.ServeMux.Handle] it panics on a pattern that is bad or in conflict with another.
func (a *API) handle(pattern string, h handler) { a.mux.Handle(pattern, a.answer(h)) }

// ServeHTTP answers a request. A panic ends no more than its own request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := &tracked{ResponseWriter: w}
	t.Header().Set("Cache-Control", "no-store")
	t.Header().Set("X-Content-Type-Options", "nosniff")
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			panic(v) // which the server knows
		default: // its value may hold what was sent
			a.cfg.Logger.Error("request panicked", "route", r.Pattern, "stack", string(debug.Stack()))
			if t.wrote {
				panic(http.ErrAbortHandler) // so that nobody takes half an answer for a whole one
			}
			a.write(t, &Problem{Kind: kindFault})
		}
	}()
	if _, pattern := a.mux.Handler(r); pattern == "" {
		a.answer(a.elsewhere)(t, r)
		return
	}
	a.mux.ServeHTTP(t, r)
}

// answer writes the problem of a handler that could not answer, and logs what is a fault.
func (a *API) answer(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		p := a.cfg.Problems.complete(a.problemOf(err))
		gone := errors.Is(p.Err, context.Canceled) && r.Context().Err() != nil
		if p.Err != nil && p.Status >= http.StatusInternalServerError && !gone {
			a.cfg.Logger.Error("request failed", "route", r.Pattern, "status", p.Status, "problem", p.Kind, "error", p.Err.Error())
		}
		if t, ok := w.(*tracked); ok && t.wrote {
			panic(http.ErrAbortHandler)
		}
		a.write(w, p)
	}
}

// elsewhere answers what no endpoint is for: 405 where there are other methods, else 404.
func (a *API) elsewhere(w http.ResponseWriter, r *http.Request) error {
	probe := probe{header: make(http.Header)}
	h, _ := a.mux.Handler(r)
	h.ServeHTTP(&probe, r)
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		return &Problem{
			Kind: kindMethod, Field: "method", Value: Shorten(r.Method), Remedy: "use " + allow,
			Header: http.Header{"Allow": {allow}},
		}
	}
	return &Problem{Kind: kindNotFound}
}

// probe keeps what the mux would answer.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(status int)      { p.status = status }

// tracked knows whether an answer has begun.
type tracked struct {
	http.ResponseWriter
	wrote bool
}

// Write passes on.
func (t *tracked) Write(b []byte) (int, error) {
	t.wrote = true
	return t.ResponseWriter.Write(b)
}

// WriteHeader passes on.
func (t *tracked) WriteHeader(status int) {
	t.wrote = t.wrote || status >= http.StatusOK
	t.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (t *tracked) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// working is the context for what shall be done to its end although nobody may wait for it any more: whether a command
// was carried out should not be a matter of chance.
func (a *API) working(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Time)
	stop := context.AfterFunc(ctx, func() {
		grace := time.AfterFunc(a.cfg.Grace, cancel)
		context.AfterFunc(work, func() { grace.Stop() })
	})
	return work, func() {
		stop()
		cancel()
	}
}

// write answers with a problem that is complete, or one that names its kind.
func (a *API) write(w http.ResponseWriter, p *Problem) {
	p = a.cfg.Problems.complete(p)
	body, err := json.Marshal(p)
	if err != nil { // an extension that JSON does not know
		a.cfg.Logger.Error("problem not written", "problem", p.Kind, "error", err.Error())
		p = a.cfg.Problems.complete(&Problem{Kind: kindFault})
		body, _ = json.Marshal(p) // texts and numbers only
	}
	h := w.Header()
	for name, values := range p.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	h.Set("Content-Type", "application/problem+json")
	retryAfter(h, p.RetryAfter)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // whoever asked has gone
}
