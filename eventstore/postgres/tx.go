package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// TxStore appends inside a transaction of the caller's, who commits or rolls back. Make it with [Store.WithTx].
//
// Append as the last thing before the commit: from its first position on the transaction holds the head of the log
// back, and every reader waits for it. A conflict leaves the transaction usable. The caller also chooses the order in
// which he locks things, so a deadlock is possible: [eventstore.ErrBusy] means that the whole transaction has to run
// again.
//
// A TxStore is for one goroutine, as its transaction is.
type TxStore struct {
	store  *Store
	tx     pgx.Tx
	failed error // what broke the transaction
}

// WithTx returns the store as seen inside tx, which must be a transaction on the store's database with isolation READ
// COMMITTED. Settings of tx are left as they were, except that its commit waits for the disk even where
// synchronous_commit is off. Readers in this process are woken when the caller calls [Store.Wake] after the commit, or
// else by polling.
func (s *Store) WithTx(tx pgx.Tx) *TxStore { return &TxStore{store: s, tx: tx} }

var (
	_ eventstore.Appender     = (*TxStore)(nil)
	_ eventstore.StreamReader = (*TxStore)(nil)
)

// BoundToTransaction marks the store as one that lives in a transaction, for those who would use it from elsewhere.
func (*TxStore) BoundToTransaction() {}

// Append writes into the transaction; see [eventstore.Appender] and [TxStore]. The hooks of the store run too.
func (t *TxStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.AppendResult, error) {
	start := time.Now()
	_, result, err := t.append(ctx, writes)
	t.store.cfg.Observer.ObserveAppend(eventstore.AppendObservation{
		Streams: len(writes), Events: countEvents(writes), Duration: time.Since(start), Err: err,
	})
	return result, err
}

func (t *TxStore) append(ctx context.Context, writes []eventstore.Write) (*plan, eventstore.AppendResult, error) {
	if err := t.broken(); err != nil {
		return nil, eventstore.AppendResult{}, err
	}
	p, err := t.store.plan(ctx, writes)
	if err != nil || len(p.writes) == 0 {
		return p, eventstore.AppendResult{}, err
	}
	if err := t.run(ctx, p); err != nil {
		result, err := t.store.explain(ctx, t.tx, p, err)
		return p, result, err
	}
	return p, p.result(t.store.epoch), nil
}

// run runs the plan.
func (t *TxStore) run(ctx context.Context, p *plan) error {
	if err := t.store.runIn(ctx, t.tx, p); err != nil {
		return t.fail(err)
	}
	return nil
}

// fail remembers what may have broken the transaction.
func (t *TxStore) fail(err error) error {
	t.failed = err
	if errors.Is(err, ErrNoRange) {
		t.store.ensureRangesSoon()
	}
	return err
}

// broken returns the error that broke the transaction, while it is broken: what PostgreSQL says of every later statement
// would hide it. A savepoint that is rolled back mends the transaction.
func (t *TxStore) broken() error {
	const inFailedTransaction = 'E' // ReadyForQuery, PostgreSQL's frontend/backend protocol
	if t.failed != nil && t.tx.Conn().PgConn().TxStatus() == inFailedTransaction {
		return t.failed
	}
	t.failed = nil
	return nil
}
