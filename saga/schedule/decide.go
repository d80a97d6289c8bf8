package schedule

import (
	"fmt"
	"time"
)

const (
	// page is how many slots one decision looks at. What is left is decided next.
	page = 1000
	// begins is how many firings one decision begins.
	begins = 100
	// blocked is how soon a schedule is looked at again whose firing forbids another. Its end does so at once; this is for
	// when nobody saw it.
	blocked = time.Second
)

// row is a schedule as it stands.
type row struct {
	job, tenant      string
	expression, zone string
	missed           Missed
	overlap          Overlap
	tooLate          time.Duration
	next             time.Time
	last             *time.Time // the last that was decided
	seen             time.Time
}

// decision is what becomes of the slots that are due.
type decision struct {
	missed  []missedSlot
	start   []time.Time
	replace bool      // what is open
	waits   bool      // for what is open
	last    time.Time // the last slot that is decided now; zero: none
	next    time.Time // the first slot that is undecided
	again   time.Time // when to look again
}

type missedSlot struct {
	slot time.Time
	why  string
}

// decide is pure: it depends on nothing but the row, the time, and whether firings of it are open. The next slot follows
// from the last one, never from the time.
func (r row) decide(c calendar, now time.Time, open bool) (decision, error) {
	d := decision{next: r.next, again: r.next}
	if r.next.After(now) {
		return d, nil
	}
	if open && r.overlap == Forbid {
		d.waits, d.again = true, now.Add(blocked)
		return d, nil
	}
	for n := 0; !d.next.After(now); n++ {
		if r.overlap == Forbid && len(d.start) > 0 {
			break // the next one waits for its end
		}
		if n == page || len(d.start) == begins {
			break
		}
		slot := d.next
		following, err := c.next(slot)
		if err != nil {
			return decision{}, err
		}
		d.last, d.next = slot, following
		switch late := now.Sub(slot); {
		case r.missed != All && !following.After(now):
			d.missed = append(d.missed, missedSlot{slot, "a later slot was due"})
		case r.late(late):
			d.missed = append(d.missed, missedSlot{slot, tooLate(late)})
		default:
			d.start = append(d.start, slot)
		}
	}
	d.replace = r.overlap == Replace && open && len(d.start) > 0
	d.again = d.next
	return d, nil
}

// late says whether a slot that is so old may not begin any more.
func (r row) late(by time.Duration) bool {
	limit := r.tooLate
	if limit == 0 && r.missed == Skip {
		limit = skipGrace
	}
	return limit > 0 && by > limit
}

func tooLate(by time.Duration) string {
	return fmt.Sprintf("too late to start: it was due %v before", by.Round(time.Second))
}
