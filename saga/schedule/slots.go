package schedule

import (
	"fmt"
	"time"
	_ "time/tzdata" // so that zones are known wherever the program runs
)

// calendar gives the slots of an expression in a zone. It is a value, and safe for concurrent use.
type calendar struct {
	cron cron
	zone *time.Location
}

// of gives the calendar of one tenant.
func (c calendar) of(job, tenant string) calendar { return calendar{c.cron.of(job, tenant), c.zone} }

// next is the first slot after an instant, in UTC. It depends on nothing else, so that all processes find the same.
//
// Between two changes of the clocks wall time is UTC and a constant, so that the calendar is searched stretch by
// stretch. A steady expression is due at each instant at which the wall clock fits. Any other is due once for each time
// of the calendar: the first of two instants, and the end of the gap when there is none.
func (c calendar) next(after time.Time) (time.Time, error) {
	at := after.In(c.zone)
	begin, end := at.ZoneBounds()
	offset := offsetAt(at)
	wall := at.UTC().Add(offset)
	if !c.cron.steady && !begin.IsZero() {
		// What the clock shows a second time is over: before the change it was shown up to here.
		if shown := begin.UTC().Add(offsetAt(begin.Add(-1)) - time.Second); wall.Before(shown) {
			wall = shown
		}
	}
	fits, err := c.cron.after(wall)
	if err != nil {
		return time.Time{}, err
	}
	for range maxChanges {
		slot := fits.Add(-offset)
		if end.IsZero() || slot.Before(end) {
			return slot, nil
		}
		change := end.In(c.zone)
		offset = offsetAt(change)
		switch now := change.UTC().Add(offset); {
		case !c.cron.steady && fits.Before(now):
			return change.UTC(), nil
		case c.cron.steady && (fits.Before(now) || !now.After(wall)): // in the gap, or shown again
			if fits, err = c.cron.after(now.Add(-time.Second)); err != nil {
				return time.Time{}, err
			}
		}
		_, end = change.ZoneBounds()
	}
	return time.Time{}, fmt.Errorf("schedule: %q in %s has no slot after %s within %d changes of the clocks",
		c.cron.expr, c.zone, after.UTC().Format(time.RFC3339), maxChanges)
}

// maxChanges is 100 years' worth of summer times.
const maxChanges = 200

func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}
