package commands

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	// cleanBatch is how many operations one statement removes; between two of them others get their turn.
	cleanBatch = 1000
	cleanPause = 20 * time.Millisecond
)

// clean removes operations that ended long ago while this dispatcher is the one that works, until ctx ends. What it cannot
// do now it does the next time.
func (d *Dispatcher) clean(ctx context.Context) {
	failing := false
	for rest(ctx, d.cfg.CleanEvery/2+rand.N(d.cfg.CleanEvery/2+1)) {
		if d.worker.Status().State != consumer.Running {
			continue
		}
		err := d.cleanOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			d.log.Warn("dispatcher cannot remove old operations and commands, which stay until it can", "error", err.Error())
		case err == nil && failing:
			d.log.Info("dispatcher removes old operations and commands again")
		}
		failing = err != nil
	}
}

func (d *Dispatcher) cleanOnce(ctx context.Context) error {
	var now *time.Time
	if d.cfg.Clock != nil {
		at := d.cfg.Clock().UTC()
		now = &at
	}
	for {
		var removed int
		if err := d.db.QueryRow(ctx, d.sql.clean, d.cfg.KeepOperations, now, cleanBatch).Scan(&removed); err != nil {
			return err
		}
		if removed < cleanBatch {
			break
		}
		if !rest(ctx, cleanPause) {
			return ctx.Err()
		}
	}
	if l, ok := d.source.(*local); ok {
		return l.cleanAlone(ctx, d)
	}
	return nil
}

// cleanSQL leaves alone what somebody else has locked, such as another cleaner after a takeover.
const cleanSQL = `
WITH old AS MATERIALIZED (
  SELECT o.id FROM {schema}.operations o
   WHERE o.finished_at < coalesce($2::timestamptz, clock_timestamp()) - $1::interval
   ORDER BY o.finished_at LIMIT $3::int FOR UPDATE SKIP LOCKED),
gone AS (
  DELETE FROM {schema}.operations o WHERE o.id = ANY (ARRAY(SELECT old.id FROM old)) RETURNING 1)
SELECT count(*)::int FROM gone`
