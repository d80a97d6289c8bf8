package projection

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// batcher is a Querier that can send several statements in one round trip: a pool, a connection, a transaction.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// probe runs a query that must use an index, whatever the planner knew of the table when it made the plan: one that was
// analysed while it was empty is scanned by cached plans long after it has grown. The setting holds for this query
// alone, and costs no round trip of its own. A Querier that can only query is asked without it.
func probe(ctx context.Context, db Querier, read func(pgx.Rows) error, sql string, args ...any) error {
	send, ok := db.(batcher)
	if !ok {
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		if err := read(rows); err != nil {
			return err
		}
		return rows.Err()
	}
	b := &pgx.Batch{}
	b.Queue(guardSQL)
	b.Queue(sql, args...).Query(read)
	if _, inTx := db.(pgx.Tx); inTx { // outside, the setting ends with the batch
		b.Queue(unguardSQL)
	}
	return send.SendBatch(ctx, b).Close()
}

const (
	guardSQL   = `SELECT set_config('daybook.seqscan', current_setting('enable_seqscan'), true), set_config('enable_seqscan', 'off', true)`
	unguardSQL = `SELECT set_config('enable_seqscan', coalesce(nullif(current_setting('daybook.seqscan', true), ''), 'on'), true)`
)
