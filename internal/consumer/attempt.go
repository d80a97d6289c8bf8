package consumer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	// linger is how long a handler whose context has ended may take to notice. It is longer than what an [Applier] allows
	// that bounds calls of its own, and short enough for a shutdown.
	linger = 400 * time.Millisecond
	// cutPatience bounds the request to the server to end what a handler that is left is doing there.
	cutPatience = 250 * time.Millisecond
)

// session is a connection on which handlers work, in a goroutine of their own. Only one goroutine at a time uses conn; the
// pool's part of it is only touched under the lock of the call.
type session struct {
	pooled *pgxpool.Conn
	conn   *pgx.Conn
	gone   bool // it is the handler's that nobody waits for any more
}

// release gives the connection back, unless it is gone.
func (s *session) release() { s.pooled.Release() }

func (t *Tenure) acquire(ctx context.Context) (*session, error) {
	pooled, err := t.db.Acquire(ctx)
	if err != nil {
		return nil, t.unavailable(err)
	}
	return &session{pooled: pooled, conn: pooled.Conn()}, nil
}

// cut takes the connection from whoever uses it: out of the pool, and its network connection closed, so that nothing that is
// sent on it arrives any more. The server rolls back.
func (s *session) cut() {
	s.gone = true
	s.pooled.Hijack()
	server := s.conn.PgConn()
	wire := server.Conn()
	if tls, ok := wire.(interface{ NetConn() net.Conn }); ok { // whose Close may wait
		wire = tls.NetConn()
	}
	_ = wire.Close()
	// A statement that is running would hold its locks until it has something to say.
	ctx, cancel := context.WithTimeout(context.Background(), cutPatience)
	defer cancel()
	_ = server.CancelRequest(ctx) // looks at nothing that changes
}

// made is what has come of an attempt that is not committed.
type made struct {
	s    *session // nil when there was none yet
	plan Plan
	tx   pgx.Tx
	last *pgx.Batch
	err  error
	user bool // err is of the Applier, and not of the connection
	late bool // it failed, and its time was over
}

// errGone: a handler has called runtime.Goexit, as FailNow of a test does.
var errGone = errors.New("handler has ended its goroutine")

// stillRunsError is of a handler that ignores its context.
type stillRunsError struct{ limit time.Duration }

func (e *stillRunsError) Error() string {
	return fmt.Sprintf("handler still runs: it ignores the end of its context, which came after %v (Config.Timeout)", e.limit)
}

// attempt calls f, in a goroutine of its own, with a context that ends after Config.Timeout, and returns what it has made.
// When f does not return then, it is left: it takes its connection with it, and err says what that means. f calls
// [call.has] once it has a connection. Without a time-out f is called here.
func (t *Tenure) attempt(ctx context.Context, s *session, events []eventstore.RecordedEvent, f func(context.Context, *call) made) (m made, err error) {
	c := &call{w: t.w, events: events, s: s}
	limit := t.w.cfg.Timeout
	if limit == 0 {
		return f(ctx, c), nil
	}
	c.began = time.Now()
	budget, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan made, 1)
	go func() {
		m := made{s: s, err: errGone, user: true}
		defer func() {
			if m.s == nil {
				m.s = c.s // when the goroutine was ended
			}
			if c.end() {
				done <- m
			}
		}()
		m = f(budget, c)
	}()
	select {
	case m := <-done:
		return t.inTime(m, budget, len(events)), nil
	case <-budget.Done():
	}
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case m := <-done:
		return t.inTime(m, budget, len(events)), nil
	case <-timer.C:
	}
	calls := t.w.cfg.calls
	n, left := calls.leave(c)
	if !left { // it has just returned
		return t.inTime(<-done, budget, len(events)), nil
	}
	t.w.log.Warn("a handler ignores the end of its context and still runs; what it does takes no effect any more",
		"type", events[0].Type, "position", events[0].Position.String(), "events", len(events), "since", c.began)
	switch {
	case t.work.Err() != nil:
		return m, context.Cause(t.work)
	case n > calls.most:
		return m, &stopError{fmt.Errorf("consumer: %s cannot go on: %s; a process bears %d: let them watch ctx, and start the process again",
			t.w.spec.Ref, calls.names(), calls.most)}
	}
	t.fewer(len(events))
	return m, t.late(&stillRunsError{limit}, len(events))
}

// inTime notes whether an attempt has failed because its time was over.
func (t *Tenure) inTime(m made, budget context.Context, n int) made {
	if m.late = m.err != nil && budget.Err() != nil; m.late {
		t.fewer(n)
	}
	return m
}

// fewer lets the next transactions have half as many events as one that took too long.
func (t *Tenure) fewer(n int) { t.w.most = max(n/2, 1) }

// more lets transactions grow again, as long as they take a small part of their time.
func (t *Tenure) more(took time.Duration) {
	if t.w.most == 0 || took > t.w.cfg.Timeout/4 {
		return
	}
	if t.w.most *= 2; t.w.most >= t.w.cfg.BatchSize {
		t.w.most = 0
	}
}

// atMost is how many of n events are tried at once.
func (t *Tenure) atMost(n int) int {
	if t.w.most > 0 {
		return min(n, t.w.most)
	}
	return n
}

// judged says what it means that an attempt has failed.
func (t *Tenure) judged(m made, dead bool, n int) error {
	if !m.late || !m.user || t.work.Err() != nil {
		return t.judge(m.err, dead, m.user)
	}
	err := spoken(m.err)
	if errors.Is(err, ErrEnding) {
		return err
	}
	return t.late(err, n)
}

// late is a failure through time that was over. Of several events nobody knows which one has used it up. Whatever the handler
// says, it has failed: the end of its context may look as if the connection had been lost.
func (t *Tenure) late(err error, n int) *failedError {
	f := &failedError{index: -1, kind: eventstore.Transient, err: err, late: true}
	if n > 1 {
		return f
	}
	f.index = 0
	var still *stillRunsError
	if errors.As(err, &still) {
		return f
	}
	var at *EventError
	if errors.As(err, &at) {
		err = at.Err
	}
	f.err = fmt.Errorf("handler was not done after %v (Config.Timeout): %w", t.w.cfg.Timeout, err)
	f.kind = t.w.kindOf(err)
	return f
}
