package commandhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/daybook-go/daybook/aggregate/bus"
)

// streamCount bounds event streams, in all and for each scope.
type streamCount struct {
	mu   sync.Mutex
	most int
	each int
	all  int
	of   map[string]int // only those that have one
}

func (c *streamCount) take(scope string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.of[scope] >= c.each {
		return false
	}
	if c.of == nil {
		c.of = make(map[string]int)
	}
	c.all++
	c.of[scope]++
	return true
}

func (c *streamCount) give(scope string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[scope]--; c.of[scope] == 0 {
		delete(c.of, scope)
	}
}

// stream sends each change of an operation as a server-sent event until it has ended.
func (a *API) stream(w http.ResponseWriter, v *visit, op bus.Operation) error {
	seen, err := strconv.ParseInt(strings.TrimSpace(v.r.Header.Get("Last-Event-ID")), 10, 64)
	if err != nil {
		seen = 0 // an id that is not ours: from here on
	}
	if op.Finished() && seen >= op.Revision {
		w.WriteHeader(http.StatusNoContent) // by which a browser knows that it need not come again
		return nil
	}
	scope := v.caller.scope()
	if !a.streams.take(scope) {
		return &Problem{Kind: kindWatchers, RetryAfter: 5 * second}
	}
	defer a.streams.give(scope)
	ctx, cancel := context.WithCancel(v.r.Context())
	defer cancel()
	defer context.AfterFunc(a.ending, cancel)()

	h := w.Header()
	h.Set("Content-Type", streamType)
	h.Set("X-Accel-Buffering", "no") // for proxies that would collect it
	if v.r.ProtoMajor == 1 {
		h.Set("Connection", "close") // its deadlines would be those of the next request
	}
	out := eventWriter{w: w, control: http.NewResponseController(w), within: a.cfg.WriteTime}
	w.WriteHeader(http.StatusOK)
	if v.r.Method == http.MethodHead || out.write("retry: 2000\n\n") != nil {
		return nil
	}
	changes, failed := a.changes(ctx, cancel, op)
	heart := time.NewTicker(a.cfg.Heartbeat)
	defer heart.Stop()
	defer func() { // nothing is left behind
		cancel()
		for range changes {
		}
	}()
	for {
		select {
		case <-heart.C:
			if out.write(": still here\n\n") != nil {
				return nil
			}
		case next, more := <-changes:
			if !more {
				if err := failed(); err != nil && ctx.Err() == nil {
					a.cfg.Logger.Error("event stream ended", "route", v.r.Pattern, "error", err.Error())
				}
				return nil // whoever listens comes again
			}
			if next.Revision <= seen {
				continue
			}
			seen = next.Revision
			if out.event(seen, string(next.State), a.view(next)) != nil || next.Finished() {
				return nil
			}
		}
	}
}

// changes watches an operation in a goroutine of its own, which ends with ctx and has ended when the channel is closed;
// then failed returns why. A panic ends the stream, not the program.
func (a *API) changes(ctx context.Context, cancel func(), op bus.Operation) (changes <-chan bus.Operation, failed func() error) {
	out := make(chan bus.Operation)
	var fault error
	go func() {
		defer close(out)
		defer func() {
			if recover() != nil {
				fault = errors.New("commandhttp: watching an operation panicked")
			}
		}()
		for next, err := range a.cfg.Operations.Watch(ctx, op.Scope, op.ID) {
			if err != nil {
				fault = err
				return
			}
			select {
			case out <- next:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, func() error { return fault }
}

// eventWriter writes to a client that may have gone, or take nothing any more.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
}

func (e eventWriter) event(id int64, name string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return e.write("id: " + strconv.FormatInt(id, 10) + "\nevent: " + name + "\ndata: " + string(data) + "\n\n")
}

// write sends a piece at once. Not every ResponseWriter knows deadlines. That of a piece is over with the piece: HTTP/2 would
// end the stream at it, also when nothing is being written.
func (e eventWriter) write(text string) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(e.within))
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	if err := e.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_ = e.control.SetWriteDeadline(time.Time{})
	return nil
}
