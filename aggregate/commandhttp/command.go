package commandhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// Precondition says what an endpoint does with If-Match and If-None-Match.
type Precondition int

const (
	// Unversioned: what the endpoint changes has no version of its own, such as when the command changes several streams.
	// A request with a precondition is refused with 412, since it cannot be heeded.
	Unversioned Precondition = iota
	// Optional: a precondition is heeded. The handler must load what it changes with Repository.Handle, or look at the
	// Expected of [bus.CommandFrom] itself, and return an [*aggregate.VersionError]: Transact does not.
	Optional
	// Required is Optional, and a request without one is refused with 428.
	Required
)

// KeyRule says whether requests need an Idempotency-Key.
type KeyRule int

const (
	// KeyRequired: a request without a key is refused with 400.
	KeyRequired KeyRule = iota
	// KeyOptional: a request without a key is carried out each time it comes.
	KeyOptional
)

// Endpoint is a command under an address. C is the Go type of the command, which the bus must have a handler for. The
// zero value reads C from JSON and answers with 200 and what the handler returned, or with 204 when that is nothing.
//
// Its functions are called from many goroutines at once. Whatever error they return is answered as that of a command; a
// [*Problem] as it says.
type Endpoint[C any] struct {
	// Class is how much the requests matter when not all can be served.
	Class admission.Class
	// Key says whether they need an Idempotency-Key, IfMatch what happens to preconditions.
	Key     KeyRule
	IfMatch Precondition
	// NoBody: the command has nothing but what Fill says, and a request with a body is refused.
	NoBody bool
	// Decode reads the command from a body of JSON. It is called only when the body is UTF-8. Default: [DecodeJSON].
	Decode func(body []byte) (C, error)
	// Fill adds to the command what the body does not have, such as r.PathValue("id"). It must not read the body. What it
	// sets is a part of the command like any other: stored with it, and compared when a key comes again. The tag
	// `json:"-"` keeps a field from being set by the body; [bus.TypeOf] refuses it together with [bus.EncodedAs] for JSON,
	// which would lose the field.
	Fill func(r *http.Request, c *C) error
	// Status is that of a request that was carried out. Default: 200, or 204 when there is nothing to show.
	Status int
	// Location is where to find what was made; "" is nowhere. It must say the same of a repeat.
	Location func(r *http.Request, c C, reply bus.Reply) string
	// Render makes of the reply what is shown as JSON; nil is nothing. It must say the same of a repeat. Default:
	// Reply.Result.
	Render func(reply bus.Reply) any
	// Result makes of the stored result of an operation what the handler returned, for Render. Default: a result in JSON
	// stays as it is, as a [json.RawMessage], and any other is left out.
	Result func(contentType string, data []byte) (any, error)
	// Explain makes a problem of an error, before the registry is asked; nil leaves it to the registry. Of a repeated
	// refusal it sees an [*aggregate.RefusedError], and it is not asked about operations: what a refusal says everywhere
	// is up to Config.ExplainRefusal.
	Explain func(err error, c C) *Problem
	// Within is how long a command of a caller who does not wait may take to begin. Default: for ever.
	Within time.Duration
}

// Command adds an endpoint for a command, under a pattern of [http.ServeMux] with a method. It panics on a pattern that
// is bad or in conflict with another, and runs while a program is set up.
func Command[C any](a *API, pattern string, e Endpoint[C]) {
	if e.Decode == nil {
		e.Decode = DecodeJSON[C]
	}
	if e.Render == nil {
		e.Render = func(reply bus.Reply) any { return reply.Result }
	}
	a.handle(pattern, func(w http.ResponseWriter, r *http.Request) (err error) {
		v, err := a.enter(r, e.Class, false)
		if err != nil {
			return err
		}
		defer func() { v.leave(err) }()
		return e.serve(v, w)
	})
}

// asked is what the headers of a request say.
type asked struct {
	key    string
	claims claims
	prefer preferences
	fresh  fresh
	done   applied
}

func (e Endpoint[C]) headers(v *visit) (q asked, err error) {
	if q.key, err = keyOf(v.r.Header); err != nil {
		return q, err
	}
	if q.key == "" && e.Key == KeyRequired {
		return q, &Problem{Kind: kindKeyMissing, Field: KeyHeader}
	}
	if q.claims, err = claimsOf(v.r.Header, e.IfMatch); err != nil {
		return q, err
	}
	q.prefer = preferencesOf(v.r.Header)
	q.prefer.lenient = false // an older state is no ground to decide on
	if q.fresh, err = v.api.freshness(v.r, q.prefer); err != nil {
		return q, err
	}
	return q, checkPath(v.r)
}

