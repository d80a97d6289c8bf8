package admission

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Pass is the place of one request that was let in. It is safe for concurrent use.
type Pass struct {
	gate   *Gate
	permit permit // nil for an operator
	start  time.Time
	done   atomic.Bool
}

// Done frees the place, whatever became of the request; err says what did. How long it took is a measurement unless
// Config.Measures says otherwise. Only the first call counts. On a nil Pass it does nothing, so that a defer may come
// before the error is looked at.
//
// Nothing else frees the place, and nobody is warned: it is lost until the process ends if Done is never called. Call it
// in a defer.
func (p *Pass) Done(err error) {
	if p == nil {
		return
	}
	measured := false
	defer func() { p.end(measured, errors.Is(err, context.DeadlineExceeded)) }() // also if Measures panics
	measured = p.permit != nil && p.gate.cfg.Measures(err)
}

// end frees the place. partial says that the request was cut off and would have taken longer.
func (p *Pass) end(measured, partial bool) {
	if !p.done.CompareAndSwap(false, true) {
		return
	}
	g := p.gate
	if p.permit == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.operators--
		return
	}
	now := time.Now()
	took := now.Sub(p.start)
	measured = measured && took > 0 // the limiter divides by it
	// Outside of the lock: this is where the limiter calculates.
	if measured {
		p.permit.Record()
	} else {
		p.permit.Drop()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.meter.ended(now, took, measured, partial, g.waiting > 0)
	g.dispatch(time.Now())
}
