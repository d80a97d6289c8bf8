package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// WithStreamsLocked runs f in a transaction that holds the heads of the streams, existing or not, taken in the order in
// which every append takes them, before a position is drawn; see [eventstore.StreamLocker]. A deadlock with the
// transaction of another program, met before f runs, is tried again a few times; afterwards it is an
// [eventstore.ErrBusy].
//
// What f reads from the store with the ctx that it is given is read on the connection of the transaction, one statement
// after the other: f needs no second one, which those who wait for its streams might have. At most half of
// [Config.MaxConns] calls go on at a time in one Store (one, if that is less); others wait for their turn. f should be
// short: when it lets 30 seconds pass between two statements, the server ends the transaction, and the next one fails.
func (s *Store) WithStreamsLocked(ctx context.Context, claim *eventstore.Claim, streams []eventstore.StreamID, f func(ctx context.Context, s eventstore.LockedStreams) error) error {
	if claim != nil {
		if err := claim.Validate(); err != nil {
			return err
		}
	}
	names, partitions, err := s.lockOrder(streams)
	if err != nil {
		return err
	}
	if ctx.Value(lockedKey{s}) != nil {
		return &eventstore.InvalidError{
			Field: "ctx", Value: "", Reason: "is that of another WithStreamsLocked", Remedy: "lock all streams with one call",
		}
	}
	select {
	case s.locking <- struct{}{}:
		defer func() { <-s.locking }()
	case <-ctx.Done():
		return fmt.Errorf("postgres: lock streams: %w", ctx.Err())
	}
	held := &heldConn{streams: names}
	if claim != nil {
		lock := s.keyLock("key", *claim)
		held.key = &lock
	}
	if err := s.again(ctx, 0, func() (err error) {
		held.tx, err = s.lockStreams(ctx, claim, names, partitions)
		return err
	}); err != nil {
		return fmt.Errorf("postgres: lock streams: %w", err)
	}
	defer end(ctx, held.tx) // harmless after the commit
	l := &lockedStreams{tx: s.WithTx(held.tx), conn: held, claim: claim}
	if err := f(context.WithValue(ctx, lockedKey{s}, held), l); err != nil {
		return l.runAgain(ctx, err)
	}
	return l.commit(ctx)
}

// lockOrder sorts the streams and drops repetitions.
func (s *Store) lockOrder(streams []eventstore.StreamID) (names []string, partitions []int32, err error) {
	for i, stream := range streams {
		if err := stream.Validate(); err != nil {
			return nil, nil, fmt.Errorf("%w (stream %d)", err, i+1)
		}
		names = append(names, stream.String())
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		partitions = append(partitions, int32(eventstore.PartitionOf(name, s.partitions)))
	}
	return names, partitions, nil
}

// lockStreams opens a transaction and takes the locks.
func (s *Store) lockStreams(ctx context.Context, claim *eventstore.Claim, names []string, partitions []int32) (pgx.Tx, error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	if s.cfg.TransactionPooler {
		b.Queue(s.sql.outside)
	}
	if claim != nil {
		b.Queue(s.sql.lockKey, s.keyLock("key", *claim))
	}
	if len(names) > 0 {
		b.Queue(s.sql.lockAll, names, partitions)
	}
	b.Queue(idleSQL, strconv.FormatInt(s.idleLimit.Milliseconds(), 10))
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		end(ctx, tx)
		return nil, mapError(err)
	}
	return tx, nil
}

// idleLimit is how long f may do something else between two statements. A process that is frozen, or gone without a word,
// would hold its streams for all otherwise.
const idleLimit = 30 * time.Second

// restless are the options of an append that runs hooks: readers wait for its positions, and would wait for ever.
func (s *Store) restless() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = %d", s.idleLimit.Milliseconds())}
}

const idleSQL = `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`

// lockedStreams appends in the transaction that has the locks.
type lockedStreams struct {
	tx    *TxStore
	conn  *heldConn
	claim *eventstore.Claim
	done  *plan // what was appended
}

