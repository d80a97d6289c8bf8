package saga

import (
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/timers"
)

// writeTimers removes before it sets: what is cancelled and set anew is there. What is removed are ranges of names, of one
// or of all of an instance.
func (t *turn) writeTimers(b *pgx.Batch) {
	type span struct{ first, behind string }
	var gone []span
	var set []timers.Setting
	queue := timerQueue(t.u.name)
	for _, in := range t.order {
		ref := in.facts.Ref
		if in.cancelAll && !in.fresh {
			gone = append(gone, span{timerPrefix(ref), timersAfter(ref)})
		}
		for name, timer := range in.timers {
			full := timerName(ref, name)
			if timer == nil {
				gone = append(gone, span{full, full + "\x01"})
				continue
			}
			set = append(set, timers.Setting{Queue: queue, Name: full, After: timer.After, From: timer.From, Spread: timer.Spread, Does: storable(timer.Does)})
		}
	}
	if len(gone) > 0 {
		slices.SortFunc(gone, func(x, y span) int { return cmp.Compare(x.first, y.first) })
		first, behind := make([]string, len(gone)), make([]string, len(gone))
		for n, s := range gone {
			first[n], behind[n] = s.first, s.behind
		}
		b.Queue(t.u.sql.lockTimers, queue, first, behind)
		b.Queue(t.u.sql.cancel, queue, first, behind)
	}
	if len(set) > 0 {
		timers.Set(b, t.u.schema, t.u.clock(), set)
	}
	t.counts.timersSet += int64(len(set))
}

const (
	// lockTimersSQL waits for claims that are under way; behind it the timers stay where they are.
	lockTimersSQL = `
SELECT FROM unnest($2::text[], $3::text[]) AS u(first, behind)
 CROSS JOIN LATERAL (SELECT FROM {schema}.timers x WHERE x.queue = $1 AND x.name >= u.first AND x.name < u.behind ORDER BY x.name FOR UPDATE OF x) t`

	// cancelSQL: an array of names would not bound the scan in every plan.
	cancelSQL = `
DELETE FROM {schema}.timers WHERE ctid = ANY (ARRAY(
  SELECT t.at FROM unnest($2::text[], $3::text[]) AS u(first, behind)
   CROSS JOIN LATERAL (SELECT x.ctid AS at FROM {schema}.timers x WHERE x.queue = $1 AND x.name >= u.first AND x.name < u.behind ORDER BY x.name OFFSET 0) t))`
)
