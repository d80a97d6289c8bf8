package schedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/timers"
)

// replaceGrace is how long a firing that is replaced has to return before the next one begins.
const replaceGrace = 5 * time.Second

// begun is a firing that was written down.
type begun struct {
	key
	slot time.Time
}

// decideDue decides about schedules that are due. The rows are the truth, and timers only say when to look: whoever holds the
// locks of the rows may decide, and finds nothing to do when another has.
func (r *Runner) decideDue(ctx context.Context, due []timers.Timer) error {
	keys := make([]key, len(due))
	for i, t := range due {
		keys[i] = keyOf(t.Name)
	}
	jobs, tenants := columns(keys)
	var started []begun
	var soonest time.Duration
	err := r.inTx(ctx, func(tx pgx.Tx) error {
		started = nil
		rows, now, err := r.lockRows(ctx, tx, jobs, tenants)
		if err != nil {
			return err
		}
		open, err := r.openOf(ctx, tx, jobs, tenants)
		if err != nil {
			return err
		}
		t := &tick{r: r, now: now, decided: map[key]decision{}}
		for i, k := range keys {
			row, there := rows[k]
			if !there || r.orphaned(row, now) {
				t.gone = append(t.gone, due[i])
				continue
			}
			c, err := r.calendarOf(row.expression, row.zone)
			if err != nil {
				return fmt.Errorf("schedule: %s: as it is stored: %w", title(k.job, k.tenant), err)
			}
			d, err := row.decide(c.of(k.job, k.tenant), now, len(open[k]) > 0)
			if err != nil {
				return err
			}
			t.decided[k] = d
			if d.waits {
				t.waits = append(t.waits, due[i])
			}
			if wait := d.again.Sub(now); len(t.decided) == 1 || wait < soonest {
				soonest = wait
			}
		}
		if started, err = t.write(ctx, tx, open); err == nil {
			r.cfg.probe(probeDecided)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range started {
		if w := r.byName[f.job]; w != nil {
			w.runs.Wake()
		}
	}
	if soonest < 2*r.cfg.Poll {
		r.ticks.Wake()
	}
	return nil
}

// orphaned says whether nobody knows the schedule any more. Its row stays, and has a timer again as soon as somebody does.
func (r *Runner) orphaned(s row, now time.Time) bool {
	w := r.byName[s.job]
	return (w == nil || !w.knows(s.tenant)) && now.Sub(s.seen) > forgotten
}

// openOf returns the slots that have not come to an end.
func (r *Runner) openOf(ctx context.Context, tx pgx.Tx, jobs, tenants []string) (map[key][]time.Time, error) {
	rows, err := tx.Query(ctx, r.sql(openSQL), jobs, tenants)
	if err != nil {
		return nil, err
	}
	open := map[key][]time.Time{}
	var k key
	var slot time.Time
	_, err = pgx.ForEachRow(rows, []any{&k.job, &k.tenant, &slot}, func() error {
		open[k] = append(open[k], slot)
		return nil
	})
	return open, err
}

// tick collects what is written for the schedules of one transaction.
type tick struct {
	r       *Runner
	now     time.Time
	decided map[key]decision
	gone    []timers.Timer // of schedules that nobody looks at any more
	waits   []timers.Timer // of schedules that wait for a firing
}

func (t *tick) write(ctx context.Context, tx pgx.Tx, open map[key][]time.Time) ([]begun, error) {
	if err := t.replace(ctx, tx, open); err != nil {
		return nil, err
	}
	started, err := t.insert(ctx, tx)
	if err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	var settings []timers.Setting
	for _, f := range started {
		s := timers.Setting{Queue: queueOf(f.job), Name: nameOf(f.tenant, f.slot), From: t.now, Does: fmt.Sprintf("runs %s for %s", title(f.job, f.tenant), f.slot.Format(slotForm))}
		if t.decided[f.key].replace {
			s.After = replaceGrace
		}
		settings = append(settings, s)
	}
	if len(settings) > 0 {
		timers.Set(b, t.r.cfg.Schema, &t.now, settings)
	}
	if err := send(ctx, tx, b); err != nil {
		return nil, err
	}
	return started, t.rearm(ctx, tx)
}

// rearm sets when to look again. What waits for a firing has been set anew by its end, if that came first.
func (t *tick) rearm(ctx context.Context, tx pgx.Tx) error {
	held, err := timers.Held(ctx, tx, t.r.cfg.Schema, append(t.waits, t.gone...))
	if err != nil {
		return err
	}
	still := map[key]timers.Timer{}
	for _, timer := range held {
		still[keyOf(timer.Name)] = timer
	}
	b := &pgx.Batch{}
	var settings []timers.Setting
	var keys []key
	var next, last []time.Time
	for k, d := range t.decided {
		if _, ok := still[k]; ok || !d.waits {
			settings = append(settings, tickOf(k.job, k.tenant, d.again))
		}
		if !d.last.IsZero() {
			keys, next, last = append(keys, k), append(next, d.next), append(last, d.last)
		}
	}
	jobs, tenants := columns(keys)
	b.Queue(t.r.sql(nextSQL), jobs, tenants, next, last)
	if len(settings) > 0 {
		timers.Set(b, t.r.cfg.Schema, &t.now, settings)
	}
	var over []timers.Timer
	for _, timer := range t.gone {
		if held, ok := still[keyOf(timer.Name)]; ok {
			over = append(over, held)
		}
	}
	timers.Finish(b, t.r.cfg.Schema, over)
	return send(ctx, tx, b)
}

// replace takes the firings that are open from whoever carries them out.
func (t *tick) replace(ctx context.Context, tx pgx.Tx, open map[key][]time.Time) error {
	b := &pgx.Batch{}
	var keys []key
	for k, d := range t.decided {
		if !d.replace {
			continue
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, key.compare)
	for _, k := range keys {
		var names []string
		for _, slot := range open[k] {
			names = append(names, nameOf(k.tenant, slot))
		}
		timers.Cancel(b, t.r.cfg.Schema, queueOf(k.job), names)
	}
	if len(keys) > 0 {
		jobs, tenants := columns(keys)
		b.Queue(t.r.sql(replaceSQL), jobs, tenants, t.now)
	}
	return send(ctx, tx, b)
}

// insert writes the slots down, and returns those that are to be run. A slot that is there already has been decided: by a
// clock that went back, or by somebody who changed the row by hand.
func (t *tick) insert(ctx context.Context, tx pgx.Tx) ([]begun, error) {
	var keys []key
	var slots []time.Time
	var whys []string
	for k, d := range t.decided {
		for _, m := range d.missed {
			keys, slots, whys = append(keys, k), append(slots, m.slot), append(whys, m.why)
		}
		for _, slot := range d.start {
			keys, slots, whys = append(keys, k), append(slots, slot), append(whys, "")
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	jobs, tenants := columns(keys)
	rows, err := tx.Query(ctx, t.r.sql(insertSQL), jobs, tenants, slots, whys, t.now)
	if err != nil {
		return nil, err
	}
	var started []begun
	var f begun
	var state string
	_, err = pgx.ForEachRow(rows, []any{&f.job, &f.tenant, &f.slot, &state}, func() error {
		if f.slot = f.slot.UTC(); state == waiting {
			started = append(started, f)
		}
		return nil
	})
	return started, err
}

const (
	openSQL = `
SELECT f.job, f.tenant, f.slot FROM unnest($1::text[], $2::text[]) AS k(job, tenant)
  JOIN {schema}.schedule_firings f ON f.job = k.job AND f.tenant = k.tenant AND f.ended_at IS NULL
 ORDER BY f.job, f.tenant, f.slot`

	replaceSQL = `
UPDATE {schema}.schedule_firings f SET state = 'replaced', ended_at = $3, error = 'a later slot was due'
  FROM unnest($1::text[], $2::text[]) AS k(job, tenant) WHERE f.job = k.job AND f.tenant = k.tenant AND f.ended_at IS NULL`

	insertSQL = `
INSERT INTO {schema}.schedule_firings (job, tenant, slot, state, error, ended_at)
SELECT job, tenant, slot, CASE why WHEN '' THEN 'waiting' ELSE 'missed' END, why, CASE why WHEN '' THEN NULL ELSE $5::timestamptz END
  FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[]) AS d(job, tenant, slot, why)
 ORDER BY job, tenant, slot
ON CONFLICT DO NOTHING RETURNING job, tenant, slot, state`

	nextSQL = `
UPDATE {schema}.schedules s SET next_slot = d.next, last_slot = d.last
  FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS d(job, tenant, next, last) WHERE s.job = d.job AND s.tenant = d.tenant`
)
