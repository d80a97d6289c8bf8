package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
)

// tortureDeeds must each have happened at least once, or the run was too short to mean anything.
var tortureDeeds = []string{
	"exact", "hot", "several", "checked", "conflict", "transaction", "rolled back", "savepoint released", "savepoint rolled back",
	"prepared", "raw", "raw into a range", "copy", "killed", "cut off", "range attached", "unrelated", "message alone",
}

// write makes appends of random kinds until the run ends.
func (x *torture) write(r *rand.Rand, number int) {
	own := newStream("own")
	var version eventstore.Version
	raw := &rawWriter{x: x, stream: newStream("raw")}
	for !x.stopped() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		var err error
		switch kind := r.IntN(100); {
		case kind < 20:
			own, version, err = x.exact(ctx, r, own, version)
		case kind < 40:
			err = x.append(ctx, "hot", x.randomWrites(r, 1)...)
		case kind < 55:
			err = x.append(ctx, "several", x.randomWrites(r, 2+r.IntN(3))...)
		case kind < 70:
			err = x.transaction(ctx, r)
		case kind < 78:
			err = x.savepoint(ctx, r)
		case kind < 83:
			err = x.prepared(ctx, r)
		case kind < 89:
			err = x.message(ctx, r)
		default:
			err = raw.write(ctx, r)
		}
		cancel()
		x.judge(number, err)
	}
}

