package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// feed is one consumer's view of a subscription. It is in one of three moods: it reads the topic like a log while it is
// far behind, it fills a hole in one partition, or it takes what the broker brings. A message that came before its
// predecessor is held for a moment first: brokers that shuffle bring that one soon.
type feed struct {
	sub    *Subscription
	f      consumer.Follower
	reader *reader[item]

	read    []eventstore.Position // of each partition: everything up to here was handed out
	pending []item                // taken from the buffer, not looked at
	held    held                  // came before their predecessors
	end     eventstore.Position   // the log reached this far when pending was looked at
	space   []item                // what pending is cut from
	changed []bool                // partitions that have moved since the last batch

	log     *consumer.LogFeed // while far behind, or nil
	until   eventstore.Position
	missing *missing

	lowest eventstore.Position // of read, when it was last seen to move
	moved  time.Time
}

// missing is a hole: messages of one partition that the broker has not brought.
type missing struct {
	partition int
	upTo      eventstore.Position // the last of them
	found     eventstore.Position // the last that was read
}

func (s *Subscription) follow(ctx context.Context, f consumer.Follower) *feed {
	partitions := s.rows.Partitions()
	d := &feed{
		sub: s, f: f, reader: s.attach(), read: make([]eventstore.Position, partitions), changed: make([]bool, partitions),
		space: make([]item, f.Limit),
	}
	for p := range d.read {
		d.read[p] = f.Applied.At(p)
	}
	return d
}

// Close implements [consumer.Feed].
func (d *feed) Close() {
	if d.log != nil {
		d.log.Close()
	}
	d.sub.detach(d.reader)
}

// Next implements [consumer.Feed].
func (d *feed) Next(ctx context.Context, until time.Time) (consumer.Batch, error) {
	if d.moved.IsZero() { // set out behind what was applied
		if err := d.ask(ctx); err != nil {
			return consumer.Batch{}, err
		}
	}
	for {
		switch {
		case d.log != nil:
			return d.catchUp(ctx, until)
		case d.missing != nil:
			return d.fill(ctx)
		case len(d.pending) > 0 && d.pending[0].err != nil:
			return consumer.Batch{}, d.pending[0].err
		case len(d.pending) > 0:
			if err := d.checkEnd(ctx); err != nil {
				return consumer.Batch{}, err
			}
			if batch := d.take(); len(batch.Events) > 0 || len(batch.Marks) > 0 {
				return batch, nil
			}
		case d.held.due(time.Now(), len(d.space)):
			if batch := d.settle(); len(batch.Events) > 0 || len(batch.Marks) > 0 {
				return batch, nil
			}
			if len(d.held.items) > 0 {
				d.missing = d.held.hole()
			}
		default:
			if err := d.receive(ctx, until); err != nil {
				return consumer.Batch{}, err
			}
			if len(d.pending) == 0 && !until.IsZero() && !time.Now().Before(until) {
				return consumer.Batch{}, nil
			}
		}
	}
}

// goBack reads the topic like a log until the head.
func (d *feed) goBack(head eventstore.Position) {
	d.moved, d.lowest = time.Now(), d.floor()
	if !head.After(d.lowest) {
		return
	}
	marks := make([]eventstore.Mark, len(d.read))
	for p, at := range d.read {
		marks[p] = eventstore.Mark{Partition: p, Position: at}
	}
	behind := d.f
	behind.Applied = consumer.ProgressAt(d.lowest).Raise(len(d.read), d.lowest, marks)
	// The feed's goroutine ends with Close, not with the context of one call.
	d.log, d.until = consumer.FollowLog(context.Background(), d.sub, behind), head
}

func (d *feed) catchUp(ctx context.Context, until time.Time) (consumer.Batch, error) {
	batch, err := d.log.Next(ctx, until)
	if err != nil {
		return batch, d.explain(err)
	}
	d.raise(batch.Floor)
	d.held.drop(d.read)
	if batch.More = true; !batch.Floor.Before(d.until) {
		d.log.Close()
		d.log, batch.More = nil, false
	}
	return batch, nil
}

func (d *feed) raise(floor eventstore.Position) {
	for p, at := range d.read {
		if floor.After(at) {
			d.read[p] = floor
		}
	}
	d.lowest, d.moved = d.floor(), time.Now()
}

func (d *feed) floor() eventstore.Position {
	return slices.MinFunc(d.read, eventstore.Position.Compare)
}

// receive waits for the broker. When some partition has not moved for too long it asks the store.
func (d *feed) receive(ctx context.Context, until time.Time) error {
	now := time.Now()
	if floor := d.floor(); floor.After(d.lowest) {
		d.lowest, d.moved = floor, now
	}
	due := d.moved.Add(d.sub.cfg.Silence)
	if !due.After(now) {
		return d.ask(ctx)
	}
	if !until.IsZero() && until.Before(due) {
		due = until
	}
	if held := d.held.until(); !held.IsZero() && held.Before(due) {
		due = held
	}
	waiting, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	n, overrun, err := d.reader.next(waiting, d.space)
	d.pending = d.space[:n]
	if overrun {
		d.sub.counts.overruns.Add(1)
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil
	}
	return err
}

// ask looks whether the silence has a reason.
func (d *feed) ask(ctx context.Context) error {
	head, err := d.sub.rows.SafeHead(ctx)
	if err != nil {
		return err
	}
	if head.After(d.floor()) && !d.moved.IsZero() {
		d.sub.counts.silences.Add(1)
	}
	d.goBack(head)
	return nil
}

