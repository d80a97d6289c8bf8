package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// cleanBatch is how many rows one step of the cleaning deletes.
const cleanBatch = 10_000

// clean works beside the publishing until ctx ends, from the beginning on: a relay that never runs for long cleans too.
// What it cannot do now it does the next time.
func (r *Relay) clean(ctx context.Context, db *pgxpool.Pool) {
	failing := false
	for ok := true; ok; ok = rest(ctx, r.cfg.CleanEvery/2+rand.N(r.cfg.CleanEvery/2+1)) {
		err := r.cleanOnce(ctx, db)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			r.log.Warn("relay cannot clean the outbox, which grows until it can", "error", err.Error())
		case err == nil && failing:
			r.log.Info("relay cleans the outbox again")
		}
		failing = err != nil
	}
}

// cleanOnce declares lost who has been behind for too long, names them in the log, and removes what everybody else has
// passed. Each statement is a transaction of its own, as the functions of the store ask for; several processes may do
// the same at once.
func (r *Relay) cleanOnce(ctx context.Context, db *pgxpool.Pool) error {
	rows, err := db.Query(ctx, r.sql(declareLostSQL), r.cfg.Retention)
	if err != nil {
		return fmt.Errorf("outbox: declare subscribers lost: %w", err)
	}
	var (
		topic, group, name string
		version            int
		floor              int64
		oldest             time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&topic, &group, &name, &version, &floor, &oldest}, func() error {
		r.log.Warn("a subscriber was behind for longer than the retention and is lost: the outbox no longer waits for it",
			"topic", topic, "group", group, "consumer", name, "version", version, "floor", floor, "oldest", oldest.UTC())
		return nil
	})
	if err != nil {
		return fmt.Errorf("outbox: declare subscribers lost: %w", err)
	}
	if _, err := db.Exec(ctx, r.sql(raiseCleanedSQL)); err != nil {
		return fmt.Errorf("outbox: settle how far messages may go: %w", err)
	}
	for more := true; more; {
		if err := db.QueryRow(ctx, r.sql(dropCleanedSQL), cleanBatch).Scan(&more); err != nil {
			return fmt.Errorf("outbox: remove messages: %w", err)
		}
	}
	return nil
}

const (
	declareLostSQL  = `SELECT topic, group_name, consumer, version, floor, oldest FROM {schema}.declare_lost($1::interval)`
	raiseCleanedSQL = `SELECT {schema}.raise_cleaned()`
	dropCleanedSQL  = `SELECT more FROM {schema}.drop_cleaned($1::int)`
)
