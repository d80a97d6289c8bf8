package saga

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// DB is what instances are read from and operators write to: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx. What operators write
// on a pgx.Tx is committed by its owner, and sequential scans are off for the rest of it.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// An ExplainOption changes what [Explain] and the functions beside it read.
type ExplainOption func(*explaining)

type explaining struct {
	schema  string
	run     int
	at      time.Time
	overdue time.Duration
}

// InSchema names the PostgreSQL schema of the store. Default "daybook".
func InSchema(schema string) ExplainOption { return func(o *explaining) { o.schema = schema } }

// OfRun asks for one run, from 1. Default: the one that is under way, else the last.
func OfRun(run int) ExplainOption { return func(o *explaining) { o.run = run } }

// At says what time it is. Default: the database's clock.
func At(now time.Time) ExplainOption { return func(o *explaining) { o.at = now } }

// OverdueAfter is how long a step without a deadline may wait for an answer before that is a problem. Default 1 h.
func OverdueAfter(d time.Duration) ExplainOption { return func(o *explaining) { o.overdue = d } }

const (
	explainDefaultSchema  = "daybook"
	explainDefaultOverdue = time.Hour
	// explainPatience is how long what should go at once may stay where it is.
	explainPatience = 30 * time.Second
	// explainTimeout bounds each statement, in the server.
	explainTimeout = 10 * time.Second
)

func explainOptions(options []ExplainOption) explaining {
	o := explaining{schema: explainDefaultSchema, overdue: explainDefaultOverdue}
	for _, option := range options {
		option(&o)
	}
	if o.schema == "" {
		o.schema = explainDefaultSchema
	}
	if o.overdue <= 0 {
		o.overdue = explainDefaultOverdue
	}
	return o
}

func (o explaining) sql(text string) string {
	return strings.ReplaceAll(text, "{schema}", pgx.Identifier{o.schema}.Sanitize())
}

// Explain says where an instance is and why: what it waits for, what became of what it sent, what happens
// next, and what keeps it. It reads one moment, changes nothing, and needs no program that knows the definition. What it
// reads is bounded, and found by indexes. On a transaction of the caller's it reads what that sees.
//
// No such instance is a [*NoInstanceError], which matches [ErrNoInstance].
func Explain(ctx context.Context, db DB, saga, key string, options ...ExplainOption) (Explanation, error) {
	o := explainOptions(options)
	var e Explanation
	if err := errors.Join(explainNames(saga, key), explainRun(o.run)); err != nil {
		return e, err
	}
	err := o.read(ctx, db, "explain", func(tx pgx.Tx) error {
		r := reading{explaining: o, tx: tx}
		if err := r.all(ctx, saga, key); err != nil {
			return err
		}
		e = r.explain()
		return nil
	})
	return e, err
}

func explainRun(run int) error {
	if run < 0 || run > math.MaxInt32 {
		return opInvalid("OfRun", fmt.Sprint(run), "is no run", "name a run from 1, or leave it out for the last")
	}
	return nil
}

// read runs f in a transaction that sees one moment, is bounded in time, and never reads a table whole because the planner
// was told of it when it was empty.
func (o explaining) read(ctx context.Context, db DB, what string, f func(pgx.Tx) error) error {
	if db == nil {
		return fmt.Errorf("saga: %s: db is nil: pass the pool of the store's database", what)
	}
	var tx pgx.Tx
	var err error
	if beginner, ok := db.(interface {
		BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
	}); ok {
		tx, err = beginner.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	} else { // a transaction of the caller's: what is set here goes with the savepoint
		tx, err = db.Begin(ctx)
	}
	if err != nil {
		return opFail(what, o.schema, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has only read
	if _, err := tx.Exec(ctx, explainPlanSQL, fmt.Sprint(explainTimeout.Milliseconds())); err != nil {
		return opFail(what, o.schema, err)
	}
	if err := f(tx); err != nil {
		return opFail(what, o.schema, err)
	}
	return nil
}

const explainPlanSQL = `SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
  set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)`

// explainNames checks what a row is found by.
func explainNames(saga string, keys ...string) error {
	if saga == "" {
		return opInvalid("saga", "", "is empty", "name the saga")
	}
	for _, name := range append([]string{saga}, keys...) {
		if name == "" || !opStorable(name) {
			return opInvalid("saga or key", fmt.Sprintf("%.200q", name), "is empty, has a zero byte, or is not UTF-8", "name what is stored")
		}
		if len(name) > maxKey {
			return opInvalid("saga or key", fmt.Sprintf("%.100q…", name), opLong(name, maxKey)+", which none has", "name what is stored")
		}
	}
	return nil
}

func explainPosition(p int64) string {
	if p == 0 {
		return ""
	}
	return eventstore.PositionAt(p).String()
}