// checkEnd refuses what lies beyond the end of the log, behind everything that came before it: it is forged, or of a history
// that a restore took back. What is published is committed, so that a message is never ahead of a reading that began when
// it had come.
func (d *feed) checkEnd(ctx context.Context) error {
	beyond := func(it item) bool { return it.err == nil && it.position.After(d.end) }
	if d.end = d.sub.rows.Highest(); !slices.ContainsFunc(d.pending, beyond) {
		return nil
	}
	if _, err := d.sub.rows.SafeHead(ctx); err != nil {
		return err
	}
	if d.end = d.sub.rows.Highest(); !beyond(d.pending[0]) {
		return nil
	}
	return &eventstore.HistoryError{
		Reason: fmt.Sprintf("a message on topic %q says that it is at position %s, and the log ends at %s", d.sub.cfg.Topic, d.pending[0].position, d.end),
		Remedy: "find out whether the database was restored without `daybook epoch new`, or who else publishes on this topic",
	}
}

// take judges what has come. What a message was waited for by comes right behind it.
func (d *feed) take() consumer.Batch {
	var batch consumer.Batch
	for len(d.pending) > 0 && d.pending[0].err == nil && len(batch.Events) < d.f.Limit && !d.pending[0].position.After(d.end) {
		it := d.pending[0]
		d.pending = d.pending[1:]
		d.judge(it, &batch)
		d.resume(it.partition, &batch)
	}
	return d.marked(batch)
}

// resume judges what one partition has held, as far as nothing is missing any more and the batch has room.
func (d *feed) resume(partition int, batch *consumer.Batch) {
	for len(batch.Events) < d.f.Limit {
		next, ok := d.held.after(partition, d.read[partition])
		if !ok {
			return
		}
		d.judge(next, batch)
	}
}

// settle does so in all partitions: catching up, or a full batch, may have left something.
func (d *feed) settle() consumer.Batch {
	var batch consumer.Batch
	for partition := range d.read {
		d.resume(partition, &batch)
	}
	return d.marked(batch)
}

func (d *feed) judge(it item, batch *consumer.Batch) {
	p := it.partition
	switch judge(d.read[p], it.needs(), it.position) {
	case hole:
		since := time.Now()
		if it.needs() == it.position && !it.previous.After(d.read[p]) {
			since = since.Add(-holdFor) // what it stands for is not on its way
		}
		d.held.add(it, since)
	case drop:
		d.sub.counts.repeated.Add(1)
	case apply:
		if it.kind != KindHead && wanted(&it.event, d.f.Filter) {
			batch.Events = append(batch.Events, it.event)
		}
		d.read[p], d.changed[p] = it.position, true
	}
}

// marked adds what has moved to a batch.
func (d *feed) marked(batch consumer.Batch) consumer.Batch {
	for p, changed := range d.changed {
		if changed {
			batch.Marks = append(batch.Marks, eventstore.Mark{Partition: p, Position: d.read[p]})
			d.changed[p] = false
		}
	}
	batch.More = len(d.pending) > 0 || d.missing != nil
	return batch
}

// fill reads the next missing messages of a partition.
func (d *feed) fill(ctx context.Context) (consumer.Batch, error) {
	m := d.missing
	after := d.read[m.partition]
	page, err := d.sub.rows.ReadPage(ctx, eventstore.OutboxQuery{
		Topic: d.sub.cfg.Topic, Partition: m.partition, After: after, UpTo: m.upTo, Limit: d.f.Limit,
	})
	if err != nil {
		return consumer.Batch{}, err
	}
	if page.Cleaned.After(after) {
		return consumer.Batch{}, d.tooLate(ctx, after, page.Cleaned)
	}
	d.sub.counts.filled.Add(int64(len(page.Messages)))
	if n := len(page.Messages); n > 0 {
		m.found = page.Messages[n-1].Position
	}
	if !page.Through.After(after) {
		// What is missing was published, so it is there, but this process does not know yet that it may be read: a writer has
		// just registered below it.
		return consumer.Batch{}, d.sub.rows.Wait(ctx, after)
	}
	d.read[m.partition], d.changed[m.partition] = page.Through, true
	if !page.Through.Before(m.upTo) {
		if m.found != m.upTo {
			return consumer.Batch{}, consumer.Stop(fmt.Errorf("outbox: %s: the message at position %s of partition %d of topic %q was published, "+
				"and its row is gone from the outbox: rows were removed by hand; find out which, then let the consumer begin anew",
				d.f.Ref, m.upTo, m.partition, d.sub.cfg.Topic))
		}
		d.missing = nil
	}
	batch := consumer.Batch{Events: selected(page.Messages, d.f.Filter)}
	if d.missing == nil {
		d.resume(m.partition, &batch)
	}
	return d.marked(batch), nil
}

// tooLate: what is missing has been cleaned away meanwhile.
func (d *feed) tooLate(ctx context.Context, after, cleaned eventstore.Position) error {
	if d.sub.cfg.CatchUp == nil {
		return d.explain(d.sub.lost(after, cleaned))
	}
	d.missing = nil // what showed it is held, and judged again behind what the log has
	return d.ask(ctx)
}

// explain names the consumer that has lost its messages, and ends it.
func (d *feed) explain(err error) error {
	var lost *LostError
	if errors.As(err, &lost) {
		lost.Consumer = d.f.Name
		return consumer.Stop(lost)
	}
	return err
}
