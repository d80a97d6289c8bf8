package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// NewTask returns a worker that runs a loop of its own while it owns a segment of ref: what follows the log, but does not
// apply events in a transaction, such as a relay. cfg must be valid.
//
// loop gets a context that ends when the lease is lost, when the segment falls to another [Member], or when the worker is
// asked to end, and returns then. An error is
// waited out, with growing pauses, and the lease is taken again; one that [Stop] made ends the consumer.
func NewTask(ref Ref, segment int, cfg Config, loop func(ctx context.Context, t *Tenure) error) *Worker {
	return newWorker(Spec{Ref: ref, Segment: segment}, cfg, func(t *Tenure) error { return loop(t.held, t) })
}

// Stop makes an error that ends a consumer until it is run again, for what no waiting mends.
func Stop(err error) error { return &stopError{err} }

// Floor is the position that is committed.
func (t *Tenure) Floor() eventstore.Position { return t.applied.Floor() }

// DB is the workers' own pool.
func (t *Tenure) DB() *pgxpool.Pool { return t.db }

// Partitions are those of the segment, both inclusive.
func (t *Tenure) Partitions() (first, last int) { return t.lease.first, t.lease.last }

// Hold returns nil when the lease held a moment ago, as far as the clocks of this process tell; when they say that its
// time is over it asks the database. Call it before work that others see.
func (t *Tenure) Hold() error {
	if !t.lease.expired() {
		return nil
	}
	return t.w.renewOnce(t.work, t.db, t.lease, t.w.cfg.Lease)
}

// Work is the context for what may finish when the worker is asked to end, which has a second more, or when the segment
// falls to another, which has a lease more.
func (t *Tenure) Work() context.Context { return t.work }

// Commit moves the floor together with what queue adds, in one transaction of one round trip. It fails when another
// owner has taken over, and nothing of it is kept then. A commit that only a crash of the server takes back is
// acknowledged early: it must be harmless to do again what it stands for.
func (t *Tenure) Commit(to eventstore.Position, queue func(*pgx.Batch)) error {
	return t.CommitWith(to, nil, queue)
}

// CommitWith is [Tenure.Commit] together with changes to what is set aside, which may be nil.
func (t *Tenure) CommitWith(to eventstore.Position, c *parking.Changes, queue func(*pgx.Batch)) error {
	return t.commit(ProgressAt(to), c, func(b *pgx.Batch) {
		b.Queue("SELECT set_config('synchronous_commit', 'off', true), set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)")
		queue(b)
	})
}
