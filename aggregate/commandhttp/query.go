package commandhttp

import (
	"context"
	"net/http"
	"strconv"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/eventstore"
)

// Read is what can be read under an address. T is what is loaded. Only Load is needed. Its functions are called from many
// goroutines at once, and their errors are answered as those of an [Endpoint] are.
type Read[T any] struct {
	// Class is how much the requests matter when not all can be served.
	Class admission.Class
	// Load loads what is asked for. Its context goes on for a moment when the caller has gone, and has a bound of its own.
	// An [eventstore.ErrStreamNotFound] is answered with 404.
	Load func(ctx context.Context, r *http.Request) (T, error)
	// Version is the version of the stream that was loaded, which makes the ETag that writes take as If-Match. A version
	// of 0 is answered with 404. Default: the ETag is made of the answer's bytes, and is good for If-None-Match only.
	Version func(T) eventstore.Version
	// Render makes of it what is shown as JSON. Default: as it is.
	Render func(T) any
	// Stale makes of it what is shown to a lenient caller when it is older than the caller's token. Default: Render; the
	// headers say that it is older.
	Stale func(T, Lag) any
	// Wait waits for the token of the request. Default: Config.Wait. Loads from the log need no wait: [NoWait].
	Wait WaitFunc
}

// NoWait is the Wait of what always shows everything, such as an aggregate that is loaded from its events.
func NoWait(context.Context, eventstore.Token) error { return nil }

// Query adds an endpoint that reads, under a pattern of [http.ServeMux] with the method GET. It panics when Load is missing,
// and on a pattern that is bad or in conflict with another; it runs while a program is set up.
func Query[T any](a *API, pattern string, q Read[T]) {
	if q.Load == nil {
		panic("commandhttp: " + pattern + ": Read.Load is nil: say what to load")
	}
	if q.Render == nil {
		q.Render = func(found T) any { return found }
	}
	if q.Wait == nil {
		q.Wait = a.cfg.Wait
	}
	a.handle(pattern, func(w http.ResponseWriter, r *http.Request) (err error) {
		v, err := a.enter(r, q.Class, false)
		if err != nil {
			return err
		}
		defer func() { v.leave(err) }()
		return q.serve(v, w)
	})
}

func (q Read[T]) serve(v *visit, w http.ResponseWriter) error {
	a, r := v.api, v.r
	match, err := tagsOf(r.Header, "If-Match")
	if err != nil {
		return err
	}
	none, err := tagsOf(r.Header, "If-None-Match")
	if err != nil {
		return err
	}
	f, err := a.freshness(r, preferencesOf(r.Header))
	if err != nil {
		return err
	}
	if err := checkPath(r); err != nil {
		return err
	}
	lag, err := q.fresh(v, w, f)
	if err != nil {
		return err
	}
	ctx, cancel := a.working(r.Context())
	defer cancel()
	found, err := q.Load(ctx, r)
	if err != nil {
		return err
	}
	tag := ""
	if q.Version != nil {
		if tag = ETag(q.Version(found)); tag == "" {
			return &Problem{Kind: kindNotFound}
		}
	}
	var body any
	if lag != nil && q.Stale != nil {
		body = q.Stale(found, *lag)
	} else {
		body = q.Render(found)
	}
	text, err := encode(body)
	switch {
	case err != nil:
		return err
	case lag != nil:
		tag = "" // it is about to change
	case tag == "":
		tag = contentETag(text)
	}
	return conditional(w, match, none, tag, func() error {
		v.leave(nil) // how long the caller takes to read is the caller's
		writeBody(w, http.StatusOK, text)
		return nil
	})
}

// fresh waits for the token of the request, and returns how much is missing if the caller takes it all the same.
func (q Read[T]) fresh(v *visit, w http.ResponseWriter, f fresh) (lag *Lag, err error) {
	if q.Wait == nil || f.token.IsZero() {
		return nil, nil
	}
	var done applied
	err = v.aside(func(ctx context.Context) (err error) {
		lag, err = v.api.until(ctx, f, q.Wait, &done)
		return err
	})
	done.write(w.Header())
	if lag != nil && lag.Behind >= 0 {
		w.Header().Set(LagHeader, strconv.FormatInt(lag.Behind, 10))
	}
	return lag, err
}

// Plain is an endpoint that answers by itself: health checks, files, whatever is neither a command nor a read.
type Plain struct {
	// Class is how much the requests matter; [admission.Operator] is never sent away.
	Class admission.Class
	// Public: Config.Caller is not asked.
	Public bool
	// Serve answers the request, or returns why not before it has written anything; see [Endpoint]. To flush, and for
	// deadlines, it uses an [http.ResponseController].
	Serve func(w http.ResponseWriter, r *http.Request) error
}

// Handle adds an endpoint that answers by itself. It panics as [Query] does.
func Handle(a *API, pattern string, p Plain) {
	if p.Serve == nil {
		panic("commandhttp: " + pattern + ": Plain.Serve is nil: say how to answer")
	}
	a.handle(pattern, func(w http.ResponseWriter, r *http.Request) (err error) {
		v, err := a.enter(r, p.Class, p.Public)
		if err != nil {
			return err
		}
		defer func() { v.leave(err) }()
		return p.Serve(w, v.r)
	})
}

// WriteJSON answers with a body, or returns an error before anything is written. It is for the functions of a [Plain].
func WriteJSON(w http.ResponseWriter, status int, body any) error { return writeJSON(w, status, body) }
