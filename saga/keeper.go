package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/retry"
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

// failing is an instance that cannot take what was kept for it.
type failing struct {
	attempts int
	next     time.Time
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
	for _, p := range held {
		again, err := k.take(ctx, p)
		if err != nil {
			return false, err
		}
		more = more || again
	}
	if planned {
		again, err := k.carryOut(ctx)
		if err != nil {
			return false, err
		}
		more = more || again
	}
	again, err := k.clean(ctx)
	return more || again, err
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

// take lets an instance take what was kept for it, in order. It reports whether it took some.
func (k *keeper) take(ctx context.Context, p place) (bool, error) {
	f := k.failed[p]
	if f != nil && time.Now().Before(f.next) {
		return false, nil
	}
	for limit := takeAtOnce; ; {
		taken, at, err := k.takeSome(ctx, p, limit)
		switch {
		case err == nil:
			delete(k.failed, p)
			return taken > 0, nil
		case ctx.Err() != nil || !unwritable(err):
			return false, err
		case at > 0:
			limit = at // those before it
			continue
		case at < 0 && limit > 1: // it is not known which one cannot be written
			limit = 1
			continue
		}
		return false, k.cannot(ctx, p, f, err)
	}
}

// takeSome takes at most limit inputs. at is the one that failed, from 0; less: it is not known.
func (k *keeper) takeSome(ctx context.Context, p place, limit int) (taken, at int, err error) {
	u := k.u
	t := u.turn()
	at = -1
	err = k.transact(ctx, func(b *pgx.Batch) { t.load(b, nil, nil, []place{p}) }, func(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
		in := t.instances[p]
		if in == nil || in.paused || in.machine == nil || in.held == 0 {
			return errNothing
		}
		rows, err := tx.Query(ctx, u.sql.inputs, u.name, p.key, p.run, limit)
		if err != nil {
			return fmt.Errorf("saga: read what was kept for %s: %w", in.facts.Ref, err)
		}
		var input int64
		var body []byte
		var last int64
		var inputs []stimulus
		_, err = pgx.ForEachRow(rows, []any{&input, &body}, func() error {
			s, err := unhold(in.machine, body)
			if err != nil {
				at = len(inputs)
				return faultyReaction{err}
			}
			s.index, last = len(inputs), input
			inputs = append(inputs, s)
			return nil
		})
		if err != nil {
			return err
		}
		var suspects []sight
		for _, s := range inputs {
			if s.Event != nil && s.Event.Position.Ordinal() <= in.position {
				suspects = append(suspects, sight{p, s.Event.ID})
			}
		}
		seen, err := u.seen(ctx, tx, suspects)
		if err != nil {
			return err
		}
		had := map[sight]bool{}
		for n, s := range inputs {
			if s.Event != nil {
				id := sight{p, s.Event.ID}
				if seen[id] || had[id] {
					continue
				}
				had[id] = true
			}
			if s.Timer != "" && (in.ended() || in.touched(s.Timer)) {
				t.counts.timersIgnored++
				continue
			}
			apply := t.apply
			if s.Event != nil && !slices.Contains(u.reads[in.version], s.Event.Type) {
				apply = t.passBy
			}
			if err := apply(ctx, in, s); err != nil {
				at = n
				return faultyReaction{err}
			}
		}
		gone, err := k.timersBehind(ctx, tx, in, last)
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			b.Queue(inSchema(dropHeldSQL, u.schema), u.name, p.key, p.run, gone)
			t.counts.timersIgnored += int64(len(gone))
		}
		taken = len(inputs)
		b.Queue(u.sql.taken, u.name, p.key, p.run, last, taken+len(gone))
		return t.write(ctx, tx, b)
	})
	if errors.Is(err, errNothing) {
		return 0, 0, nil
	}
	if err == nil {
		u.committed(t)
	}
	return taken, at, err
}

