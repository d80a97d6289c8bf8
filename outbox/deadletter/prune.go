package deadletter

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const pruneBatch = 1000

// Prune removes closed letters that were closed before now - olderThan, and plans that ended before it, in small
// transactions; it returns how many letters. Open letters are never removed, and what people did stays on record. Of
// several processes one does the work, the others return at once. It ends with ctx, and what is removed by then stays so.
func (l *Letters) Prune(ctx context.Context, olderThan time.Duration) (int64, error) {
	if olderThan < 0 {
		return 0, invalid("olderThan", olderThan.String(), "is below 0", "name an age")
	}
	var total int64
	for {
		var letters, plans int64
		err := l.write(ctx, "prune", func(tx pgx.Tx) error {
			letters, plans = 0, 0
			var mine bool
			if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`, l.lockName("prune")).Scan(&mine); err != nil || !mine {
				return err
			}
			tag, err := tx.Exec(ctx, l.sql(pruneSQL), olderThan.Seconds(), pruneBatch)
			if err != nil {
				return err
			}
			letters = tag.RowsAffected()
			tag, err = tx.Exec(ctx, l.sql(prunePlansSQL), olderThan.Seconds())
			plans = tag.RowsAffected()
			return err
		})
		total += letters
		if err != nil || letters < pruneBatch && plans == 0 {
			return total, err
		}
	}
}

func (l *Letters) lockName(what string) string {
	return "daybook deadletter " + what + "\x1f" + l.cfg.Schema
}

const pruneSQL = `
DELETE FROM {schema}.letters d USING (
  SELECT letter FROM {schema}.letters WHERE closed_at < clock_timestamp() - make_interval(secs => $1)
   ORDER BY closed_at LIMIT $2::int FOR UPDATE SKIP LOCKED) k
 WHERE d.letter = k.letter AND d.closed_at IS NOT NULL AND d.state NOT IN ('retrying', 'parked')`

// prunePlansSQL removes one at a time, as a plan may have many items. There are few plans.
const prunePlansSQL = `
DELETE FROM {schema}.redrives r USING (
  SELECT redrive FROM {schema}.redrives
   WHERE state <> 'running' AND ended_at < clock_timestamp() - make_interval(secs => $1)
   ORDER BY ended_at LIMIT 1 FOR UPDATE SKIP LOCKED) k
 WHERE r.redrive = k.redrive AND r.state <> 'running'`

// Run removes what is older than Config.Retention, and tells the log when sequences begin to wait for people for longer
// than Config.AlarmAfter. It may run in every process. It returns nil when ctx ends; what fails meanwhile is tried
// again, with a line in the log when that begins.
func (l *Letters) Run(ctx context.Context) error {
	failing, alarmed := false, false
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	for {
		_, err := l.Prune(ctx, l.cfg.Retention)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err != nil && !failing:
			l.cfg.Logger.Warn("old dead letters cannot be removed, which grow until they can", "error", err.Error())
		case err == nil && failing:
			l.cfg.Logger.Info("old dead letters are removed again")
		}
		failing = err != nil
		switch h := l.Health(ctx); {
		case !h.Ready && h.State == "parked" && !alarmed:
			alarmed = true
			l.cfg.Logger.Warn("sequences wait for people", "reason", h.Reason)
		case h.Ready && alarmed:
			alarmed = false
			l.cfg.Logger.Info("no sequence waits for people for too long any more")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
