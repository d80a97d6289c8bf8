package commands

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// QueueConfig sets up a [Queue]. The zero value works.
type QueueConfig struct {
	// Schema is the PostgreSQL schema of the store. Default: [outbox.DefaultSchema].
	Schema Schema
	// Wake, usually that of the store, is called after each command that was stored, so that a dispatcher begins at once. Without
	// it the dispatcher looks within a second.
	Wake func()
}

// Queue accepts commands that are carried out later, and tells what became of them. It implements [bus.Operations] and
// is safe for concurrent use. It has nothing to close.
type Queue struct {
	pool   *pgxpool.Pool
	schema string
	wake   func()
	secret atomic.Pointer[[]byte] // of the store

	add, find, remembered, own string
}

var _ bus.Operations = (*Queue)(nil)

// NewQueue does not touch the database. pool stays the caller's.
func NewQueue(pool *pgxpool.Pool, cfg QueueConfig) (*Queue, error) {
	if pool == nil {
		return nil, errors.New("commands: new queue: pool is nil: pass the pool of the store's database")
	}
	q := &Queue{pool: pool, schema: string(cfg.Schema), wake: cfg.Wake}
	if q.schema == "" {
		q.schema = string(outbox.DefaultSchema)
	}
	if q.wake == nil {
		q.wake = func() {}
	}
	in := func(sql string) string { return inSchema(sql, q.schema) }
	q.add, q.find, q.remembered, q.own = in(addSQL), in(findSQL), in(rememberedSQL), in(secretSQL)
	return q, nil
}

// operations is the namespace of the ids of operations that are named by a key.
var operations = uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:daybook:operations"))

// OperationID is the id of the operation, and of the command, that was enqueued under a key of the caller's.
func OperationID(scope, key string) uuid.UUID {
	return uuid.NewSHA1(operations, fmt.Appendf(nil, "%d:%s%s", len(scope), scope, key))
}

// Enqueue stores a command and its operation, in state accepted, in one transaction of its own; when it returns nil the
// command will be carried out. Make it with Bus.Prepare. A command with a key of the caller's gets its id from scope and
// key ([OperationID]), any other keeps its own.
//
// It is idempotent: what was enqueued before, by id or by scope and key, is not stored again, and the id is that of the
// first. The same id or key with another type or other data is an [*eventstore.ReusedKeyError]. That is remembered for as
// long as the operation is kept. So a call that failed, for whatever reason, may be repeated as it is if the command
// has an id or a key; without them each call makes another command.
//
// Past the deadline of ctx nothing more is waited for; it is not that of the command.
func (q *Queue) Enqueue(ctx context.Context, c bus.Command) (uuid.UUID, error) {
	id, err := q.enqueue(ctx, c)
	if err != nil {
		return uuid.Nil, fmt.Errorf("commands: enqueue %q: %w", c.Type, err)
	}
	return id, nil
}

func (q *Queue) enqueue(ctx context.Context, c bus.Command) (uuid.UUID, error) {
	c, err := named(ctx, c)
	if err != nil {
		return uuid.Nil, err
	}
	m, err := message(c)
	if err != nil {
		return uuid.Nil, err
	}
	request, err := q.request(ctx, c)
	if err != nil {
		return uuid.Nil, err
	}
	var deadline *time.Time
	if !c.Deadline.IsZero() {
		deadline = &c.Deadline
	}
	added := false
	err = pgx.BeginTxFunc(ctx, q.pool, brief(restLimit), func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, q.add, c.ID.String(), c.Scope, c.Type, request, deadline)
		if added = tag.RowsAffected() == 1; err != nil || !added {
			return err
		}
		return outbox.Schema(q.schema).Enqueue(ctx, tx, m)
	})
	if err != nil {
		return uuid.Nil, err
	}
	if added {
		q.wake()
		return c.ID, nil
	}
	var same bool
	switch err := q.pool.QueryRow(ctx, q.remembered, c.ID.String(), c.Scope, request).Scan(&same); {
	case errors.Is(err, pgx.ErrNoRows): // removed since, long after its end
		return c.ID, nil
	case err != nil:
		return uuid.Nil, err
	case !same:
		return uuid.Nil, &eventstore.ReusedKeyError{Scope: c.Scope, Key: keyOf(c)}
	}
	return c.ID, nil
}

func keyOf(c bus.Command) string {
	if c.Key == "" {
		return c.ID.String()
	}
	return c.Key
}

// request is the keyed hash of what is asked. Who reads the table cannot try out what that was.
func (q *Queue) request(ctx context.Context, c bus.Command) ([]byte, error) {
	secret := q.secret.Load()
	if secret == nil {
		var own []byte
		if err := q.pool.QueryRow(ctx, q.own).Scan(&own); err != nil {
			return nil, err
		}
		secret = &own
		q.secret.Store(secret)
	}
	// Type and data, as for a command that is carried out at once: a repeat under another precondition is a repeat.
	h := hmac.New(sha256.New, *secret)
	parts := [][]byte{[]byte("operation"), []byte(c.Type), c.Data}
	if c.To != "" { // else the data says it
		parts = append(parts, []byte(c.To))
	}
	for _, part := range parts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return h.Sum(nil), nil
}

const (
	addSQL = `
INSERT INTO {schema}.operations (id, scope, type, request, deadline) VALUES ($1::uuid, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`

	// A row that a dispatcher made for a command that came without a queue has no request.
	rememberedSQL = `SELECT o.scope = $2 AND (o.request = $3 OR o.request = '') FROM {schema}.operations o WHERE o.id = $1::uuid`

	secretSQL = `SELECT s.secret FROM {schema}.store s`
)
