package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// hold keeps a message that came before its predecessor.
func (d *feed) hold(it *item) {
	d.waiting += len(it.deliveries)
	d.early[it.Partition].add(it)
}

// resume judges what one partition holds in memory, as far as nothing is missing any more and the step has room.
func (d *feed) resume(ctx context.Context, s *step, partition int) error {
	for d.begun[partition] && !s.full {
		it := d.early[partition].next(d.read[partition])
		if it == nil {
			return nil
		}
		d.waiting -= len(it.deliveries)
		switch done, err := d.place(ctx, s, it); {
		case err != nil || done == later:
			d.hold(it)
			s.full = true
			return err
		case done == held: // it waits for its marker
			return nil
		}
	}
	return nil
}

// resumeAll does so in all partitions, and reads what is stored where that is next.
func (d *feed) resumeAll(ctx context.Context, s *step) error {
	for p := range d.early {
		if len(d.early[p]) > 0 {
			if err := d.resume(ctx, s, p); err != nil {
				return err
			}
		}
		for g := d.gaps[p]; g != nil && !s.full && !g.previous.After(d.read[p]); g = d.gaps[p] {
			if again, err := d.resumeStored(ctx, s, p); err != nil || !again {
				return err
			}
		}
	}
	return nil
}

// resumeStored judges a page of what is stored of one partition. It reports false when the rest is for the next step.
func (d *feed) resumeStored(ctx context.Context, s *step, partition int) (bool, error) {
	page, err := d.in.readStored(ctx, d.db, partition, d.read[partition], d.f.Limit)
	if err != nil {
		return false, err
	}
	if len(page) == 0 { // the last of them is applied
		delete(d.gaps, partition)
		d.stale[partition] = true
		return true, nil
	}
	for _, it := range page {
		d.gaps[partition] = &storedGap{first: it.Position, previous: it.Previous, since: it.since}
		if it.Previous.After(d.read[partition]) {
			return true, nil
		}
		if s.full {
			return false, nil
		}
		switch done, err := d.place(ctx, s, it); {
		case err != nil:
			return false, err
		case done == later:
			s.full = true
			return false, nil
		}
	}
	return true, nil
}

// spill stores what has waited for long enough, or is too much, so that the broker may bring what it waits for.
func (d *feed) spill(s *step) {
	now := d.in.now()
	crowded := d.waiting > d.in.cfg.HoldAtMost
	for p := range d.early {
		if len(d.early[p]) == 0 || !crowded && d.gaps[p] == nil && now.Sub(d.early[p].oldest()) < d.in.cfg.HoldFor {
			continue
		}
		rest := d.early[p]
		d.early[p] = nil
		for _, it := range rest {
			d.waiting -= len(it.deliveries)
			switch {
			case !d.begun[p]: // before the beginning
				d.handed = append(d.handed, it.deliveries...)
			case !it.Previous.After(d.read[p]): // its marker is lost: it stands for itself
				it.patient = true
				d.pending = append(d.pending, it)
			default:
				d.store(s, it)
			}
		}
	}
}

func (d *feed) store(s *step, it *item) {
	s.queue = append(s.queue, func(b *pgx.Batch) { d.in.queueStore(b, it) })
	d.handed = append(d.handed, it.deliveries...)
	d.in.state.stored.Add(1)
	p := it.Partition
	if g := d.gaps[p]; g == nil {
		d.gaps[p] = &storedGap{first: it.Position, previous: it.Previous, since: it.since}
	} else if it.Position.Before(g.first) {
		g.first, g.previous = it.Position, it.Previous
	}
}

// due is when something is to be stored, or the alarm to be raised; zero when nothing waits.
func (d *feed) due() (due time.Time) {
	sooner := func(at time.Time) {
		if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	for _, h := range d.early {
		if len(h) > 0 {
			sooner(h.oldest().Add(d.in.cfg.HoldFor))
		}
	}
	now := d.in.now()
	for _, g := range d.gaps {
		if at := g.since.Add(d.in.cfg.GapAfter); at.After(now) {
			sooner(at)
		}
	}
	return due
}

// report tells which gaps have lasted for too long.
func (d *feed) report() {
	var gaps []Gap
	now := d.in.now()
	for p := range d.early {
		g := Gap{Partition: p, Applied: d.read[p]}
		if stored := d.gaps[p]; stored != nil {
			g.Missing, g.Since = stored.previous, stored.since
		}
		if h := d.early[p]; d.begun[p] && len(h) > 0 {
			if since := h.oldest(); g.Since.IsZero() || since.Before(g.Since) {
				g.Since = since
			}
			if g.Missing.IsZero() || h[0].Previous.Before(g.Missing) {
				g.Missing = h[0].Previous
			}
		}
		if !g.Since.IsZero() && now.Sub(g.Since) >= d.in.cfg.GapAfter && g.Missing.After(g.Applied) {
			gaps = append(gaps, g)
		}
	}
	d.in.report(gaps)
}
