package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// takeAtOnce bounds how many inputs of one instance are taken in one transaction, and how many instances one look finds.
	takeAtOnce = 200
	// actAtOnce bounds how many items of plans are carried out before the keeper looks at what else there is.
	actAtOnce = 100
	// cleanEvery is how often ended instances are looked for.
	cleanEvery = time.Minute
	// cleanAtOnce bounds how many of them one transaction removes.
	cleanAtOnce = 500
	// overdueAfter is how long a timer may be due without anybody claiming it, before it counts as overdue.
	overdueAfter = 30 * time.Second
)

// keeper does what is to be done besides events, replies and timers: inputs that were kept, decisions of operators, cleaning.
// Every process has one for each saga; rows that another works on are left to it.
type keeper struct {
	u       *unit
	db      *pgxpool.Pool
	failed  map[place]*failing // of inputs that were kept
	cleaned time.Time

	mu      sync.Mutex
	away    string // why the last look failed; empty: it did not
	since   time.Time
	overdue string
	stuck   stuckCount
	busy    time.Time // since when a definition is asked; zero: none is
}

// transact is [unit.transact] for at most Config.Timeout: then the context that definitions and the sender got ends.
func (k *keeper) transact(ctx context.Context, load func(*pgx.Batch), f func(context.Context, pgx.Tx, *pgx.Batch) error) error {
	ctx, cancel := context.WithTimeout(ctx, k.u.cfg.Timeout)
	defer cancel()
	k.asks(time.Now())
	defer k.asks(time.Time{})
	return k.u.transact(ctx, k.db, load, f)
}

func (k *keeper) asks(since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = since
}

// run looks every Config.Poll, and at once when it is told to, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(k.u.cfg.Poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		more, err := k.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		k.note(err)
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-k.u.kick:
		}
	}
}

func (k *keeper) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if (text == "") != (k.away == "") {
		k.since = time.Now()
		if err != nil {
			k.u.log.Warn("a saga's manager cannot look for what is to be done", "error", text)
		} else {
			k.u.log.Info("a saga's manager looks again for what is to be done")
		}
	}
	k.away = text
}

// turn does some of what there is to do, and reports whether there may be more.
func (k *keeper) turn(ctx context.Context) (more bool, err error) {
	var held []place
	var planned bool
	b := &pgx.Batch{}
	b.Queue("begin isolation level read committed read only")
	b.Queue(planSQL)
	b.Queue(customSQL)
	most := takeAtOnce + len(k.failed) // those that fail are found too, and must hide no others
	b.Queue(k.u.sql.look, k.u.name, k.u.versions(), most).Query(func(rows pgx.Rows) error {
		var p place
		_, err := pgx.ForEachRow(rows, []any{&p.key, &p.run}, func() error {
			held = append(held, p)
			return nil
		})
		return err
	})
	b.Queue(k.u.sql.planned, k.u.name, k.u.clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&planned) })
	var late *time.Time
	b.Queue(k.u.sql.late, timerQueue(k.u.name), k.u.clock(), overdueAfter).QueryRow(func(row pgx.Row) error { return row.Scan(&late) })
	var stuck stuckCount
	b.Queue(k.u.sql.stuckCount, k.u.name, stuckCap).QueryRow(stuck.scan)
	b.Queue("commit")
	if err := k.db.SendBatch(ctx, b).Close(); err != nil {
		return false, fmt.Errorf("saga: look for what %q has to do: %w", k.u.name, err)
	}
	k.lates(late, stuck)
	if len(held) < most { // these are all: what is not among them has been taken, or is paused
		for p := range k.failed {
			if !slices.Contains(held, p) {
				delete(k.failed, p)
			}
		}
	}
	var refused error
	for _, p := range held {
		again, err := k.take(ctx, p)
		switch {
		case err == nil:
		case !refuses(err):
			return false, err
		case refused == nil:
			refused = err
		}
		more = more || again
	}
	if planned {
		again, err := k.carryOut(ctx)
		if err != nil {
			return false, errors.Join(refused, err)
		}
		more = more || again
	}
	again, err := k.clean(ctx)
	return more || again, errors.Join(refused, err)
}

// refuses reports whether a database that is there and well says no: then others may have more luck, and must not wait for
// the one that it said no to.
func refuses(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !ofTheDatabase(pg.Code)
}

// lates notes since when timers are overdue that nobody has claimed, and how many instances are stuck.
func (k *keeper) lates(since *time.Time, stuck stuckCount) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.overdue, k.stuck = "", stuck
	if since != nil {
		k.overdue = "timers are overdue since " + since.UTC().Format(time.RFC3339) + ": nobody fires them, or too few processes do"
	}
}

// errNothing ends a transaction that has nothing to do.
var errNothing = errors.New("saga: nothing to do")

const (
	// customSQL: these statements run seldom. They take the first few in an order that one index has, and no other.
	customSQL = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`

	lookSQL = `
SELECT s.key, s.run FROM {schema}.sagas s
 WHERE s.saga = $1 AND s.held > 0 AND s.paused_at IS NULL AND s.version = ANY ($2::int[]) ORDER BY s.held LIMIT $3`

	// A timer that is due is visible since then, or since the lease of who has claimed it has ended.
	lateSQL = `
SELECT (SELECT t.visible_at FROM {schema}.timers t
         WHERE t.queue || '' = $1 AND t.visible_at < (SELECT coalesce($2::timestamptz, clock_timestamp()) - $3::interval) ORDER BY t.visible_at, t.id + 0 LIMIT 1)`
)
