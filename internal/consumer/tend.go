package consumer

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

const (
	// tendFor bounds how long what is set aside keeps the others waiting, beyond the one step that is done in any case.
	tendFor = 10 * time.Millisecond
	// glance is how long the owner looks for something new while there is more to tend.
	glance = time.Millisecond
	// unknownClock is how often the owner looks at a clock that is not the real one.
	unknownClock = 20 * time.Millisecond
)

// tend does some of what is due with sequences that are set aside, and says when to come again: zero when there is nothing
// to come for. While nothing is set aside it costs nothing.
func (a *application) tend() (until time.Time, err error) {
	if a.lease.parked.Len() == 0 && !a.plans.some {
		return time.Time{}, nil
	}
	for began := time.Now(); ; {
		if err := a.held.Err(); err != nil {
			return time.Time{}, err
		}
		did, err := a.step()
		if err != nil {
			return time.Time{}, err
		}
		if !did {
			return a.again(), nil
		}
		if time.Since(began) > tendFor || a.w.probing {
			return time.Now().Add(glance), nil
		}
	}
}

// again is when there will be something to do.
func (a *application) again() time.Time {
	if a.lease.parked.Len() == 0 && !a.plans.some {
		return time.Time{}
	}
	wait := lookEvery - time.Since(a.plans.looked)
	now := a.w.now()
	if at, ok := a.lease.parked.NextDue(); ok {
		wait = min(wait, at.Sub(now))
	}
	if len(a.plans.items) > 0 {
		wait = min(wait, a.plans.items[0].Due.Sub(now))
	}
	if a.w.cfg.Clock != nil {
		wait = min(wait, unknownClock)
	}
	return time.Now().Add(max(wait, glance))
}

// step does one thing: an item of a redrive, a letter that is due, or a page of what is queued.
func (a *application) step() (did bool, err error) {
	set := a.lease.parked
	item, ok, skip, err := a.Item()
	switch {
	case err != nil:
		return false, err
	case ok && skip:
		c := set.Change()
		c.End(item, parking.ItemSkipped, a.w.now())
		return true, a.commit(a.applied, c, func(*pgx.Batch) {})
	case ok:
		return true, a.redrive(item)
	}
	now := a.w.now()
	a.watch(now)
	seq, ok := set.Due(now)
	if !ok {
		return false, nil
	}
	if seq.State == parking.Draining {
		return true, a.drain(seq)
	}
	if a.runs(seq) && now.Before(seq.DueAt.Add(a.w.cfg.policy().WithDefaults().Cap)) { // it may yet end, and then this is an attempt
		set.PutOff(seq.Key, now.Add(lookEvery))
		return true, nil
	}
	if ok, wait := a.w.cfg.Budget.Retry(now); !ok {
		set.PutOff(seq.Key, now.Add(wait))
		return true, nil
	}
	return true, a.retry(seq, nil)
}

// runs reports whether a handler that was left still runs for the message of a letter.
func (a *application) runs(seq parking.Sequence) bool {
	return a.w.cfg.calls.runs(a.w.spec.Ref, seq.First)
}

// watch keeps a clock that was ahead, of this owner or of one before, from making a sequence wait for it: no pause is
// longer than the policy's.
func (a *application) watch(now time.Time) {
	now = now.Round(0)
	if a.seen.IsZero() || now.Before(a.seen.Add(-time.Second)) {
		a.lease.parked.NotAfter(now.Add(a.w.cfg.policy().WithDefaults().Cap))
	}
	a.seen = now
}

// redrive begins with an item, if its plan still lets it.
func (a *application) redrive(item parking.Item) error {
	may, again, err := parking.MayBegin(a.work, a.db, a.lease.parked.Owner(), item, a.w.now())
	switch {
	case err != nil:
		return a.unread(err)
	case may:
		seq, _ := a.lease.parked.Get(item.Key)
		return a.retry(seq, &item)
	case !again.IsZero():
		a.PutOffItem(item, again)
	}
	return nil
}

