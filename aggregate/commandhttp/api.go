package commandhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/daybook-go/daybook/internal/panics"
)

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
			a.cfg.Logger.Error("request panicked", "route", r.Pattern, "panic", panics.Describe(v), "stack", panics.Stack())
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
