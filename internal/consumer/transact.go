package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
	"github.com/daybook-go/daybook/internal/retry"
)

// failedError is an attempt that failed through an event or its code. index is -1 when nobody can say which event.
type failedError struct {
	index int
	kind  eventstore.FailureKind
	err   error
	late  bool // its time was over
}

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }

// transact applies events, moves the progress and changes what is set aside, in one transaction of two round trips: BEGIN
// with what must be read, then the effects with the fence and COMMIT. Handlers add their own statements in between.
func (t *Tenure) transact(ctx context.Context, events []eventstore.RecordedEvent, to Progress, c *parking.Changes) error {
	m, err := t.attempt(ctx, nil, events, func(ctx context.Context, c *call) made { return t.prepare(ctx, c) })
	if err != nil {
		return err
	}
	if m.s != nil {
		defer m.s.release()
	}
	switch {
	case m.err != nil && m.s == nil && !m.user: // no connection
		return m.err
	case m.err != nil:
		return t.judged(m, m.s != nil && t.clear(m.s), len(events))
	}
	if err := t.conclude(m.s, m.last, to, c); err != nil {
		return err
	}
	if c, ok := m.plan.(Committed); ok {
		c.Committed()
	}
	return nil
}

// prepare does the work of an attempt up to the point where it is to be committed.
func (t *Tenure) prepare(ctx context.Context, c *call) (m made) {
	if m.plan, m.err = t.w.spec.Applier.Plan(ctx, c.events); m.err != nil {
		m.user = true
		return m
	}
	if m.s, m.err = t.acquire(ctx); m.err != nil {
		return m
	}
	if !c.has(m.s) {
		m.s.release()
		return m
	}
	first := &pgx.Batch{}
	first.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	first.Queue(t.w.sql.settings)
	m.plan.Load(first)
	begun := m.s.conn.SendBatch(ctx, first)
	m.tx = begun.Tx()
	if m.err = begun.Close(); m.err != nil {
		return m
	}
	m.last = &pgx.Batch{}
	m.err = m.plan.Apply(ctx, m.tx, m.last)
	m.user = true
	return m
}

// conclude sends the last effects with the fence and COMMIT.
func (t *Tenure) conclude(s *session, last *pgx.Batch, to Progress, c *parking.Changes) error {
	t.w.cfg.Probe(ProbeApplied)
	var n noting
	t.queueFence(last, to, c)
	queueChanges(last, c, &n)
	last.Queue("commit")
	if err := s.conn.SendBatch(t.work, last).Close(); err != nil {
		return t.unnoted(t.rollback(s, err, false), n)
	}
	t.w.cfg.Probe(ProbeCommitted)
	t.noted(c)
	return nil
}

// unnoted makes of a failure to write down what is set aside something that is waited out.
func (t *Tenure) unnoted(err error, n noting) error {
	var failed *failedError
	if n.failed() && errors.As(err, &failed) {
		return fmt.Errorf("consumer: write down what %s sets aside: %w", t.w.spec.Ref, failed.err)
	}
	return err
}

func (t *Tenure) queueFence(b *pgx.Batch, to Progress, c *parking.Changes) {
	if t.w.cfg.unfenced {
		b.Queue(strings.ReplaceAll(unfencedSQL, "{schema}", pgx.Identifier{t.w.spec.Store}.Sanitize()), t.w.spec.Name, t.w.spec.Version, to.floor)
		return
	}
	rows := t.applied.movesTo(to)
	b.Queue(t.w.sql.commit, t.w.spec.Name, t.w.spec.Version, t.w.spec.Segment, t.lease.epoch, t.lease.parkedRev, t.applied.floor, to.floor,
		rows.topics, rows.partitions, rows.before, rows.after, c != nil && c.Raises())
}

// move commits progress without events.
func (t *Tenure) move(to Progress) error { return t.commit(to, nil, func(*pgx.Batch) {}) }

// commit commits progress and changes together with what queue adds, in one round trip. The transaction is an explicit one
// because the role's default isolation may be any.
func (t *Tenure) commit(to Progress, c *parking.Changes, queue func(*pgx.Batch)) error {
	s, err := t.acquire(t.work)
	if err != nil {
		return err
	}
	defer s.release()
	b := &pgx.Batch{}
	b.Queue("begin isolation level read committed read write")
	queue(b)
	var n noting
	t.queueFence(b, to, c)
	queueChanges(b, c, &n)
	b.Queue("commit")
	if err := s.conn.SendBatch(t.work, b).Close(); err != nil {
		err = t.unnoted(t.rollback(s, err, false), n)
		var failed *failedError
		if errors.As(err, &failed) { // no event is to blame
			return fmt.Errorf("consumer: move %s to position %s: %w", t.w.spec.Ref, to.Floor(), failed.err)
		}
		return err
	}
	t.noted(c)
	t.committed(to)
	return nil
}

// rollback ends the transaction, so that its locks are gone before the next attempt, and judges what went wrong.
func (t *Tenure) rollback(s *session, cause error, handler bool) error {
	return t.judge(cause, t.clear(s), handler)
}

// clear ends the transaction, if there is one. It reports whether the connection was gone.
func (t *Tenure) clear(s *session) (dead bool) {
	if s.gone {
		return true
	}
	dead, state := connState(s.conn)
	if !dead && state != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.work), time.Second)
		_, _ = s.conn.Exec(ctx, "rollback") // when it fails the pool closes the connection, which ends the transaction too
		cancel()
	}
	return dead
}

// judge turns what went wrong into a *failedError, errLost, a *stopError, or an error that is waited out.
func (t *Tenure) judge(err error, dead, handler bool) error {
	if t.work.Err() != nil {
		return context.Cause(t.work)
	}
	err = spoken(err)
	if errors.Is(err, ErrEnding) {
		return err
	}
	kind, index := failure, -1
	var at *EventError
	switch {
	case errors.As(err, &at):
		index = at.Index
		kind = classifyHandler(at.Err, dead)
		err = at.Err
	case handler:
		kind = classifyHandler(err, dead)
	default:
		kind = classify(err, dead)
	}
	switch kind {
	case fenced:
		return fmt.Errorf("%w: %v", errLost, err)
	case environment, history:
		return fmt.Errorf("consumer: apply events for %s after position %s: %w", t.w.spec.Ref, t.applied.Floor(), err)
	}
	f := &failedError{index: index, err: err}
	if at == nil && !handler {
		return f
	}
	if f.kind = t.w.kindOf(err); f.kind == eventstore.Environment && index < 0 {
		return fmt.Errorf("consumer: %s waits for what was found away: %w", t.w.spec.Ref, err)
	}
	return f
}

// spoken returns err, or its text where one of its methods panics, as those of a nil pointer in an error do.
func spoken(err error) (said error) {
	if at, ok := err.(*EventError); ok { //nolint:errorlint // an Applier returns it as it is
		return &EventError{at.Index, spoken(at.Err)}
	}
	defer func() {
		if recover() != nil {
			if p, ok := err.(*panicError); ok { //nolint:errorlint // what it wraps panics when it is asked
				said = p.alone()
				return
			}
			said = errors.New(retry.Chain(err)[0])
		}
	}()
	_ = err.Error()
	_ = errors.Is(err, ErrEnding) // asks all that it wraps
	_ = errors.As(err, new(*pgconn.PgError))
	return err
}

func (t *Tenure) unavailable(err error) error {
	if t.work.Err() != nil {
		return context.Cause(t.work)
	}
	return fmt.Errorf("consumer: connect for %s: %w", t.w.spec.Ref, err)
}
