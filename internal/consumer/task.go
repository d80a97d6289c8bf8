package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// NewTask returns a worker that runs a loop of its own while it owns ref: what follows the log, but does not apply
// events in a transaction, such as a relay. cfg must be valid.
//
// loop gets a context that ends when the lease is lost or the worker is asked to end, and returns then. An error is
// waited out, with growing pauses, and the lease is taken again; one that [Stop] made ends the consumer.
func NewTask(ref Ref, cfg Config, loop func(ctx context.Context, t *Tenure) error) *Worker {
	return newWorker(Spec{Ref: ref}, cfg, func(t *Tenure) error { return loop(t.held, t) })
}

// Stop makes an error that ends a consumer until it is run again, for what no waiting mends.
func Stop(err error) error { return &stopError{err} }

// Floor is the position that is committed.
func (t *Tenure) Floor() eventstore.Position { return t.applied.Floor() }

// DB is the workers' own pool.
func (t *Tenure) DB() *pgxpool.Pool { return t.db }

// Work is the context for what may finish when the worker is asked to end: it has a second more.
func (t *Tenure) Work() context.Context { return t.work }

// Commit moves the floor together with what queue adds, in one transaction of one round trip. It fails when another
// owner has taken over, and nothing of it is kept then. A commit that only a crash of the server takes back is
// acknowledged early: it must be harmless to do again what it stands for.
func (t *Tenure) Commit(to eventstore.Position, queue func(*pgx.Batch)) error {
	return t.commit(ProgressAt(to), func(b *pgx.Batch) {
		b.Queue("SELECT set_config('synchronous_commit', 'off', true), set_config('enable_seqscan', 'off', true)")
		queue(b)
	})
}
