package postgres

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// ownPool is the store's pool. Who has streams locked works on the connection that holds the locks, by the context: all
// others may be taken by appends that wait for these very streams.
type ownPool struct {
	*pgxpool.Pool
	owner *Store
}

// lockedKey finds the heldConn of a store in a context.
type lockedKey struct{ owner *Store }

// heldConn is the transaction of who has streams locked. Its statements follow each other.
type heldConn struct {
	mu      sync.Mutex
	tx      pgx.Tx
	streams []string // that an append on another connection would wait for until the end of time; sorted
	key     *int64   // the same of a key
}

func (p *ownPool) held(ctx context.Context) *heldConn {
	h, _ := ctx.Value(lockedKey{p.owner}).(*heldConn)
	return h
}

// waitsForItself refuses an append on a connection of its own by who has its stream locked.
func (p *ownPool) waitsForItself(ctx context.Context, stream string) error {
	h := p.held(ctx)
	if h == nil {
		return nil
	}
	if _, mine := slices.BinarySearch(h.streams, stream); !mine {
		return nil
	}
	return &eventstore.InvalidError{
		Field: "Stream", Value: stream, Reason: "is locked by the caller itself", Remedy: "append through what WithStreamsLocked gives",
	}
}

// Query runs a query. The rows must be closed before the caller does anything else with the store.
func (p *ownPool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	h := p.held(ctx)
	if h == nil {
		return p.Pool.Query(ctx, sql, args...)
	}
	h.mu.Lock()
	rows, err := h.tx.Query(ctx, sql, args...)
	if err != nil {
		h.mu.Unlock()
		return rows, err
	}
	return &heldRows{Rows: rows, unlock: sync.OnceFunc(h.mu.Unlock)}, nil
}

// QueryRow runs a query. The row must be scanned before the caller does anything else with the store.
func (p *ownPool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	h := p.held(ctx)
	if h == nil {
		return p.Pool.QueryRow(ctx, sql, args...)
	}
	h.mu.Lock()
	return heldRow{h.tx.QueryRow(ctx, sql, args...), h.mu.Unlock}
}

// Exec runs a statement.
func (p *ownPool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	h := p.held(ctx)
	if h == nil {
		return p.Pool.Exec(ctx, sql, args...)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tx.Exec(ctx, sql, args...)
}

// SendBatch sends statements, which are one transaction only when they are sent outside of one.
func (p *ownPool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	h := p.held(ctx)
	if h == nil {
		return p.Pool.SendBatch(ctx, b)
	}
	h.mu.Lock()
	return heldBatch{h.tx.SendBatch(ctx, b), sync.OnceFunc(h.mu.Unlock)}
}

// with runs f on a connection.
func (p *ownPool) with(ctx context.Context, f func(conn *pgx.Conn) error) error {
	if h := p.held(ctx); h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		return f(h.tx.Conn())
	}
	conn, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return f(conn.Conn())
}

type heldRows struct {
	pgx.Rows
	unlock func()
}

// Close gives the connection back.
func (r *heldRows) Close() {
	r.Rows.Close()
	r.unlock()
}

// Next closes the rows behind the last one, as pgx does.
func (r *heldRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.Close()
	}
	return more
}

type heldRow struct {
	row    pgx.Row
	unlock func()
}

// Scan gives the connection back.
func (r heldRow) Scan(dest ...any) error {
	defer r.unlock()
	return r.row.Scan(dest...)
}

type heldBatch struct {
	pgx.BatchResults
	unlock func()
}

// Close gives the connection back.
func (b heldBatch) Close() error {
	defer b.unlock()
	return b.BatchResults.Close()
}
