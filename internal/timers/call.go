package timers

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/panics"
)

const (
	// maxHung is how many calls that ignore the ends of their contexts a process bears, beyond Config.Workers.
	maxHung = 16
	// hangs is how long after its context a call may end before it hangs.
	hangs = time.Second
)

// call is one call of the handler.
type call struct {
	in        *run
	entries   []*entry
	began     time.Time
	hung      bool
	abandoned bool // its timers were given back: how it ends does not matter
}

func (c *call) give() []Timer {
	list := make([]Timer, len(c.entries))
	for i, e := range c.entries {
		list[i] = e.Timer
	}
	return list
}

func (c *call) names() []string {
	list := make([]string, len(c.entries))
	for i, e := range c.entries {
		list[i] = e.Name
	}
	return list
}

// call begins a call. The caller has the lock.
func (r *Runner) call(group []*entry) {
	c := &call{in: r.run, entries: group, began: time.Now()}
	r.calls[c] = struct{}{}
	ctx, cancel := context.WithTimeout(c.in.work, r.cfg.Timeout)
	late := time.AfterFunc(r.cfg.Timeout+min(hangs, r.cfg.Timeout), func() { r.hangs(c) })
	go func() {
		err := r.safely(ctx, c.give())
		late.Stop()
		cancel()
		if err == nil {
			r.cfg.Probe(ProbeHandled)
		}
		r.ended(c, err)
	}()
}

// safely makes an error of a panic.
func (r *Runner) safely(ctx context.Context, list []Timer) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("timers: the handler panicked: %s", panics.Describe(value))
			r.log.Error("a handler of timers panicked", "panic", panics.Describe(value), "stack", panics.Stack())
		}
	}()
	return r.handle(ctx, list)
}

// hangs notes that a call ignores the end of its context.
func (r *Runner) hangs(c *call) {
	r.mu.Lock()
	_, atWork := r.calls[c]
	if !atWork || c.abandoned {
		r.mu.Unlock()
		return
	}
	several := len(c.entries) > 1
	c.hung = true
	if several { // one of them is to blame: each is handled alone from now on
		c.abandoned = true
		r.drop(len(c.entries))
	}
	tell(r.moved)
	r.mu.Unlock()
	r.log.Error("a handler of timers hangs: it ignores the end of its context", "timers", shortly(c.names()), "since", c.began)
	if several {
		r.giveUp(c, errHung, 0)
	}
}

var errHung = errors.New("the handler did not return")

// ended notes how a call ended, and decides what becomes of its timers.
func (r *Runner) ended(c *call, err error) {
	failed := false
	r.mu.Lock()
	now := r.now()
	switch {
	case c.abandoned: // they are not this call's any more
	case err == nil:
		r.status.Fired += int64(len(c.entries))
		r.drop(len(c.entries))
	case r.stopping:
		r.hold(c.entries...) // to be given back
	case away(err):
		if r.lines.allows(time.Now()) {
			r.log.Warn("timers that are due wait for the database", "timers", shortly(c.names()), "error", err.Error())
		}
		for _, e := range c.entries {
			pauses := backoff{e.pause}
			e.fire = now.Add(pauses.next())
			e.pause = pauses.step
		}
		r.hold(c.entries...)
	case len(c.entries) > 1:
		for _, e := range c.entries {
			e.alone = true
		}
		r.hold(c.entries...)
	case Lost(err):
		r.status.Lost++
		r.drop(1)
	default:
		r.status.Failed++
		failed = true
	}
	r.mu.Unlock()
	if failed {
		attempts := c.entries[0].Attempts + 1
		if r.lines.allows(time.Now()) {
			r.log.Warn("a timer failed", "timer", c.entries[0].Name, "attempts", attempts, "error", err.Error())
		}
		r.giveUp(c, err, r.cfg.Retry.Delay(attempts, nil))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if failed && !c.abandoned {
		r.drop(1)
	}
	delete(r.calls, c)
	tell(r.moved)
	if len(r.calls) == 0 {
		tell(r.quiet)
	}
}

// hold puts entries back into the heap.
func (r *Runner) hold(entries ...*entry) {
	for _, e := range entries {
		heap.Push(&r.held, e)
	}
}

// giveUp gives timers back with one attempt more. If that fails they come again when their leases pass.
func (r *Runner) giveUp(c *call, cause error, after time.Duration) {
	failures := make([]Failure, len(c.entries))
	for i, e := range c.entries {
		failures[i] = Failure{Timer: e.Timer, After: after, Err: cause}
	}
	ctx, cancel := context.WithTimeout(c.in.work, r.cfg.Lease/3)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(indexesSQL)
	Retry(b, r.cfg.Schema, r.param(), failures)
	if err := c.in.db.SendBatch(ctx, b).Close(); err != nil {
		r.away(c.in, err)
		return
	}
	if after < r.cfg.Ahead {
		r.Wake()
	}
}

// away reports whether err says that a database cannot be reached, is not up or is busy: what waiting mends, and no timer
// is to blame for.
func away(err error) bool {
	if errors.Is(err, eventstore.ErrBusy) || errors.Is(err, eventstore.ErrUnconfirmed) { // so says a handler that knows better
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "40001", "40P01", "55P03", "25006": // serialization failure, deadlock, lock timeout, read-only
			return true
		}
		for _, class := range [...]string{"08", "53", "57P0", "58"} {
			if strings.HasPrefix(pg.Code, class) {
				return true
			}
		}
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false // the call's own time
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
