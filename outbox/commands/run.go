package commands

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second

	// linger is how long a handler whose context has ended may take to notice.
	linger = 200 * time.Millisecond
	// sealPatience bounds one attempt to end a command for good.
	sealPatience = 5 * time.Second
)

// errHung: a handler did not return after its context had ended.
var errHung = errors.New("the handler did not return when its time was over")

// carryOut runs a command until it has come to an end, for as long as limit. The error is that of ctx.
func (d *Dispatcher) carryOut(ctx context.Context, c bus.Command, limit time.Duration) (verdict, error) {
	if limit <= 0 {
		return d.seal(ctx, c, verdict{
			state: bus.OperationFailed, code: CodeTargetHung, reason: "a command before it for the same target hung; it was not carried out, and may be sent again under a new key",
		})
	}
	var last error
	pause := time.Duration(0) // a refusal that a middleware kept back is known as one when it is asked again
	end := time.Now().Add(limit)
	for attempt := 1; ; {
		budget, cancel := context.WithDeadline(ctx, end)
		reply, err := d.call(budget, c)
		cancel()
		if ctx.Err() != nil {
			return verdict{}, context.Cause(ctx)
		}
		if v, ok := final(reply, err); ok {
			if v.state == bus.OperationExpired && !c.PastDeadline(time.Now()) { // before a crash, by giveUp
				v.state, v.code, v.reason, v.ended = bus.OperationFailed, CodeExhausted, "it was given up before", true
			}
			if v.unheard || v.code == CodePanic { // it may have taken effect before, or another attempt of it
				return d.seal(ctx, c, v)
			}
			return v, nil
		}
		last = err
		switch waited, err := d.waitOut(ctx, err); {
		case err != nil:
			return verdict{}, err
		case waited: // nobody's fault: the attempt does not count, and the time begins anew
			end = time.Now().Add(limit)
			continue
		}
		if attempt++; attempt > d.cfg.Attempts || errors.Is(err, errHung) || !time.Now().Before(end) {
			break
		}
		if consumer.Away(last) { // a server that goes down may answer one connection when it has ended another
			pause = max(pause, firstPause)
		}
		if !rest(ctx, pause/2+rand.N(pause/2+1)) {
			return verdict{}, context.Cause(ctx)
		}
		pause = min(max(2*pause, firstPause), lastPause)
	}
	return d.giveUp(ctx, c, last, limit, !time.Now().Before(end))
}

// giveUp ends a command that cannot be carried out.
func (d *Dispatcher) giveUp(ctx context.Context, c bus.Command, cause error, limit time.Duration, late bool) (verdict, error) {
	v := verdict{state: bus.OperationFailed, code: CodeExhausted, reason: cause.Error()}
	if late || errors.Is(cause, errHung) {
		v.code, v.reason = CodeTimeout, fmt.Sprintf("it did not end within %v: %v", limit.Round(time.Millisecond), cause)
	}
	return d.seal(ctx, c, v)
}

// seal ends a command as v says, in a way that whatever of it is still under way takes no effect: it is sent once more, with
// a deadline that has passed. Then either its end is stored under its key, and nothing else can be, or it had succeeded or
// been refused before, and that is what counts.
func (d *Dispatcher) seal(ctx context.Context, c bus.Command, v verdict) (verdict, error) {
	s, err := d.settle(ctx, c)
	if err != nil {
		return verdict{}, err
	}
	found := s.verdict
	switch {
	case s.ok && found.state == bus.OperationExpired && v.code != CodePanic && c.PastDeadline(time.Now()):
		return found, nil // its own deadline had passed meanwhile, and it had not taken effect
	case s.ok && (found.state == bus.OperationDone || found.stored && found.state == bus.OperationRefused):
		return found, nil
	case s.ok && found.code != CodePanic:
		return v, nil
	case s.ok, errors.Is(s.err, errHung): // there is an outcome, which its handler does not bring
		v.reason += "; how it ended is stored under its key"
		return v, nil
	}
	d.log.Warn("a command that failed could not be ended for good: should its handler still be at work, it may yet take effect",
		"type", c.Type, "id", c.ID, "error", s.err)
	return v, nil
}

// settled is what a command came to that was sent with a deadline that has passed.
type settled struct {
	verdict verdict
	ok      bool  // the verdict is one
	stored  bool  // there is an outcome under its key, and it can have no other
	err     error // of the last attempt, if any
}

// settle sends a command with a deadline that has passed, until there is an answer, as often as Config.Attempts allows. The
// error is that of ctx.
func (d *Dispatcher) settle(ctx context.Context, c bus.Command) (settled, error) {
	c.Deadline = time.Unix(0, 0)
	for attempt := 1; ; {
		budget, cancel := context.WithTimeout(ctx, sealPatience)
		reply, err := d.call(budget, c)
		cancel()
		if ctx.Err() != nil {
			return settled{}, context.Cause(ctx)
		}
		s := settled{err: err, stored: reply.Settled || errors.Is(err, errHung)}
		if s.verdict, s.ok = final(reply, err); s.ok && s.verdict.unheard {
			return d.settleUnheard(ctx, c, s.verdict)
		}
		if s.ok || errors.Is(err, errHung) {
			return s, nil
		}
		switch waited, err := d.waitOut(ctx, err); {
		case err != nil:
			return settled{}, err
		case waited:
			continue
		}
		if attempt++; attempt > d.cfg.Attempts {
			return s, nil
		}
		if !rest(ctx, firstPause) {
			return settled{}, context.Cause(ctx)
		}
	}
}

// waitOut returns true when err is nobody's fault, once it may be over: a gate sent the command away, which has been
// accepted long since, or the database is away. A handler that cannot reach something else is not waited for.
func (d *Dispatcher) waitOut(ctx context.Context, err error) (bool, error) {
	var overloaded *admission.OverloadedError
	if errors.As(err, &overloaded) {
		if !rest(ctx, max(overloaded.RetryAfter, firstPause)) {
			return true, context.Cause(ctx)
		}
		return true, nil
	}
	if !consumer.Away(err) || d.ping(ctx) == nil {
		return false, nil
	}
	d.waits(err)
	defer d.waits(nil)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if !rest(ctx, pause/2+rand.N(pause/2+1)) {
			return true, context.Cause(ctx)
		}
		if d.ping(ctx) == nil {
			return true, nil
		}
	}
}

func (d *Dispatcher) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := d.db.Exec(ctx, "SELECT 1")
	return err
}

// call dispatches a command, in a goroutine of its own, so that a handler that ignores its context costs a goroutine and
// no more. How many of those there can be is bounded.
func (d *Dispatcher) call(ctx context.Context, c bus.Command) (bus.Reply, error) {
	return d.callBy(ctx, c, d.dispatch)
}

func (d *Dispatcher) callBy(ctx context.Context, c bus.Command, by func(context.Context, bus.Command) (bus.Reply, error)) (bus.Reply, error) {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return bus.Reply{}, ctx.Err()
	}
	type answer struct {
		reply bus.Reply
		err   error
	}
	done := make(chan answer, 1)
	call := d.calls.begin(c)
	go func() {
		var a answer
		a.reply, a.err = by(ctx, c)
		d.calls.end(call)
		<-d.slots
		done <- a
	}()
	select {
	case a := <-done:
		return a.reply, a.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.reply, a.err
	case <-timer.C:
		d.calls.hangs(call, d.log)
		return bus.Reply{}, errHung
	}
}

// rest returns false when ctx ended first.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
