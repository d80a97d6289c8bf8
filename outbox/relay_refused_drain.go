package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/parking"
)

// drain publishes a page of what is queued, each as redriven, and releases the sequence when nothing is left. One that is
// refused becomes a letter, and the sequence waits for that.
func (l *publishing) drain(ctx context.Context, seq parking.Sequence) error {
	previous, told, err := l.tellDiscarded(ctx, seq)
	if err != nil || !told {
		return err
	}
	after := eventstore.PositionAt(seq.First.Ordinal() - 1)
	page, err := l.rows.ReadPage(l.tenure.Work(), eventstore.OutboxQuery{
		Topic: seq.Topic, Partition: seq.Partition, PartitionKey: seq.Sequence, After: after, UpTo: l.through, Limit: drainPage,
	})
	switch {
	case err != nil:
		return fmt.Errorf("outbox: read what is queued after position %s: %w", after, err)
	case page.Cleaned.After(after) && page.Cleaned.After(seq.Previous) && !page.Cleaned.Before(seq.First):
		return consumer.Stop(fmt.Errorf("outbox: messages of key %q on topic %q are set aside from position %s on, and the outbox is cleaned up to %s: "+
			"rows were removed by hand; find out which, and remove the sequence from what is set aside", seq.Sequence, seq.Topic, seq.First, page.Cleaned))
	}
	c := l.change()
	for i := range page.Messages {
		m := &page.Messages[i]
		if previous, err = l.before(m, previous); err != nil {
			return err
		}
		j := job{message: m, topic: m.Topic, partition: m.Partition, position: m.Position, previous: previous}
		who, kind, err := l.again(ctx, &j)
		if err != nil {
			return errors.Join(err, l.commit())
		}
		switch who {
		case blameBroker:
			l.tenure.Parked().PutOff(seq.Key, l.tenure.Now())
			return l.commit()
		case blameNobody:
			previous = m.Position
			c.Advance(seq.Key, m.Position, 1)
			c.Follow(seq.Key, m.Position)
			continue
		}
		c.Advance(seq.Key, eventstore.Position{}, 1)
		f := l.failure(&j, kind, l.refusal, 1)
		c.Park(f)
		l.failed = append(l.failed, failureTold{f, 1})
		return l.commit()
	}
	if through := page.Through; through.Before(l.through) {
		if through.After(after) {
			c.Advance(seq.Key, through, 0)
		}
	} else {
		l.release(c, seq)
	}
	return l.commit()
}

// tellDiscarded publishes, for each letter before what is queued that somebody has discarded, that its message never comes:
// who has a row for it would wait for ever. It returns the last message of the chain that the key is done with, and false when
// the broker does not take it: nothing may pass it.
func (l *publishing) tellDiscarded(ctx context.Context, seq parking.Sequence) (previous eventstore.Position, told bool, err error) {
	previous = seq.Previous
	rows, err := l.tenure.DB().Query(l.tenure.Work(), l.sql(discardedSQL), l.ref.Name, l.ref.Version, seq.Topic, seq.Sequence,
		seq.Previous.Ordinal(), seq.First.Ordinal())
	if err != nil {
		return previous, false, fmt.Errorf("outbox: read what was discarded: %w", err)
	}
	positions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return previous, false, fmt.Errorf("outbox: read what was discarded: %w", err)
	}
	for _, position := range positions {
		m := eventstore.OutboxMessage{Topic: seq.Topic, RecordedEvent: eventstore.RecordedEvent{
			Position: eventstore.PositionAt(position), Partition: seq.Partition, PartitionKey: seq.Sequence,
		}}
		if previous, err = l.before(&m, previous); err != nil {
			return previous, false, err
		}
		refused := l.tell(&m, previous)
		if err := l.tenure.Work().Err(); err != nil {
			return previous, false, err
		}
		if refused != nil {
			l.troubled(refused)
			l.tenure.Parked().PutOff(seq.Key, l.tenure.Now().Add(lookEvery))
			if !rest(ctx, l.breaker.Failed(time.Now())) {
				return previous, false, ctx.Err()
			}
			return previous, false, nil
		}
		l.well()
		previous = m.Position
	}
	if len(positions) > 0 {
		l.change().Follow(seq.Key, previous)
	}
	return previous, true, nil
}

func (l *publishing) tell(m *eventstore.OutboxMessage, previous eventstore.Position) *PublishError {
	defer l.lanes.clear()
	for _, as := range []form{asSkip, asDiscarded} {
		l.lanes.add(job{message: m, topic: m.Topic, partition: m.Partition, position: m.Position, previous: previous, as: as})
	}
	_, _, refused := l.lanes.round(l.tenure.Work())
	return refused
}

// before finds the message of the topic and partition before m. after is one before it, so near it that no query is needed
// where messages of one key follow each other.
func (l *publishing) before(m *eventstore.OutboxMessage, after eventstore.Position) (eventstore.Position, error) {
	last := eventstore.PositionAt(m.Position.Ordinal() - 1)
	for span := int64(backward); after.Before(last); span *= 8 {
		from := eventstore.PositionAt(max(last.Ordinal()-span, after.Ordinal()))
		found, err := l.lastIn(m, from, last)
		if err != nil || !found.IsZero() {
			return found, err
		}
		if from == after {
			break
		}
	}
	return after, nil
}

// lastIn is the last message of a topic and partition in (after, upTo]; zero when there is none.
func (l *publishing) lastIn(m *eventstore.OutboxMessage, after, upTo eventstore.Position) (last eventstore.Position, err error) {
	for after.Before(upTo) {
		page, err := l.rows.ReadPage(l.tenure.Work(), eventstore.OutboxQuery{
			Topic: m.Topic, Partition: m.Partition, After: after, UpTo: upTo, Limit: l.cfg.BatchSize,
		})
		if err != nil {
			return last, fmt.Errorf("outbox: read what precedes position %s: %w", m.Position, err)
		}
		if n := len(page.Messages); n > 0 {
			last = page.Messages[n-1].Position
		}
		if !page.Through.After(after) {
			return last, fmt.Errorf("outbox: read what precedes position %s: it may not be read yet", m.Position)
		}
		after = page.Through
	}
	return last, nil
}

const discardedSQL = `
SELECT position FROM {schema}.letters
 WHERE consumer = $1 AND version = $2 AND topic = $3 AND sequence = $4 AND state = 'discarded' AND position > $5 AND position < $6
 ORDER BY position`
