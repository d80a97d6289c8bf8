package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// endPatience bounds how long the end of a transaction is waited for whose caller has gone.
const endPatience = 5 * time.Second

// keyLock is the advisory lock of a key. Two keys that share one only wait for each other.
func (s *Store) keyLock(kind string, claim eventstore.Claim) int64 {
	h := sha256.New()
	for _, part := range []string{"daybook", kind, s.cfg.Schema, claim.Scope, claim.Key} { // none has a zero byte
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil)))
}

// heldKeys are the keys that this process holds. The zero value is ready.
type heldKeys struct {
	mu    sync.Mutex
	keys  map[int64]struct{}
	conns int32 // how many of them have a connection
}

// HoldKey holds the key with a transaction on a connection of the store's pool that does nothing else; see
// [eventstore.OnceAppender]. At most half of the connections hold keys, so that there are always some for appends: a key
// beyond that, as any key with [Config.MaxConns] 1, is held against callers of this Store only. [Store.Close] waits for the
// release.
func (s *Store) HoldKey(ctx context.Context, claim eventstore.Claim) (func(), error) {
	if err := claim.Validate(); err != nil {
		return nil, err
	}
	lock := s.keyLock("running", claim)
	known, connected := s.keys.hold(lock, s.cfg.MaxConns/2)
	if known {
		return nil, &eventstore.InProgressError{Scope: claim.Scope, Key: claim.Key}
	}
	if !connected {
		return sync.OnceFunc(func() { s.keys.release(lock, false) }), nil
	}
	tx, err := s.holdElsewhere(ctx, lock, claim)
	if err != nil {
		s.keys.release(lock, true)
		return nil, err
	}
	return sync.OnceFunc(func() {
		end(ctx, tx)
		s.keys.release(lock, true)
	}), nil
}

// holdElsewhere holds a key against other processes until the transaction ends.
func (s *Store) holdElsewhere(ctx context.Context, lock int64, claim eventstore.Claim) (pgx.Tx, error) {
	tx, err := s.pool.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("postgres: hold key: %w", err)
	}
	var free bool
	if err := tx.QueryRow(ctx, s.sql.holdKey, lock).Scan(&free); err != nil {
		end(ctx, tx)
		return nil, fmt.Errorf("postgres: hold key: %w", err)
	}
	if !free {
		end(ctx, tx)
		return nil, &eventstore.InProgressError{Scope: claim.Scope, Key: claim.Key}
	}
	return tx, nil
}

// end rolls tx back, which gives its connection back, also when ctx has ended. A connection on which even that fails is
// closed by the pool.
func end(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	_ = tx.Rollback(ctx) // the pool sees whether the connection can be used
}

// hold takes a key in this process. connected says that it may take one of at most most connections.
func (h *heldKeys) hold(lock int64, most int32) (known, connected bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.keys[lock]; known {
		return true, false
	}
	if h.keys == nil {
		h.keys = make(map[int64]struct{})
	}
	h.keys[lock] = struct{}{}
	if h.conns >= most {
		return false, false
	}
	h.conns++
	return false, true
}

func (h *heldKeys) release(lock int64, connected bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.keys, lock)
	if connected {
		h.conns--
	}
}
