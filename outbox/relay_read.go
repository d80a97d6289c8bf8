package outbox

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

type pageRead struct {
	page eventstore.OutboxPage
	err  error
}

// next returns the next page. A relay that stood still may read behind what has been cleaned meanwhile: what is left
// there would make a chain of it that nobody sent, so it must not be published. At the end of the outbox it waits, and returns an empty page when something is due.
func (l *publishing) next(ctx context.Context) (eventstore.OutboxPage, error) {
	if len(l.rest.Messages) > 0 {
		page := l.rest
		l.rest = eventstore.OutboxPage{}
		return page, nil
	}
	if l.ahead == nil && l.atEnd {
		if due, err := l.wait(ctx); err != nil || due {
			return eventstore.OutboxPage{Through: l.through}, err
		}
	}
	var r pageRead
	full := false
	switch {
	case l.ahead != nil:
		select {
		case r = <-l.ahead:
		case <-ctx.Done():
			return eventstore.OutboxPage{}, ctx.Err()
		}
		l.ahead = nil
		full = len(r.page.Messages) >= l.cfg.BatchSize
	case l.atEnd:
		r = l.tail.read(ctx, l.read)
		full = len(r.page.Messages) >= l.cfg.BatchSize
		r.page.Messages = l.own(r.page.Messages)
	default:
		r = l.readPage(l.read)
		full = len(r.page.Messages) >= l.cfg.BatchSize
	}
	if r.err == nil && r.page.Cleaned.After(l.read) {
		r.err = fmt.Errorf("the outbox is cleaned up to %s, which only follows a cursor: another relay has gone on from here, "+
			"or the rows of %q were removed from the store by hand: give its segment the floor that the cleaning has", r.page.Cleaned, relayName)
	}
	if r.err != nil {
		return eventstore.OutboxPage{}, r.err
	}
	l.read = r.page.Through
	l.atEnd = !full
	if !l.atEnd {
		ahead, from := make(chan pageRead, 1), l.read
		l.ahead = ahead
		l.readers.Go(func() { ahead <- l.readPage(from) })
	}
	return r.page, nil
}

// cut ends a page where all of it could be set aside and no more: what is set aside is written when a page is published, and
// the relay waits with the next one when there is no room any more. What is left comes next. The messages of one position stay
// together, and may take more room than there is.
func (l *publishing) cut(page eventstore.OutboxPage) eventstore.OutboxPage {
	l.beyond = 0
	room := l.room()
	if room <= 0 || len(page.Messages) <= room {
		return page
	}
	n := room
	for n > 0 && page.Messages[n].Position == page.Messages[n-1].Position {
		n--
	}
	if n == 0 {
		for n = room; n < len(page.Messages) && page.Messages[n].Position == page.Messages[0].Position; n++ {
			l.beyond++
		}
	}
	if n == len(page.Messages) {
		return page
	}
	l.rest = page
	l.rest.Messages = page.Messages[n:]
	page.Messages, page.Through = page.Messages[:n:n], page.Messages[n-1].Position
	return page
}

// readPage reads what the segment has after a position.
func (l *publishing) readPage(after eventstore.Position) pageRead {
	q := eventstore.OutboxQuery{Partition: l.first, LastPartition: l.last, After: after, Limit: l.cfg.BatchSize}
	if l.first == 0 && l.last == math.MaxInt32 { // all of it
		q.Partition, q.LastPartition = eventstore.AllPartitions, 0
	}
	return readPage(l.ctx, l.rows, q)
}

func readPage(ctx context.Context, rows Rows, q eventstore.OutboxQuery) pageRead {
	page, err := rows.ReadPage(ctx, q)
	if err == nil && page.Through.Before(q.After) {
		page.Through = q.After
	}
	return pageRead{page, err}
}

// own are the messages of the segment; all is shared with others.
func (l *publishing) own(all []eventstore.OutboxMessage) []eventstore.OutboxMessage {
	mine := func(m *eventstore.OutboxMessage) bool { return m.Partition >= l.first && m.Partition <= l.last }
	n := 0
	for i := range all {
		if mine(&all[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	own := make([]eventstore.OutboxMessage, 0, n)
	for i := range all {
		if mine(&all[i]) {
			own = append(own, all[i])
		}
	}
	return own
}

// wait blocks at the end of the outbox. It reports true when heads or a move of the cursor that were put off are due.
func (l *publishing) wait(ctx context.Context) (due bool, err error) {
	if l.tending() && time.Since(l.glanced) >= glanceEvery {
		l.glanced = time.Now()
		return false, nil
	}
	until := l.due()
	waiting := ctx
	if !until.IsZero() {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	err = l.tail.wait(waiting, l.read)
	switch {
	case err == nil:
		return false, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case waiting.Err() != nil:
		return true, nil
	}
	return false, err
}

// due is when something that was put off must be done; zero when there is nothing.
func (l *publishing) due() (at time.Time) {
	if l.tenure.Floor().Before(l.through) {
		at = l.moved.Add(l.rests())
	}
	if heads := l.headsAt(l.through); !heads.IsZero() && (at.IsZero() || heads.Before(at)) {
		at = heads
	}
	if tend := l.tendAt(); !tend.IsZero() && (at.IsZero() || tend.Before(at)) {
		at = tend
	}
	return at
}

// rests is the shortest time between two moves of the cursor while the segment keeps up.
func (l *publishing) rests() time.Duration {
	if l.unsaved {
		return l.cfg.quiet
	}
	return idleQuiets * l.cfg.quiet
}