// Append writes into the transaction; see [eventstore.LockedStreams].
func (l *lockedStreams) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.AppendResult, error) {
	ctx, unlock := l.alone(ctx)
	defer unlock()
	if err := l.only(); err != nil {
		return eventstore.AppendResult{}, err
	}
	start := time.Now()
	p, result, err := l.tx.append(ctx, writes)
	if err == nil {
		l.done = p
	}
	l.tx.store.cfg.Observer.ObserveAppend(eventstore.AppendObservation{
		Streams: len(writes), Events: countEvents(writes), Duration: time.Since(start), Err: err,
	})
	return result, err
}

// AppendOnce writes into the transaction; see [eventstore.OnceAppender]. An outcome that is stored already is found
// before anything is written, so that the transaction stays usable.
func (l *lockedStreams) AppendOnce(ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes ...eventstore.Write) (eventstore.Outcome, error) {
	ctx, unlock := l.alone(ctx)
	defer unlock()
	start := time.Now()
	got, err := l.appendOnce(ctx, claim, outcome, writes)
	l.tx.store.observeOnce(start, got, err, writes)
	return got, err
}

func (l *lockedStreams) appendOnce(ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes []eventstore.Write) (eventstore.Outcome, error) {
	if err := errors.Join(l.only(), l.tx.broken()); err != nil {
		return eventstore.Outcome{}, err
	}
	s := l.tx.store
	p, err := s.planOnce(ctx, claim, outcome, writes)
	if err != nil {
		return eventstore.Outcome{}, err
	}
	if l.claim == nil || l.claim.Scope != claim.Scope || l.claim.Key != claim.Key {
		if _, err := l.tx.tx.Exec(ctx, s.sql.lockKey, p.once.lock); err != nil {
			return eventstore.Outcome{}, l.tx.fail(wrapAppend(err))
		}
	}
	first, found, err := s.firstOutcome(ctx, l.tx.tx, claim)
	if err != nil && !errors.Is(err, eventstore.ErrReusedKey) {
		err = l.tx.fail(wrapAppend(err))
	}
	if err != nil || found {
		return first, err
	}
	p.once.locked = true
	if err := l.tx.run(ctx, p); err != nil {
		return eventstore.Outcome{}, p.explained(ctx, l.tx.tx, err)
	}
	l.done = p
	return p.ended(s.epoch), nil
}

// alone waits for what f reads at the same time. What the append itself and its hooks read with the context that it
// returns goes on with the connection.
func (l *lockedStreams) alone(ctx context.Context) (context.Context, func()) {
	l.conn.mu.Lock()
	return context.WithValue(ctx, lockedKey{l.tx.store}, &heldConn{tx: l.conn.tx}), l.conn.mu.Unlock
}

// only refuses a second append: the first has drawn positions, and holds the head of the log back until the commit.
func (l *lockedStreams) only() error {
	if l.done == nil {
		return nil
	}
	return &eventstore.InvalidError{
		Field: "appends", Value: strconv.Itoa(2), Reason: "are more than one in WithStreamsLocked", Remedy: "append everything in one call",
	}
}

// runAgain lets a caller run everything again when f met what the store mends: a log without room for the append, or
// statements that were prepared before a migration, which break the transaction.
func (l *lockedStreams) runAgain(ctx context.Context, err error) error {
	s := l.tx.store
	switch {
	case errors.Is(err, ErrNoRange):
		end(ctx, l.tx.tx)
		if roomErr := s.makeRoom(ctx, 1); roomErr != nil {
			return errors.Join(err, roomErr)
		}
	case !s.renewed(err) && !aborted(err):
		return err
	}
	if errors.Is(err, eventstore.ErrBusy) {
		return err
	}
	return fmt.Errorf("%w: %w", eventstore.ErrBusy, err)
}

// commit ends the transaction after f. When nothing was appended there is nothing to keep.
func (l *lockedStreams) commit(ctx context.Context) error {
	if err := l.tx.broken(); err != nil {
		return err
	}
	if l.done == nil {
		return nil
	}
	s := l.tx.store
	if err := l.tx.tx.Commit(ctx); errors.Is(err, pgx.ErrTxCommitRollback) {
		return wrapAppend(err)
	} else if err != nil {
		return appendError(err)
	}
	if l.done.events > 0 {
		s.appended(l.done.last)
	}
	if l.done.once != nil {
		s.turnSoon()
	}
	return nil
}
