package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

const (
	// drainPage is how many messages that are queued are published again before others have their turn.
	drainPage = 50
	// glance is how long the relay looks for something new while there is more to tend.
	glance = time.Millisecond
	// glanceEvery is how often the relay reads what is new, whether it was told of something or not.
	glanceEvery = 50 * time.Millisecond
	// unknownClock is how often the relay looks at a clock that is not the real one.
	unknownClock = 20 * time.Millisecond
	// backward is how far the relay looks for the predecessor of a message at first, in positions.
	backward = 256
)

// tending reports whether there may be something to do for what is set aside.
func (l *publishing) tending() bool { return l.tenure.Parked().Len() > 0 || l.planned }

// tendAt is when there will be something to do; zero when there is nothing.
func (l *publishing) tendAt() time.Time {
	if !l.tending() {
		return time.Time{}
	}
	wait := lookEvery
	if at, ok := l.tenure.Parked().NextDue(); ok {
		wait = min(wait, at.Sub(l.tenure.Now()))
	}
	if l.cfg.Clock != nil {
		wait = min(wait, unknownClock)
	}
	return time.Now().Add(max(wait, glance))
}

// tend does one thing for what is set aside: an item of a redrive, a letter that is due, or a page of what is queued. What
// was published before is committed first, so that all that is queued lies at or below the cursor. It reports whether
// something was done, and not only put off because the broker is away.
func (l *publishing) tend(ctx context.Context) (tended bool, err error) {
	if !l.tending() {
		return false, nil
	}
	set := l.tenure.Parked()
	item, ok, skip, err := l.tenure.Item()
	l.planned = ok
	if err != nil {
		return false, err
	}
	seq, due := set.Due(l.tenure.Now())
	if !ok && !due {
		return false, nil
	}
	if err := l.commit(); err != nil {
		return false, err
	}
	defer func() {
		_, away := l.breaker.Open()
		tended = tended && err == nil && !away
	}()
	switch {
	case ok && skip:
		c := l.change()
		c.End(item, parking.ItemSkipped, l.tenure.Now())
		return true, l.commit()
	case ok:
		may, again, err := parking.MayBegin(l.tenure.Work(), l.tenure.DB(), set.Owner(), item, l.tenure.Now())
		switch {
		case err != nil:
			return false, fmt.Errorf("outbox: %w", err)
		case may:
			seq, _ = set.Get(item.Key)
			return true, l.retry(ctx, seq, &item)
		case !again.IsZero():
			l.tenure.PutOffItem(item, again)
		}
		return false, nil
	case seq.State == parking.Draining:
		return true, l.drain(ctx, seq)
	}
	if ok, wait := l.tenure.Budget().Retry(l.tenure.Now()); !ok {
		set.PutOff(seq.Key, l.tenure.Now().Add(wait))
		return false, nil
	}
	return true, l.retry(ctx, seq, nil)
}

// retry publishes the message of a letter once more. An item begins a new round.
func (l *publishing) retry(ctx context.Context, seq parking.Sequence, item *parking.Item) error {
	set := l.tenure.Parked()
	letter, err := parking.OpenLetter(l.tenure.Work(), l.tenure.DB(), set.Owner(), seq.Key)
	switch {
	case errors.Is(err, parking.ErrNotOpen): // if somebody has closed it, this relay cannot commit
		l.change().Drain(seq.Key)
		return l.commit()
	case err != nil:
		return fmt.Errorf("outbox: %w", err)
	}
	now, redriven := l.tenure.Now(), item != nil
	m := eventstore.OutboxMessage{RecordedEvent: letter.Message, Topic: seq.Topic}
	previous, err := l.before(&m, seq.Previous) // an operator's may be earlier
	if err != nil {
		return err
	}
	j := job{message: &m, topic: m.Topic, partition: m.Partition, position: m.Position, previous: previous}
	who, kind, err := l.again(ctx, &j)
	if err != nil {
		return err
	}
	if who == blameBroker {
		set.PutOff(seq.Key, now)
		if redriven {
			l.tenure.PutOffItem(*item, now)
		}
		return nil
	}
	c := l.change()
	if redriven {
		c.Begin(*item, now)
	} else if begun, ok := set.Item(seq.Key); ok {
		item = &begun
	}
	if who == blameNobody {
		c.Applied(letter, now)
		c.Follow(seq.Key, m.Position)
		if seq.Queued == 0 && !seq.Last.After(m.Position) {
			l.release(c, seq)
		}
		if item != nil {
			c.End(*item, parking.ItemSucceeded, now)
		}
		return l.commit()
	}
	round := letter.Round + 1
	if redriven {
		round = 1
	}
	f := l.failure(&j, kind, l.refusal, round)
	c.Failed(letter, f, redriven)
	l.failed = append(l.failed, failureTold{f, letter.Attempts + 1})
	if item != nil && f.Due.IsZero() {
		c.End(*item, parking.ItemFailed, now)
	}
	return l.commit()
}

func (l *publishing) release(c *parking.Changes, seq parking.Sequence) {
	c.Release(seq.Key)
	if l.tenure.Parked().Len() == 1 {
		l.log.Info("relay has set nothing aside any more", "topic", seq.Topic, "key", seq.Sequence)
	}
}

// again publishes a message as redriven, its marker before it: who has missed that one would wait for it. It says who is to
// blame if that does not succeed; after a refusal for which the broker is to blame it has rested.
func (l *publishing) again(ctx context.Context, j *job) (blame, eventstore.FailureKind, error) {
	defer l.lanes.clear()
	l.reach = l.through
	for _, as := range []form{asSkip, asRedriven} {
		next := *j
		next.as = as
		l.lanes.add(next)
	}
	_, _, refused := l.lanes.round(l.tenure.Work())
	l.took.note(l.lanes)
	if err := l.tenure.Work().Err(); err != nil || refused == nil {
		l.well()
		return blameNobody, 0, err
	}
	at := l.lanes.of(j.partition)
	if at.next == 0 { // the marker is refused; what is said of the message counts
		at.next, at.tries = 1, 0
		if at.err = l.lanes.try(at); at.err == nil {
			l.well()
			return blameNobody, 0, nil
		}
	}
	who, kind := l.judge(at)
	if err := l.tenure.Work().Err(); err != nil {
		return blameNobody, 0, err
	}
	switch who {
	case blameNobody:
		l.well()
	case blameBroker:
		l.troubled(refused)
		if !rest(ctx, l.breaker.Failed(time.Now())) {
			return blameBroker, kind, ctx.Err()
		}
	default:
		l.breaker.Succeeded()
		l.refusal = refused.Err
	}
	return who, kind, nil
}