func (e Endpoint[C]) serve(v *visit, w http.ResponseWriter) error {
	q, err := e.headers(v)
	if err != nil {
		return err
	}
	if wait := v.api.cfg.Wait; wait != nil && !q.fresh.token.IsZero() {
		var none applied
		if err := v.aside(func(ctx context.Context) error {
			_, err := v.api.until(ctx, q.fresh, wait, &none)
			return err
		}); err != nil {
			return err
		}
	}
	c, err := e.command(v, w)
	if err != nil {
		return err
	}
	opts := []bus.SendOption{bus.InScope(v.caller.scope()), bus.WithClass(v.class)}
	if q.key != "" {
		opts = append(opts, bus.WithKey(q.key))
	}
	// The claims of a list are tried one by one, which nobody does for a caller who has gone.
	if q.prefer.respondAsync && v.api.cfg.Operations != nil && len(q.claims) < 2 {
		return e.apart(v, w, q, c, opts)
	}
	ctx, cancel := v.api.working(v.r.Context())
	defer cancel()
	reply, err := v.send(ctx, c, opts, q.claims)
	if err != nil {
		return e.refused(w, reply, err, c)
	}
	return e.show(v, w, c, reply)
}

// command reads the command. The body is the last of the request that is looked at.
func (e Endpoint[C]) command(v *visit, w http.ResponseWriter) (c C, err error) {
	if e.NoBody {
		err = v.noBody(w)
	} else {
		var body []byte
		if body, err = v.readBody(w); err == nil {
			c, err = e.Decode(body)
		}
	}
	if err == nil && e.Fill != nil {
		err = e.Fill(v.r, &c)
	}
	return c, err
}

// send has a command carried out, under the claim that is true if there are several.
func (v *visit) send(ctx context.Context, c any, opts []bus.SendOption, claims claims) (reply bus.Reply, err error) {
	if len(claims) == 0 {
		return v.api.cfg.Bus.Send(ctx, c, opts...)
	}
	for i := range claims { // as often as there are claims, so that a stream that moves on ends it too
		reply, err = v.api.cfg.Bus.Send(ctx, c, append(opts[:len(opts):len(opts)], bus.IfVersion(claims[i]))...)
		var other *aggregate.VersionError
		if !errors.As(err, &other) {
			return reply, err
		}
		next := claims.of(other.Have)
		if next <= i {
			return reply, err
		}
		claims[i+1], claims[next] = claims[next], claims[i+1]
	}
	return reply, err
}

// of returns where a version is claimed, or -1.
func (c claims) of(v eventstore.Version) int {
	for i, claim := range c {
		if exact, ok := claim.Exact(); ok && exact == v {
			return i
		}
	}
	return -1
}

// refused is the error of a command that was not carried out. That of a repeat is marked.
func (e Endpoint[C]) refused(w http.ResponseWriter, reply bus.Reply, err error, c C) error {
	if reply.Repeated || errors.Is(err, aggregate.ErrRefused) || errors.Is(err, aggregate.ErrExpired) {
		w.Header().Set(ReplayedHeader, "true")
	}
	if e.Explain != nil {
		if p := e.Explain(err, c); p != nil {
			return p
		}
	}
	if reply.Stored || bus.StateOf(reply, err) == bus.OperationRefused && !errors.Is(err, eventstore.ErrInvalid) {
		return refusal{err, reply.Code}
	}
	return err
}

// show answers with the reply to a command that was carried out.
func (e Endpoint[C]) show(v *visit, w http.ResponseWriter, c C, reply bus.Reply) error {
	var text []byte
	if body := e.Render(reply); body != nil {
		var err error
		if text, err = encode(body); err != nil {
			return err
		}
	}
	status := e.Status
	if status == 0 && text == nil {
		status = http.StatusNoContent
	}
	h := w.Header()
	if e.Location != nil {
		if location := e.Location(v.r, c, reply); location != "" {
			h.Set("Location", location)
		}
	}
	if tag := ETag(reply.Version); tag != "" && e.IfMatch != Unversioned {
		h.Set("ETag", tag)
	}
	if !reply.Token.IsZero() {
		h.Set(TokenHeader, reply.Token.String())
	}
	if reply.Repeated {
		h.Set(ReplayedHeader, "true")
	}
	v.leave(nil) // how long the caller takes to read is the caller's
	writeBody(w, cmp.Or(status, http.StatusOK), text)
	return nil
}