// retry applies the message of a letter once more. An item begins a new round.
func (a *application) retry(seq parking.Sequence, item *parking.Item) error {
	set := a.lease.parked
	l, err := parking.OpenLetter(a.work, a.db, set.Owner(), seq.Key)
	switch {
	case errors.Is(err, parking.ErrNotOpen): // if somebody has closed it, this owner cannot commit
		c := set.Change()
		c.Drain(seq.Key)
		return a.commit(a.applied, c, func(*pgx.Batch) {})
	case err != nil:
		return a.unread(err)
	}
	c := set.Change()
	now := a.w.now()
	redriven := item != nil
	if redriven {
		c.Begin(*item, now)
	} else if begun, ok := set.Item(seq.Key); ok {
		item = &begun
	}
	c.Applied(l, now)
	alone := seq.Queued == 0 && !seq.Last.After(l.Message.Position)
	if alone {
		c.Release(seq.Key)
	}
	if item != nil {
		c.End(*item, parking.ItemSucceeded, now)
	}
	events := []eventstore.RecordedEvent{l.Message}
	if a.runs(seq) && !redriven { // somebody who asks for it gets another one
		err = a.late(&stillRunsError{a.w.cfg.Timeout}, 1)
	} else {
		err = a.transact(withAttempt(a.work, l.Attempts+1), events, a.applied, c)
	}
	if err == nil {
		a.tended(ProbeRetried, alone)
		return nil
	}
	var failed *failedError
	switch {
	case !errors.As(err, &failed):
		return err
	case a.blame(failed) == eventstore.Environment:
		return a.away(l.Message, failed)
	}
	return a.failedAgain(l, failed, item, redriven)
}

// failedAgain writes down that a letter has failed once more. The attempt itself is rolled back.
func (a *application) failedAgain(l parking.Letter, failed *failedError, item *parking.Item, redriven bool) error {
	round := l.Round + 1
	if redriven {
		round = 1
	}
	f := a.w.failure(l.Message, failed.kind, failed.err, round)
	f.Topic = l.Topic
	c := a.lease.parked.Change()
	if redriven {
		c.Begin(*item, f.At)
	}
	c.Failed(l, f, redriven)
	if item != nil && f.Due.IsZero() {
		c.End(*item, parking.ItemFailed, f.At)
	}
	if err := a.commit(a.applied, c, func(*pgx.Batch) {}); err != nil {
		return err
	}
	a.w.probing = false
	a.tellFailure(f, l.Attempts+1)
	a.w.cfg.Probe(ProbeRetried)
	return nil
}

// tended tells of a step that is committed, and with whose effects.
func (a *application) tended(place string, released bool) {
	a.w.probing = false
	a.committed(a.applied)
	a.w.cfg.Probe(place)
	if released {
		a.w.cfg.Probe(ProbeReleased)
	}
}

// queue is a page of what is queued behind a letter.
type queue struct {
	events  []eventstore.RecordedEvent
	through eventstore.Position // everything up to here is in events
	all     bool                // nothing is behind it
}

// drain lets a page of what is queued go on, and releases the sequence when nothing is left. An event that fails becomes a
// letter, and the sequence waits for that.
func (a *application) drain(seq parking.Sequence) error {
	q, err := a.queued(seq)
	if err != nil {
		return err
	}
	set := a.lease.parked
	for n := a.withOthers(seq, q); ; {
		if n > 0 {
			if failed := a.condemns[q.events[0].Position]; failed != nil {
				return a.stuck(seq, q.events[0], failed)
			}
		}
		c := set.Change()
		through := q.through
		if n < len(q.events) {
			through = q.events[n-1].Position
		}
		c.Advance(seq.Key, through, n)
		released := q.all && n == len(q.events)
		if released {
			c.Release(seq.Key)
		}
		if a.keeps {
			c.Drop(seq.Key, through)
		}
		switch {
		case n == 0 && !released && through.Before(seq.First):
			if a.keeps { // a message that has a place, and no bytes
				set.Await(seq.Key)
			} else {
				set.PutOff(seq.Key, a.w.now().Add(firstPause))
			}
			return nil
		case n == 0:
			err = a.commit(a.applied, c, func(*pgx.Batch) {})
		default:
			err = a.transact(a.work, q.events[:n], a.applied, c)
		}
		if err == nil {
			a.tended(ProbeDrained, released)
			return nil
		}
		var failed *failedError
		switch {
		case !errors.As(err, &failed):
			return err
		case failed.kind == eventstore.Environment && failed.index <= 0:
			return a.away(q.events[0], failed)
		case failed.kind == eventstore.Environment:
			n = failed.index
		case failed.index > 0:
			a.condemns[q.events[failed.index].Position] = failed
			n = failed.index
		case failed.index < 0 && n > 1 && failed.late:
			a.alone[seq.Key] = q.events[n-1].Position
			n = 1
		case failed.index < 0 && n > 1:
			n /= 2
		case a.blame(failed) == eventstore.Environment:
			return a.away(q.events[0], failed)
		default:
			return a.stuck(seq, q.events[0], failed)
		}
	}
}

