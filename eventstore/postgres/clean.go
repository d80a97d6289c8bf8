package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// cleanBatch is how many rows one step of the cleaning deletes.
const cleanBatch = 10_000

// CleanReport says what a cleaning of the outbox did.
type CleanReport struct {
	// Lost are the subscribers declared lost by this cleaning.
	Lost []LostSubscriber
	// Cleaned is how far messages are gone, or may go at any time.
	Cleaned eventstore.Position
	// Rows is the number of rows deleted one by one, Ranges the number of ranges emptied at once, whose rows are not
	// counted.
	Rows   int64
	Ranges int
}

// LostSubscriber is a subscriber that stayed behind for longer than the retention. It holds nothing back any more: what
// it missed may be gone from the outbox. A projection then catches up from the log; anything else is re-based by its
// owner.
type LostSubscriber struct {
	Topic, Group, Consumer string
	Version                int
	// Floor is how far it had come, Oldest when the first message that it had not passed was recorded.
	Floor  eventstore.Position
	Oldest time.Time
}

// String is one line for people.
func (l LostSubscriber) String() string {
	return fmt.Sprintf("%s v%d of group %q is lost to topic %q: it stands at position %s, and its next message is of %s",
		l.Consumer, l.Version, l.Group, l.Topic, l.Floor, l.Oldest.UTC().Format(time.RFC3339))
}

// Clean takes out of the outbox what the relay has sent and every following subscriber has passed. Subscribers that are
// behind by more than retention are declared lost first, and named in the report and the log.
//
// Its steps are transactions of their own, committed by Clean, so an interrupted one is gone on with by the next. Several
// processes may call it at once; appends and readers are not blocked. The report is valid, as far as it came, beside an
// error.
func (o *Outbox) Clean(ctx context.Context, retention time.Duration) (CleanReport, error) {
	var report CleanReport
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
	report.Lost, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (LostSubscriber, error) {
		var l LostSubscriber
		var floor int64
		err := row.Scan(&l.Topic, &l.Group, &l.Consumer, &l.Version, &floor, &l.Oldest)
		l.Floor, l.Oldest = eventstore.PositionAt(floor), l.Oldest.UTC()
		return l, err
	})
	if err != nil {
		return report, fmt.Errorf("postgres: clean the outbox: %w", err)
	}
	for _, l := range report.Lost {
		s.cfg.Logger.Warn("daybook: a subscriber is lost", "reason", l.String())
	}
	var cleaned int64
	if err := s.pool.QueryRow(ctx, s.sql.raiseCleaned).Scan(&cleaned); err != nil {
		return report, fmt.Errorf("postgres: clean the outbox: %w", err)
	}
	report.Cleaned = eventstore.PositionAt(cleaned)
	for more := true; more; {
		var removed int64
		var emptied int
		if err := s.pool.QueryRow(ctx, s.sql.dropCleaned, cleanBatch).Scan(&removed, &emptied, &more); err != nil {
			return report, fmt.Errorf("postgres: clean the outbox: %w", err)
		}
		report.Rows += removed
		report.Ranges += emptied
	}
	return report, nil
}

const (
	declareLostSQL = `
SELECT d.topic, d.group_name, d.consumer, d.version, d.floor, d.oldest
  FROM {schema}.declare_lost($1::interval, coalesce($2::timestamptz, clock_timestamp())) d`
	raiseCleanedSQL = `SELECT {schema}.raise_cleaned()`
	dropCleanedSQL  = `SELECT d.removed, d.emptied, d.more FROM {schema}.drop_cleaned($1::int) d`
)