// judge tells the errors that trouble-makers cause from those that nobody may see.
func (x *torture) judge(number int, err error) {
	var pgErr *pgconn.PgError
	var netErr net.Error
	switch {
	case err == nil:
	case errors.Is(err, eventstore.ErrConflict):
		x.count("conflict")
	case errors.Is(err, eventstore.ErrUnconfirmed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.As(err, &netErr), strings.Contains(err.Error(), "conn closed"):
		x.count("cut off")
	case errors.As(err, &pgErr) && pgErr.Code == "57P01": // terminated by an administrator
		x.count("cut off")
	case errors.As(err, &pgErr) && pgErr.Code == "42704": // another one finished the prepared transaction
		x.count("prepared by another")
	case errors.Is(err, eventstore.ErrBusy) && errors.As(err, &pgErr) && pgErr.Code == "40P01":
		x.count("deadlock in a caller's transaction")
	default:
		x.fault("writer %d: %v", number, err)
	}
}

func tortureEventsOf(r *rand.Rand, n int) []eventstore.EventData {
	list := make([]eventstore.EventData, n)
	for i := range list {
		list[i] = ownEvent(strings.Repeat("x", r.IntN(400)))
	}
	return list
}

// append makes an append of its own and notes what is certain afterwards.
func (x *torture) append(ctx context.Context, name string, writes ...eventstore.Write) error {
	result, err := x.store.Append(ctx, writes...)
	switch {
	case err == nil:
		x.count(name)
		for _, w := range writes {
			if len(w.Events) == 0 {
				x.count("checked")
			}
		}
		x.ledger.committed(writes, result)
	case errors.Is(err, eventstore.ErrConflict):
		x.ledger.rolledBack(writes)
	}
	return err
}

// exact extends a stream that nobody else writes. When the outcome is not known, the same ids are sent again, which
// must give the first result or store them now.
func (x *torture) exact(
	ctx context.Context, r *rand.Rand, id eventstore.StreamID, version eventstore.Version,
) (eventstore.StreamID, eventstore.Version, error) {
	w := eventstore.To(id, eventstore.Exactly(version), tortureEventsOf(r, 1+r.IntN(3))...)
	var err error
	for range 20 { // a killed connection may meet the repetition too
		var result eventstore.AppendResult
		if result, err = x.store.Append(ctx, w); err == nil {
			if result.Repeated {
				x.count("repeated")
			}
			x.count("exact")
			x.ledger.committed([]eventstore.Write{w}, result)
			if r.IntN(50) == 0 {
				return newStream("own"), 0, nil
			}
			return id, result.Versions[id], nil
		}
		if errors.Is(err, eventstore.ErrConflict) {
			x.fault("stream %q of one writer: %v", id, err)
			break
		}
		x.judge(-1, err)
	}
	return newStream("own"), 0, err
}

// randomWrites names some hot streams and perhaps a new one, in random order and with any claim.
func (x *torture) randomWrites(r *rand.Rand, n int) []eventstore.Write {
	var writes []eventstore.Write
	for _, i := range r.Perm(len(x.hot))[:n] {
		claim := eventstore.AnyVersion
		switch r.IntN(8) {
		case 0:
			claim = eventstore.StreamExists
		case 1:
			claim = eventstore.Exactly(eventstore.Version(r.IntN(2000)))
		}
		count := r.IntN(4)
		if n == 1 {
			count = 1 + r.IntN(3)
		}
		writes = append(writes, eventstore.To(x.hot[i], claim, tortureEventsOf(r, count)...))
	}
	if r.IntN(3) == 0 {
		writes = append(writes, eventstore.To(newStream("new"), eventstore.NoStream, tortureEventsOf(r, 1+r.IntN(2))...))
	}
	r.Shuffle(len(writes), func(i, k int) { writes[i], writes[k] = writes[k], writes[i] })
	return writes
}

// linger keeps a transaction open after it drew positions.
func linger(ctx context.Context, r *rand.Rand) {
	d := time.Duration(r.Int64N(int64(20 * time.Millisecond)))
	if r.IntN(100) == 0 {
		d = 1500 * time.Millisecond
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// txWrites are for a caller's transaction: mostly streams of its own, so that one that lingers does not stop all.
func (x *torture) txWrites(r *rand.Rand) []eventstore.Write {
	if r.IntN(10) == 0 {
		return x.randomWrites(r, 1+r.IntN(2))
	}
	return []eventstore.Write{
		eventstore.To(newStream("tx"), eventstore.NoStream, tortureEventsOf(r, 1+r.IntN(3))...),
		eventstore.Check(newStream("absent"), eventstore.NoStream),
		eventstore.To(newStream("tx"), eventstore.AnyVersion, tortureEventsOf(r, 1)...),
	}
}

// transaction appends inside a transaction that did other work first, lingers, and commits or rolls back.
func (x *torture) transaction(ctx context.Context, r *rand.Rand) error {
	tx, err := x.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing
	if r.IntN(2) == 0 {
		if _, err := tx.Exec(ctx, `SELECT pg_current_xact_id()`); err != nil {
			return err
		}
		linger(ctx, r)
	}
	writes := x.txWrites(r)
	result, err := x.store.WithTx(tx).Append(ctx, writes...)
	if errors.Is(err, eventstore.ErrConflict) {
		x.ledger.rolledBack(writes)
		x.count("conflict")
		return tx.Commit(ctx) // a conflict leaves the transaction usable
	}
	if err != nil {
		return err
	}
	linger(ctx, r)
	if r.IntN(10) == 0 {
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		x.ledger.rolledBack(writes)
		x.count("rolled back")
		return nil
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	x.ledger.committed(writes, result)
	x.count("transaction")
	return nil
}

// savepoint appends under a savepoint, which is released or rolled back, and then once more: the second append must be
// registered even though the first one's registration may be gone.
func (x *torture) savepoint(ctx context.Context, r *rand.Rand) error {
	tx, err := x.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	first := x.txWrites(r)
	firstResult, err := x.store.WithTx(inner).Append(ctx, first...)
	if err != nil {
		return err
	}
	released := r.IntN(2) == 0
	if released {
		err = inner.Commit(ctx)
	} else {
		linger(ctx, r)
		err = inner.Rollback(ctx)
	}
	if err != nil {
		return err
	}
	second := []eventstore.Write{eventstore.To(newStream("tx"), eventstore.NoStream, tortureEventsOf(r, 2)...)}
	secondResult, err := x.store.WithTx(tx).Append(ctx, second...)
	if err != nil {
		return err
	}
	linger(ctx, r)
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	x.ledger.committed(second, secondResult)
	if released {
		x.count("savepoint released")
		x.ledger.committed(first, firstResult)
	} else {
		x.count("savepoint rolled back")
		x.ledger.rolledBack(first)
	}
	return nil
}

// prepared commits in two phases, on another connection than the first one.
func (x *torture) prepared(ctx context.Context, r *rand.Rand) error {
	writes := []eventstore.Write{eventstore.To(newStream("prepared"), eventstore.NoStream, tortureEventsOf(r, 1+r.IntN(2))...)}
	gid := uuid.NewString()
	var result eventstore.AppendResult
	err := pgx.BeginFunc(ctx, x.pool, func(tx pgx.Tx) (err error) {
		if result, err = x.store.WithTx(tx).Append(ctx, writes...); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `PREPARE TRANSACTION '`+gid+`'`); err != nil {
			return err
		}
		return errPrepared
	})
	if !errors.Is(err, errPrepared) {
		return err
	}
	linger(ctx, r)
	if r.IntN(10) == 0 {
		if _, err := x.pool.Exec(ctx, `ROLLBACK PREPARED '`+gid+`'`); err != nil {
			return err
		}
		x.ledger.rolledBack(writes)
		return nil
	}
	if _, err := x.pool.Exec(ctx, `COMMIT PREPARED '`+gid+`'`); err != nil {
		return err
	}
	x.ledger.committed(writes, result)
	x.count("prepared")
	return nil
}

// errPrepared makes BeginFunc roll back, which does nothing after PREPARE TRANSACTION.
var errPrepared = errors.New("prepared")

// kill ends the connection of a writer in the middle of whatever it does.
func (x *torture) kill(r *rand.Rand) error {
	rows, err := x.admin.Query(context.Background(), `SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $1 AND state IN ('active', 'idle in transaction')`, tortureWriter)
	if err != nil {
		return err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil || len(pids) == 0 {
		return err
	}
	if _, err := x.admin.Exec(context.Background(), `SELECT pg_terminate_backend($1)`, pids[r.IntN(len(pids))]); err != nil {
		return err
	}
	x.count("killed")
	return nil
}

// attachRanges keeps ranges ahead of the writers, as a running store does.
func (x *torture) attachRanges(*rand.Rand) error {
	var added int
	if err := x.admin.QueryRow(context.Background(), `SELECT daybook.ensure_ranges(8)`).Scan(&added); err != nil {
		return err
	}
	for range added {
		x.count("range attached")
	}
	return nil
}

// finishPrepared commits what a killed writer left prepared, as an operator would; it would hold the head for ever.
func (x *torture) finishPrepared(*rand.Rand) error {
	rows, err := x.admin.Query(context.Background(),
		`SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND prepared < clock_timestamp() - interval '2 seconds'`)
	if err != nil {
		return err
	}
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, gid := range gids {
		var pgErr *pgconn.PgError
		if _, err := x.admin.Exec(context.Background(), `COMMIT PREPARED '`+gid+`'`); errors.As(err, &pgErr) && pgErr.Code == "42704" {
			continue // its writer came back
		} else if err != nil {
			return fmt.Errorf("commit prepared: %w", err)
		}
	}
	return nil
}

// holdUnrelated keeps a transaction with an id open that has nothing to do with the log.
func (x *torture) holdUnrelated(*rand.Rand) error {
	if x.stopped() {
		return nil
	}
	return pgx.BeginFunc(context.Background(), x.admin, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), `CREATE TEMPORARY TABLE IF NOT EXISTS unrelated ON COMMIT DROP AS SELECT 1`); err != nil {
			return err
		}
		x.count("unrelated")
		timer := time.NewTimer(4 * time.Second)
		defer timer.Stop()
		select {
		case <-x.stop:
		case <-timer.C:
		}
		return nil
	})
}
