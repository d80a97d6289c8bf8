package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// cleanBatch is how many rows one step of the cleaning deletes. Whoever commits waits until what was written before is on
// disk, so that a step must not write much.
const cleanBatch = 2_000

// unfollowed is how long a topic that nobody follows keeps its messages: consumers that are deployed together with the
// relay find what was sent before they began.
const unfollowed = time.Hour

// Clean takes out of the outbox what the relay has sent and every following subscriber has passed. Subscribers that are
// behind by more than retention are declared lost first, and named in the report. A topic that nobody follows keeps its
// messages for an hour, or for retention if that is shorter.
//
// Its steps are transactions of their own, committed by Clean, so an interrupted one is gone on with by the next. Several
// processes may call it at once; appends and readers are not blocked. Between steps that delete rows it rests for as long as
// the step took. The report is valid, as far as it came, beside an
// error.
func (o *Outbox) Clean(ctx context.Context, retention time.Duration) (eventstore.CleanReport, error) {
	var report eventstore.CleanReport
	s := o.log.store
	if retention <= 0 {
		return report, &eventstore.InvalidError{
			Field: "retention", Value: retention.String(), Reason: "is not above zero", Remedy: "say for how long a consumer may be down",
		}
	}
	var now *time.Time
	if s.cfg.Clock != nil {
		at := s.cfg.Clock().UTC()
		now = &at
	}
	rows, err := s.pool.Query(ctx, s.sql.declareLost, retention, now)
	if err != nil {
		return report, fmt.Errorf("postgres: clean the outbox: %w", err)
	}
	report.Lost, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (eventstore.LostSubscriber, error) {
		var l eventstore.LostSubscriber
		var floor int64
		err := row.Scan(&l.Topic, &l.Group, &l.Consumer, &l.Version, &floor, &l.Oldest)
		l.Floor, l.Oldest = eventstore.PositionAt(floor), l.Oldest.UTC()
		return l, err
	})
	if err != nil {
		return report, fmt.Errorf("postgres: clean the outbox: %w", err)
	}
	var cleaned int64
	if err := s.pool.QueryRow(ctx, s.sql.raiseCleaned, min(retention, unfollowed), now).Scan(&cleaned); err != nil {
		return report, fmt.Errorf("postgres: clean the outbox: %w", err)
	}
	report.Cleaned = eventstore.PositionAt(cleaned)
	for more := true; more; {
		var removed int64
		var emptied int
		start := time.Now()
		if err := s.pool.QueryRow(ctx, s.sql.dropCleaned, cleanBatch).Scan(&removed, &emptied, &more); err != nil {
			return report, fmt.Errorf("postgres: clean the outbox: %w", err)
		}
		report.Rows += removed
		report.Ranges += emptied
		if removed > 0 && more {
			if err := restAsLong(ctx, time.Since(start)); err != nil {
				return report, fmt.Errorf("postgres: clean the outbox: %w", err)
			}
		}
	}
	return report, nil
}

// restAsLong leaves the disk to others for as long as a step has taken.
func restAsLong(ctx context.Context, took time.Duration) error {
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

const (
	declareLostSQL = `
SELECT d.topic, d.group_name, d.consumer, d.version, d.floor, d.oldest
  FROM {schema}.declare_lost($1::interval, coalesce($2::timestamptz, clock_timestamp())) d`
	raiseCleanedSQL = `SELECT {schema}.raise_cleaned($1::interval, coalesce($2::timestamptz, clock_timestamp()))`
	dropCleanedSQL  = `SELECT d.removed, d.emptied, d.more FROM {schema}.drop_cleaned($1::int) d`
)