// timersBehind are the timers among the inputs behind the last one that is taken now that what is taken has cancelled or set
// anew: they were set before, as all that comes for an instance that keeps inputs is kept.
func (k *keeper) timersBehind(ctx context.Context, tx pgx.Tx, in *instance, last int64) (gone []int64, err error) {
	if len(in.timers) == 0 && !in.cancelAll {
		return nil, nil
	}
	rows, err := tx.Query(ctx, inSchema(timersHeldSQL, k.u.schema), k.u.name, in.key, in.run, last)
	if err != nil {
		return nil, fmt.Errorf("saga: read the timers that were kept for %s: %w", in.facts.Ref, err)
	}
	var input int64
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&input, &body}, func() error {
		if s, err := unhold(in.machine, body); err == nil && in.touched(s.Timer) { // what cannot be read is found when it is taken
			gone = append(gone, input)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("saga: read the timers that were kept for %s: %w", in.facts.Ref, err)
	}
	return gone, nil
}

// errNothing ends a transaction that has nothing to do.
var errNothing = errors.New("saga: nothing to do")

// cannot puts an instance off that cannot take its next input. When it has failed often enough it is stuck, and is still
// tried, seldom: a program that is mended lets it go on.
func (k *keeper) cannot(ctx context.Context, p place, f *failing, cause error) error {
	if f == nil {
		f = &failing{}
		k.failed[p] = f
	}
	f.attempts++
	f.next = time.Now().Add(k.u.policy.Delay(f.attempts, nil))
	if !k.u.policy.Spent(f.attempts) {
		return nil
	}
	f.next = time.Now().Add(k.u.cfg.policy().WithDefaults().Cap)
	text := retry.Text(fmt.Sprintf(keptFailed+" %d times: %v", f.attempts, cause))
	t := k.u.turn()
	err := k.transact(ctx, func(b *pgx.Batch) { t.load(b, nil, nil, []place{p}) }, func(_ context.Context, _ pgx.Tx, b *pgx.Batch) error {
		in := t.instances[p]
		if in == nil || in.facts.Stuck.Reason != "" && in.facts.Stuck.Reason != flow.HandlerMissing {
			return errNothing
		}
		b.Queue(inSchema(cannotSQL, k.u.schema), k.u.name, p.key, p.run, k.u.clock(), text)
		t.sticks(in, flow.Stuck{Reason: flow.DeadLetter})
		in.history = append(in.history, flow.Entry{Kind: "stuck", Text: text})
		t.change(in, 0)
		t.writeHistory(b)
		return nil
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	if err == nil {
		k.u.committed(t)
	}
	return err
}

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

	// cannotSQL: that no program has its version is not so any more.
	cannotSQL = `
UPDATE {schema}.sagas s
   SET stuck = 'dead_letter', stuck_step = '', stuck_text = $5, stuck_since = coalesce($4::timestamptz, clock_timestamp()),
       entries = s.entries + 1, changed_at = coalesce($4::timestamptz, clock_timestamp()), revision = s.revision + 1
 WHERE s.saga = $1 AND s.key = $2 AND s.run = $3 AND s.stuck IN ('', 'handler_missing')`

	timersHeldSQL = `
SELECT input, body FROM {schema}.saga_inputs WHERE saga = $1 AND key = $2 AND run = $3 AND input > $4 AND kind = 'timer' ORDER BY input`

	dropHeldSQL = `DELETE FROM {schema}.saga_inputs WHERE saga = $1 AND key = $2 AND run = $3 AND input = ANY ($4::bigint[])`

	inputsSQL = `SELECT input, body FROM {schema}.saga_inputs WHERE saga = $1 AND key = $2 AND run = $3 ORDER BY input LIMIT $4`

	takenSQL = `
WITH gone AS (DELETE FROM {schema}.saga_inputs WHERE saga = $1 AND key = $2 AND run = $3 AND input <= $4)
UPDATE {schema}.sagas SET held = greatest(held - $5, 0),
       stuck = CASE stuck WHEN 'handler_missing' THEN '' ELSE stuck END, stuck_text = CASE stuck WHEN 'handler_missing' THEN '' ELSE stuck_text END,
       stuck_since = CASE stuck WHEN 'handler_missing' THEN NULL ELSE stuck_since END
 WHERE saga = $1 AND key = $2 AND run = $3`
)
