package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultSchema    = "daybook"
	defaultRetention = 30 * 24 * time.Hour
	defaultAlarm     = time.Hour
	defaultEvery     = time.Minute
	defaultFresh     = 5 * time.Second
	defaultTimeout   = 10 * time.Second
)

// Config of [Letters]. The zero value works.
type Config struct {
	// Schema is the PostgreSQL schema of the store. Default "daybook".
	Schema string
	// Retention is how long closed letters, and plans that have ended, are kept by [Letters.Run]. Let it be longer than what
	// the source of the messages keeps. Open letters are kept for ever. Default 30 days.
	Retention time.Duration
	// AlarmAfter is how long a sequence may be set aside before [Letters.Health] is not ready. Negative: for ever.
	// Default 1 h.
	AlarmAfter time.Duration
	// Every is how often [Letters.Run] looks, and removes what is older than the retention. Default 1 min.
	Every time.Duration
	// Fresh is how old an answer of [Letters.Status] may be: scrapes and probes within it share one query. Default 5 s.
	Fresh time.Duration
	// Timeout bounds each statement that reads, in the server. Default 10 s.
	Timeout time.Duration
	// Logger gets a line when sequences begin to be set aside for longer than AlarmAfter, and when that is over.
	// Default: none.
	Logger *slog.Logger
}

// validate joins all faults.
func (c Config) validate() error {
	var faults []error
	for _, d := range []struct {
		name       string
		value, def time.Duration
	}{
		{"Retention", c.Retention, defaultRetention},
		{"Every", c.Every, defaultEvery},
		{"Fresh", c.Fresh, defaultFresh},
		{"Timeout", c.Timeout, defaultTimeout},
	} {
		if d.value < 0 {
			faults = append(faults, fmt.Errorf("deadletter: Config.%s: %v: must be positive, or 0 for %v", d.name, d.value, d.def))
		}
	}
	if strings.IndexByte(c.Schema, 0) >= 0 {
		faults = append(faults, fmt.Errorf("deadletter: Config.Schema: %q: has a zero byte: name a schema", c.Schema))
	}
	return errors.Join(faults...)
}

// Letters are the dead letters of a store. Its methods are safe for concurrent use, also by several processes: each
// change is guarded by the state that it read.
type Letters struct {
	pool *pgxpool.Pool
	cfg  Config

	mu     sync.Mutex // held while the database is asked, so that scrapes at one moment share one query
	status []ConsumerStatus
	asked  time.Time
}

// New gives the letters of the store in the database of pool. It does not connect. The error names all faults of cfg.
func New(pool *pgxpool.Pool, cfg Config) (*Letters, error) {
	err := cfg.validate()
	if pool == nil {
		err = errors.Join(errors.New("deadletter: pool is nil: pass the pool of the store's database"), err)
	}
	if err != nil {
		return nil, err
	}
	cfg.Schema = cmp.Or(cfg.Schema, defaultSchema)
	cfg.Retention = cmp.Or(cfg.Retention, defaultRetention)
	cfg.AlarmAfter = cmp.Or(cfg.AlarmAfter, defaultAlarm)
	cfg.Every = cmp.Or(cfg.Every, defaultEvery)
	cfg.Fresh = cmp.Or(cfg.Fresh, defaultFresh)
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Letters{pool: pool, cfg: cfg}, nil
}

func (l *Letters) sql(text string) string {
	return strings.ReplaceAll(text, "{schema}", pgx.Identifier{l.cfg.Schema}.Sanitize())
}

// read runs f in a transaction that sees one moment, is bounded in time, and never reads a table whole because the
// planner was told of it when it was empty.
func (l *Letters) read(ctx context.Context, what string, f func(pgx.Tx) error) error {
	return l.inTx(ctx, what, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, planSQL, fmt.Sprint(l.cfg.Timeout.Milliseconds())); err != nil {
			return err
		}
		return f(tx)
	})
}

const planSQL = `SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
  set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)`

const (
	// lockPatience is shorter than the time after which the server looks for a deadlock: an owner takes the rows of letters
	// first and that of its segment last, an operator the other way round. Who changes letters steps back.
	lockPatience = 300 * time.Millisecond
	lockTries    = 30
)

// write runs f in a transaction, again from the start when something that it needs was locked for too long.
func (l *Letters) write(ctx context.Context, what string, f func(pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := l.inTx(ctx, what, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, writePlanSQL, fmt.Sprint(lockPatience.Milliseconds())); err != nil {
				return err
			}
			return f(tx)
		})
		if !locked(err) {
			return err
		}
		if try == lockTries {
			return fmt.Errorf("%w: the rows stayed locked by others: try again", err)
		}
		pause := time.NewTimer(time.Duration(rand.Int64N(int64(lockPatience))))
		select {
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("deadletter: %s: %w", what, ctx.Err())
		case <-pause.C:
		}
	}
}

const writePlanSQL = `SELECT set_config('lock_timeout', $1, true), set_config('enable_seqscan', 'off', true),
  set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)`

func (l *Letters) inTx(ctx context.Context, what string, opts pgx.TxOptions, f func(pgx.Tx) error) error {
	tx, err := l.pool.BeginTx(ctx, opts)
	if err != nil {
		return l.fail(what, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after the commit it does nothing
	if err := f(tx); err != nil {
		return l.fail(what, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return l.fail(what, err)
	}
	return nil
}

// fail says what could not be done. What names itself stays as it is.
func (l *Letters) fail(what string, err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, ErrRefused) || errors.Is(err, ErrNotFound) || strings.HasPrefix(err.Error(), "deadletter: "):
		return err
	case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000"): // no such table, no such schema
		return fmt.Errorf("deadletter: %s: no tables of dead letters in schema %q: run `daybook migrate`, or call postgres.Migrate: %w", what, l.cfg.Schema, err)
	case errors.As(err, &pg) && pg.Code == "57014" && ctxless(err):
		return fmt.Errorf("deadletter: %s: it took too long: name the consumer and its version, or raise Config.Timeout: %w", what, err)
	}
	return fmt.Errorf("deadletter: %s: %w", what, err)
}

// ctxless: the server broke it off, nobody asked for that.
func ctxless(err error) bool {
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// locked: somebody held a row, and nothing was written.
func locked(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01")
}