// withOthers is how many events of a page of what is queued are tried at once.
func (a *application) withOthers(seq parking.Sequence, q queue) int {
	n := a.atMost(len(q.events))
	if upTo, ok := a.alone[seq.Key]; ok && n > 0 {
		if !q.events[0].Position.After(upTo) {
			return 1
		}
		delete(a.alone, seq.Key)
	}
	return n
}

// blame judges a failure of a transaction that had one event.
func (a *application) blame(f *failedError) eventstore.FailureKind {
	if f.index < 0 {
		f.index, f.kind = 0, a.w.kindOf(f.err)
	}
	return f.kind
}

// stuck makes the first of what is queued a letter.
func (a *application) stuck(seq parking.Sequence, e eventstore.RecordedEvent, failed *failedError) error {
	f := a.w.failure(e, failed.kind, failed.err, 1)
	c := a.lease.parked.Change()
	c.Advance(seq.Key, eventstore.Position{}, 1)
	c.Park(f)
	if a.keeps {
		c.Drop(seq.Key, e.Position)
	}
	if err := a.commit(a.applied, c, func(*pgx.Batch) {}); err != nil {
		return err
	}
	a.w.probing = false
	delete(a.condemns, e.Position)
	if failed.late { // the one that they were tried alone for
		delete(a.alone, seq.Key)
	}
	a.tellFailure(f, 1)
	a.w.cfg.Probe(ProbeParked)
	return nil
}

// sequencePages bounds how much of a log is read for one step where one sequence cannot be read by itself.
const sequencePages = 4

// queued reads what comes next of a sequence: everything that was passed by, up to what this owner has committed.
func (a *application) queued(seq parking.Sequence) (queue, error) {
	limit := a.w.cfg.BatchSize
	if a.w.probing {
		limit = 1
	}
	if a.keeps {
		return a.heldOf(seq, limit)
	}
	q := queue{through: eventstore.PositionAt(seq.First.Ordinal() - 1)}
	upTo := a.applied.At(seq.Partition)
	if !q.through.Before(upTo) {
		q.all = true
		return q, nil
	}
	if r, ok := a.w.source.(SequenceReader); ok {
		page, err := r.ReadSequence(a.work, seq.Partition, seq.Sequence, q.through, upTo, a.lease.filter, limit)
		if err != nil {
			return q, a.lookedAt(err)
		}
		return q.reach(page.Events, page.Through, upTo), nil
	}
	for range sequencePages {
		page, err := a.w.source.ReadPage(a.work, q.through, a.lease.filter, limit)
		if err != nil {
			return q, a.lookedAt(err)
		}
		before := q.through
		var own []eventstore.RecordedEvent
		for _, e := range page.Events {
			if e.PartitionKey == seq.Sequence && !e.Position.After(upTo) {
				own = append(own, e)
			}
		}
		if q = q.reach(own, page.Through, upTo); q.all || len(q.events) >= limit || !q.through.After(before) {
			break
		}
	}
	return q, nil
}

func (q queue) reach(events []eventstore.RecordedEvent, through, upTo eventstore.Position) queue {
	q.events = append(q.events, events...)
	if through.After(q.through) {
		q.through = through
	}
	if !q.through.Before(upTo) {
		q.through, q.all = upTo, true
	}
	return q
}

// heldOf reads what is held, as far as it is there.
func (a *application) heldOf(seq parking.Sequence, limit int) (queue, error) {
	rows, err := parking.ReadHeld(a.work, a.db, a.lease.parked.Owner(), seq.Key, limit)
	if err != nil {
		return queue{}, a.unread(err)
	}
	q := queue{through: eventstore.PositionAt(seq.First.Ordinal() - 1), all: len(rows) < limit}
	for _, h := range rows {
		if !h.Present {
			q.all = false
			break
		}
		q.events = append(q.events, h.Message)
		q.through = h.Message.Position
	}
	return q, nil
}
