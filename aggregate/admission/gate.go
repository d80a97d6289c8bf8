package admission

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Request is what a gate knows of a request.
type Request struct {
	// Class is its priority.
	Class Class
	// Tenant is whose it is: requests of one class are let in tenant by tenant. All that name none share one turn.
	Tenant string
}

// Gate lets requests in while there is room, lets a few wait, and sends the others away. It is safe for concurrent use,
// has no goroutine and needs no closing.
type Gate struct {
	cfg   Config
	limit limiter

	mu        sync.Mutex
	queues    [queues]queue // by rank; while one waits, no place is free
	waiting   int
	running   int
	operators int
	meter     meter
	count     counters
}

type counters struct {
	admitted, cancelled uint64
	shed                Shed
}

// verdict is what was decided about a request. Exactly one of pass, reason and err is set.
type verdict struct {
	pass   *Pass
	reason Reason
	err    error // of the context

	retry        time.Duration // with reason, before jitter
	waited       time.Duration
	queue, limit int
}

// New makes a gate. The error names every fault of the config.
func New(cfg Config) (*Gate, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("admission: New: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Gate{cfg: cfg, limit: newLimiter(cfg)}, nil
}

// Admit returns when the request may be executed, or with an error when it must not be. Call [Pass.Done] when it is done,
// whatever became of it; a pass that is never done takes its place for ever.
//
// The error is an [*OverloadedError], or that of ctx when it has ended, or an [*eventstore.InvalidError] for a class that
// does not exist. A request whose deadline in ctx is nearer than the estimated duration of a request is not let in,
// unless nothing runs; that one measures anew.
func (g *Gate) Admit(ctx context.Context, r Request) (*Pass, error) {
	if !r.Class.valid() {
		return nil, &eventstore.InvalidError{
			Field: "admission Request.Class", Value: strconv.Itoa(int(r.Class)), Reason: "is not known",
			Remedy: "use one of the constants",
		}
	}
	w, v := g.arrive(ctx, r)
	if w != nil {
		v = g.wait(ctx, w)
	}
	return g.tell(r, v)
}

// arrive decides at once, or puts the request into the queue.
func (g *Gate) arrive(ctx context.Context, r Request) (*waiter, verdict) {
	deadline, _ := ctx.Deadline()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if err := ctx.Err(); err != nil {
		g.count.cancelled++
		return nil, g.decided(verdict{err: err})
	}
	if r.Class == Operator {
		g.operators++
		g.count.admitted++
		return nil, g.decided(verdict{pass: &Pass{gate: g, start: now}})
	}
	g.dispatch(now)
	if g.stale(now, deadline) {
		return nil, g.sendAway(now, Stale)
	}
	if g.waiting == 0 {
		if permit, ok := g.limit.take(); ok {
			return nil, g.letIn(now, permit)
		}
	}
	if g.waiting >= g.cfg.Queue {
		if reason := g.makeRoom(now, r); reason != "" {
			return nil, g.sendAway(now, reason)
		}
	}
	w := &waiter{
		class: r.Class, tenant: r.Tenant, since: now, until: now.Add(g.cfg.maxWait(r.Class)), deadline: deadline,
		decided: make(chan struct{}),
	}
	g.queues[r.Class.rank()].push(w)
	g.waiting++
	return w, verdict{}
}

// tell reports a verdict. The observer is the caller's code: if it panics, the place is not lost.
func (g *Gate) tell(r Request, v verdict) (*Pass, error) {
	err := v.err
	if v.reason != "" {
		err = &OverloadedError{Class: r.Class, Reason: v.reason, RetryAfter: jitter(v.retry, g.cfg.Rand())}
	}
	told := false
	defer func() {
		if !told && v.pass != nil {
			v.pass.end(false, false)
		}
	}()
	g.cfg.Observer.ObserveAdmission(eventstore.AdmissionObservation{
		Class: r.Class.String(), Tenant: r.Tenant, Waited: v.waited, Queue: v.queue, Limit: v.limit, Err: err,
	})
	told = true
	return v.pass, err
}
