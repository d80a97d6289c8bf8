package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrNotYours: a handler tried to end the transaction that carries the checkpoint.
var ErrNotYours = errors.New("consumer: the transaction is committed together with the checkpoint: return nil to commit it or an error to roll it back; " +
	"Begin gives a savepoint of your own")

// Guard returns tx for user code: it cannot be committed or rolled back. Begin gives savepoints, which can.
func Guard(tx pgx.Tx) pgx.Tx { return guarded{tx} }

type guarded struct{ pgx.Tx }

// Commit refuses.
func (guarded) Commit(context.Context) error { return ErrNotYours }

// Rollback refuses.
func (guarded) Rollback(context.Context) error { return ErrNotYours }

// CheckOpen reports what a handler left behind in spite of returning nil: a transaction that has failed, or has ended.
func CheckOpen(tx pgx.Tx) error {
	dead, state := connState(tx.Conn())
	switch {
	case dead:
		return errors.New("consumer: the handler returned nil, but the connection was closed: return the error of the statement that failed")
	case state == 'E':
		return errors.New("consumer: the handler returned nil, but a statement had failed: return its error, or run it in a savepoint (tx.Begin)")
	case state != 'T':
		return fmt.Errorf("consumer: the handler ended the transaction by itself: %w", ErrNotYours)
	}
	return nil
}
