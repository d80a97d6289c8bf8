package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/retry"
)

// failing is an instance that cannot take what was kept for it.
type failing struct {
	attempts int
	next     time.Time
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

// cannot puts an instance off that cannot take its next input. When it has failed often enough it is stuck, and is still
// tried, seldom: a program that is mended lets it go on. That takes the place of what it was stuck for before, which can only
// be decided about behind it, and which the progress brings back.
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
		if in == nil || in.held == 0 || in.paused || in.keptFails() { // others have done something meanwhile
			return errNothing
		}
		b.Queue(inSchema(cannotSQL, k.u.schema), k.u.name, p.key, p.run, k.u.clock(), text, some(keepStanding(in.progress, in.facts.Stuck)))
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
	cannotSQL = `
UPDATE {schema}.sagas s
   SET stuck = 'dead_letter', stuck_step = '', stuck_text = $5, stuck_since = coalesce($4::timestamptz, clock_timestamp()),
       progress = $6, entries = s.entries + 1, changed_at = coalesce($4::timestamptz, clock_timestamp()), revision = s.revision + 1
 WHERE s.saga = $1 AND s.key = $2 AND s.run = $3`

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
