package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// busyRetries is how often an append of the store's own is run again after a deadlock or a lock time-out. The store
// locks streams in one order, so only transactions of others can cause one.
const busyRetries = 5

// roomRetries is how often an append is run again after it has added ranges itself. More than once only when others fill
// them first, which takes ranges that are far too small and a process that hardly runs.
const roomRetries = 50

// Append stores the events of all writes in one transaction of its own, in one round trip (three when there are hooks);
// see [eventstore.Appender]. Deadlocks with other transactions are run again a few times before they reach the caller
// as [eventstore.ErrBusy].
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.AppendResult, error) {
	start := time.Now()
	result, err := s.append(ctx, writes)
	s.cfg.Observer.ObserveAppend(eventstore.AppendObservation{
		Streams: len(writes), Events: countEvents(writes), Duration: time.Since(start), Err: err,
	})
	return result, err
}

func (s *Store) append(ctx context.Context, writes []eventstore.Write) (eventstore.AppendResult, error) {
	p, err := s.plan(ctx, writes)
	if err != nil || len(p.writes) == 0 {
		return eventstore.AppendResult{}, err
	}
	if err := s.appendAgain(ctx, p); err != nil {
		return s.explain(ctx, s.pool, p, err)
	}
	return p.result(s.epoch), nil
}

// appendAgain runs the plan in transactions of its own until one ends in a way that another would not change.
func (s *Store) appendAgain(ctx context.Context, p *plan) error {
	err := s.again(ctx, p.events+len(p.pub.to), func() error { return s.appendOwn(ctx, p) })
	if err == nil && p.events > 0 {
		s.appended(p.last)
	}
	return err
}

// again runs what is one transaction until it succeeds, or fails for a reason that stays. room is how many positions it
// draws.
func (s *Store) again(ctx context.Context, room int, once func() error) error {
	for attempt, rooms := 1, 1; ; attempt++ {
		err := once()
		if s.renewed(err) && attempt <= busyRetries {
			continue
		}
		if errors.Is(err, ErrNoRange) && rooms <= roomRetries {
			rooms, attempt = rooms+1, attempt-1
			if roomErr := s.makeRoom(ctx, room); roomErr != nil {
				return errors.Join(err, roomErr)
			}
			continue
		}
		if !errors.Is(err, eventstore.ErrBusy) || errors.Is(err, errUnexplained) || attempt > busyRetries {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// appendOwn runs the plan in a transaction of its own. Without hooks that is the implicit transaction of one pipeline.
func (s *Store) appendOwn(ctx context.Context, p *plan) error {
	p.reset()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("postgres: append: %w", err)
	}
	defer conn.Release()
	if len(s.cfg.Hooks) == 0 || p.events == 0 {
		b := &pgx.Batch{}
		if s.cfg.TransactionPooler {
			b.Queue(s.sql.guard)
		}
		p.queue(b)
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			return appendError(err)
		}
		return p.verdict()
	}
	var refused error
	begun := false
	err = pgx.BeginTxFunc(ctx, conn, s.restless(), func(tx pgx.Tx) error {
		begun = true
		refused = s.runIn(ctx, tx, p)
		return refused
	})
	switch {
	case refused != nil: // a conflict, the error of a hook, or a statement that failed: rolled back in any case
		return refused
	case !begun || errors.Is(err, pgx.ErrTxCommitRollback): // nothing is in doubt
		return wrapAppend(err)
	case err != nil:
		return appendError(err)
	}
	return nil
}

// runIn runs the plan and the hooks inside tx; it never commits. The settings of the store hold for its own statements
// only, not for the hooks.
func (s *Store) runIn(ctx context.Context, tx pgx.Tx, p *plan) error {
	b := &pgx.Batch{}
	b.Queue(s.sql.guard)
	p.queue(b)
	b.Queue(s.sql.unguard)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("postgres: append: %w", mapError(err))
	}
	if err := p.verdict(); err != nil || len(s.cfg.Hooks) == 0 || p.events == 0 {
		return err
	}
	events, err := s.readAppended(ctx, tx, p)
	if err != nil {
		return err
	}
	for _, hook := range s.cfg.Hooks {
		if err := hook(ctx, tx, events); err != nil {
			return err
		}
	}
	return nil
}

// readAppended reads back what the plan wrote, in order of position.
func (s *Store) readAppended(ctx context.Context, tx pgx.Tx, p *plan) ([]eventstore.RecordedEvent, error) {
	streams := make([]string, 0, len(p.outcomes))
	from := make([]int64, 0, len(p.outcomes))
	for _, o := range p.outcomes {
		if o.events > 0 {
			streams, from = append(streams, o.stream.String()), append(from, int64(o.version)-int64(o.events)+1)
		}
	}
	rows, err := tx.Query(ctx, s.sql.appended, streams, from, p.first)
	if err != nil {
		return nil, fmt.Errorf("postgres: read back the append: %w", err)
	}
	return collectEvents(rows, p.events)
}

func pause(ctx context.Context, attempt int) error {
	limit := time.Duration(attempt) * 10 * time.Millisecond
	timer := time.NewTimer(rand.N(limit) + time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func countEvents(writes []eventstore.Write) int {
	n := 0
	for _, w := range writes {
		n += len(w.Events)
	}
	return n
}

const appendedSQL = `
SELECT ` + eventColumns + `
  FROM unnest($1::text[], $2::bigint[]) AS w(stream_id, from_version)
  JOIN LATERAL (SELECT * FROM {schema}.events x
                 WHERE x.stream_id = w.stream_id AND x.version >= w.from_version AND x.position >= $3) e ON true
 ORDER BY e.position`
