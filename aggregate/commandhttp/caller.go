package commandhttp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// ErrUnauthenticated is what Config.Caller returns, or wraps, when it cannot tell who asks.
var ErrUnauthenticated = errors.New("commandhttp: caller not known")

// Caller is who asks.
type Caller struct {
	// Tenant shares the server with other tenants, and gets its share of it.
	Tenant string
	// Actor is the person or program.
	Actor string
	// Scope is the one in which keys and operations are the caller's own: nobody else can see or repeat them. At most 200
	// bytes. Default: made of Tenant and Actor.
	Scope string
	// Class is how much the caller's requests matter, unless it is [admission.Normal]: then the endpoint says.
	Class admission.Class
	// Headers go into the metadata of the events, such as those of a trace.
	Headers map[string]string
	// CorrelationID names what the request is a part of. Default: the id of the command.
	CorrelationID string
}

const maxScope = 200

func (c Caller) scope() string {
	if c.Scope != "" || c.Tenant == "" && c.Actor == "" {
		return c.Scope
	}
	scope := url.PathEscape(c.Tenant) + "/" + url.PathEscape(c.Actor)
	if len(scope) > maxScope {
		sum := sha256.Sum256([]byte(scope))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return scope
}

func (c Caller) metadata() eventstore.Metadata {
	return eventstore.Metadata{Tenant: c.Tenant, Actor: c.Actor, CorrelationID: c.CorrelationID, Headers: c.Headers}
}

type callerKey struct{}

// CallerFrom returns who asks, for the functions of an endpoint; nobody outside of a request.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// visit is a request that was let in.
type visit struct {
	api    *API
	r      *http.Request // with the caller in its context
	caller Caller
	class  admission.Class
	pass   *admission.Pass // nil without a gate, and while it waits for something
	// odd: how long the request took says nothing about how long requests take.
	odd bool
}

// enter asks who calls, and waits to be let in. Nothing of the body has been read when it returns.
func (a *API) enter(r *http.Request, class admission.Class, public bool) (*visit, error) {
	v := &visit{api: a, class: class}
	if !public {
		caller, err := a.cfg.Caller(r)
		if err != nil {
			return nil, refusedCaller(err)
		}
		v.caller = caller
		if caller.Class != admission.Normal && class != admission.Operator {
			v.class = caller.Class
		}
	}
	ctx := eventstore.WithMetadata(r.Context(), v.caller.metadata())
	if a.cfg.Gate != nil {
		ctx = bus.Admitted(ctx) // a gate of the bus need not ask again
	}
	v.r = r.WithContext(context.WithValue(ctx, callerKey{}, v.caller))
	return v, v.admit()
}

func refusedCaller(err error) error {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, ErrUnauthenticated):
		return &Problem{Kind: kindCaller, Header: http.Header{"Www-Authenticate": {"Bearer"}}}
	}
	return err
}

// admit waits to be let in.
func (v *visit) admit() error {
	if v.api.cfg.Gate == nil {
		return nil
	}
	pass, err := v.api.cfg.Gate.Admit(v.r.Context(), admission.Request{Class: v.class, Tenant: v.caller.Tenant})
	v.pass = pass
	return err
}

// errOdd says of a request nothing that can be measured.
var errOdd = errors.Join(errors.New("commandhttp: not measured"), context.Canceled)

// leave gives the place back. It may be called more than once.
func (v *visit) leave(err error) {
	if v.pass == nil {
		return
	}
	var p *Problem
	if v.odd || errors.As(err, &p) && p.Err == nil {
		err = errOdd // a request that was not carried out, or was in the hands of its sender
	}
	v.pass.Done(err)
	v.pass = nil
}

// aside does what is only waiting, without a place among those that work, and takes one again. The waiting are counted
// too: nothing here grows with the number of requests.
func (v *visit) aside(wait func(ctx context.Context) error) error {
	v.odd = true
	v.leave(nil)
	v.odd = false
	if err := v.api.apart(v.r.Context(), wait); err != nil {
		return err
	}
	return v.admit()
}

// apart calls wait, which ends with the API, if not too many wait already.
func (a *API) apart(ctx context.Context, wait func(ctx context.Context) error) error {
	select {
	case a.waiting <- struct{}{}:
	default:
		return &Problem{Kind: kindOverloaded, Detail: "too many requests are waiting", RetryAfter: second}
	}
	defer func() { <-a.waiting }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ending, cancel)()
	return wait(ctx)
}

// checkPath refuses values of the path that no stream can be called by.
func checkPath(r *http.Request) error {
	const limit = 400
	for rest := r.Pattern; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			return nil
		}
		name, after, _ := strings.Cut(after, "}")
		rest = after
		name = strings.TrimSuffix(name, "...")
		switch value := r.PathValue(name); {
		case len(value) > limit:
			return &Problem{Kind: kindSyntax, Field: name, Value: Shorten(value), Detail: "it is longer than any name", Remedy: "shorten it"}
		case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return &Problem{
				Kind: kindSyntax, Field: name, Value: Shorten(value), Detail: "it is not text",
				Remedy: "encode the name in UTF-8, and that for the path",
			}
		}
	}
}

// forbidden reports that the caller may not, whoever found out.
func forbidden(err error) bool { return errors.Is(err, bus.ErrForbidden) }
