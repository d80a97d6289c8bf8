package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/outbox"
)

// feed is what the owner of an inbox has received and not applied. One goroutine uses it, between the transactions.
type feed struct {
	in       *Inbox
	db       *pgxpool.Pool
	f        consumer.Follower
	receiver *receiver

	read    []eventstore.Position // of each partition: everything up to here was handed out
	begun   []bool                // partitions that have a beginning; see AtHead
	early   []holds
	waiting int // messages in early that the broker waits for
	gaps    map[int]*storedGap
	stale   map[int]bool    // partitions whose rows are applied, and go with the next batch
	awaited map[string]bool // partition keys that have, or had, a row without bytes

	pending []*item    // to be judged
	handed  []delivery // acknowledged when what was handed out is committed
	newest  time.Time  // when the newest message that was handed out was recorded
}

// step is what one call of Next hands out.
type step struct {
	batch   consumer.Batch
	changed map[int]bool
	queue   []func(*pgx.Batch)
	touched map[string]bool // partition keys whose rows it changes
	full    bool
}

func (s *step) empty() bool {
	return len(s.batch.Events) == 0 && len(s.changed) == 0 && len(s.queue) == 0 && !s.touches()
}

func (s *step) touches() bool { return len(s.touched) > 0 }

func (in *Inbox) open(ctx context.Context, f consumer.Follower) (*feed, error) {
	n, db := in.cfg.Partitions, in.db.Load()
	d := &feed{
		in: in, db: db, f: f, read: make([]eventstore.Position, n), begun: make([]bool, n), early: make([]holds, n), awaited: map[string]bool{},
	}
	for p := range d.read {
		d.read[p] = f.Applied.At(p)
		d.begun[p] = in.cfg.StartAt == AtBeginning || !d.read[p].IsZero()
	}
	var err error
	if d.gaps, d.stale, err = in.readGaps(ctx, db, f.Applied.At); err != nil {
		return nil, err
	}
	if err := d.readAwaited(ctx); err != nil {
		return nil, err
	}
	d.report()
	d.receiver = in.receive()
	return d, nil
}

func (d *feed) readAwaited(ctx context.Context) error {
	rows, err := d.db.Query(ctx, d.in.sql.awaited, d.in.ref.Name, d.in.ref.Version)
	if err != nil {
		return fmt.Errorf("inbox: read what %s waits for: %w", d.in.ref, err)
	}
	var key string
	if _, err = pgx.ForEachRow(rows, []any{&key}, func() error { d.awaited[key] = true; return nil }); err != nil {
		return fmt.Errorf("inbox: read what %s waits for: %w", d.in.ref, err)
	}
	return nil
}

// Close implements [consumer.Feed]. What is not acknowledged comes again, to the next owner.
func (d *feed) Close() {
	d.receiver.stop()
	for _, it := range d.pending {
		refuse(it.deliveries)
	}
	for _, h := range d.early {
		for _, it := range h {
			refuse(it.deliveries)
		}
	}
	refuse(d.handed)
	d.receiver.close()
}

func refuse(all []delivery) {
	for _, one := range all {
		one.msg.Nack()
	}
}

// settle acknowledges what was handed out last: it is committed.
func (d *feed) settle() {
	for _, one := range d.handed {
		one.msg.Ack()
	}
	clear(d.handed)
	d.handed = d.handed[:0]
	if !d.newest.IsZero() {
		d.in.state.applied(d.newest, d.in.now())
		d.newest = time.Time{}
	}
}

// Next implements [consumer.Feed].
func (d *feed) Next(ctx context.Context, until time.Time) (consumer.Batch, error) {
	d.settle()
	for {
		s := &step{changed: map[int]bool{}, touched: map[string]bool{}}
		if err := d.fill(ctx, s); err != nil {
			return consumer.Batch{}, err
		}
		d.spill(s)
		d.report()
		if !s.empty() || len(d.stale) > 0 {
			return d.hand(s), nil
		}
		d.settle() // repeats alone
		if len(d.pending) > 0 {
			continue
		}
		if ok, err := d.wait(ctx, until); err != nil || !ok {
			return consumer.Batch{}, err
		}
	}
}

// hand makes the batch of a step.
func (d *feed) hand(s *step) consumer.Batch {
	b := s.batch
	for p := range s.changed {
		b.Marks = append(b.Marks, eventstore.Mark{Partition: p, Position: d.read[p]})
		if d.gaps[p] != nil {
			d.stale[p] = true
		}
	}
	for p := range d.stale {
		at := d.read[p].Ordinal()
		s.queue = append(s.queue, func(b *pgx.Batch) { b.Queue(d.in.sql.dropStored, d.in.ref.Name, d.in.ref.Version, p, at) })
	}
	clear(d.stale)
	if len(s.queue) > 0 {
		b.Queue = func(b *pgx.Batch) {
			for _, queue := range s.queue {
				queue(b)
			}
		}
	}
	if n := len(b.Events); n > 0 {
		d.newest = b.Events[n-1].RecordedAt
	}
	b.More = s.full || len(d.pending) > 0
	return b
}

// fill judges what has come, as far as the step has room.
func (d *feed) fill(ctx context.Context, s *step) error {
	if err := d.resumeAll(ctx, s); err != nil {
		return err
	}
	for !s.full && (len(d.pending) > 0 || d.poll()) {
		it := d.pending[0]
		switch done, err := d.admit(ctx, s, it); {
		case err != nil:
			return err
		case done == later:
			s.full = true
			return nil
		}
		d.pending = d.pending[1:]
		if it.Partition < len(d.early) {
			if err := d.resume(ctx, s, it.Partition); err != nil {
				return err
			}
		}
	}
	return nil
}

// poll takes what stands ready.
func (d *feed) poll() bool {
	select {
	case one := <-d.receiver.out:
		d.accept(one)
		return true
	default:
		return false
	}
}

func (d *feed) accept(one delivery) {
	d.in.state.received.Add(1)
	it := &item{Received: one.got, deliveries: []delivery{one}, since: d.in.now()}
	if it.PartitionKey == "" && it.IsEvent() {
		it.PartitionKey = it.Stream.String()
	}
	d.pending = append(d.pending, it)
}

// wait blocks until something comes or is due. It reports false when until has passed.
func (d *feed) wait(ctx context.Context, until time.Time) (bool, error) {
	due := d.due()
	if !until.IsZero() && (due.IsZero() || until.Before(due)) {
		due = until
	}
	var timer <-chan time.Time
	if !due.IsZero() {
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		timer = t.C
	}
	select {
	case one := <-d.receiver.out:
		d.accept(one)
		return true, nil
	case <-timer:
		return until.IsZero() || time.Now().Before(until), nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// outcome is what has become of a message.
type outcome int

const (
	done  outcome = iota // it is in the step
	held                 // it waits for others
	later                // it must be judged again in the next step
)

// admit judges a message that comes from the broker.
func (d *feed) admit(ctx context.Context, s *step, it *item) (outcome, error) {
	ours, err := d.ours(ctx, s, it)
	switch {
	case err != nil:
		return done, err
	case !ours:
		d.handed = append(d.handed, it.deliveries...)
		return done, nil
	case d.in.cfg.Mode == Latest:
		d.takeLatest(s, it)
		return done, nil
	}
	return d.place(ctx, s, it)
}

// place does what the chain says about one message.
func (d *feed) place(ctx context.Context, s *step, it *item) (outcome, error) {
	p := it.Partition
	if !d.begun[p] {
		if it.Kind != outbox.KindHead {
			d.hold(it)
			return held, nil
		}
		d.begun[p] = true
		it.Previous = eventstore.Position{} // what lies before the head is never applied
	}
	known := Known{Applied: d.read[p]}
	if it.Kind != outbox.KindHead && d.awaited[it.PartitionKey] && !it.Position.After(known.Applied) {
		if s.touched[it.PartitionKey] || len(s.batch.Events) > 0 { // its rows are not yet what they will be
			return later, nil
		}
		var err error
		if known, err = d.known(ctx, it); err != nil {
			return done, err
		}
	}
	switch verdict := Judge(it.arrival(), known); verdict {
	case Early:
		d.hold(it)
		return held, nil
	case Drop:
		d.in.state.repeated.Add(1)
	case Skip, Settle, Await, Forget:
		if len(s.batch.Events) > 0 { // a batch may be committed in parts, and its rows with the last
			return later, nil
		}
		d.change(s, it, verdict)
	case Apply, Join: // the worker knows what is set aside
		if it.Kind.IsMessage() {
			if s.touches() {
				return later, nil
			}
			s.batch.Events = append(s.batch.Events, it.RecordedEvent)
		} else if it.Kind == outbox.KindSkip { // unlike a head it is sent once, and must be committed like a message
			s.queue = append(s.queue, func(*pgx.Batch) {})
		}
		d.move(s, it)
	}
	d.handed = append(d.handed, it.deliveries...)
	s.full = s.full || len(s.batch.Events) >= d.f.Limit
	return done, nil
}

// known reads the rows of a message's partition key.
func (d *feed) known(ctx context.Context, it *item) (Known, error) {
	k := Known{Applied: d.read[it.Partition]}
	var lowest int64
	err := d.db.QueryRow(ctx, d.in.sql.known, d.in.ref.Name, d.in.ref.Version, it.PartitionKey, it.Position.Ordinal()).Scan(&k.Own, &lowest)
	if err != nil {
		return k, fmt.Errorf("inbox: read what %s waits for: %w", d.in.ref, err)
	}
	k.Lowest = eventstore.PositionAt(lowest)
	return k, nil
}

func (d *feed) move(s *step, it *item) {
	if p := it.Partition; it.Position.After(d.read[p]) {
		d.read[p] = it.Position
		s.changed[p] = true
	}
}

// takeLatest hands out what comes as it comes: versions decide.
func (d *feed) takeLatest(s *step, it *item) {
	if it.Kind.IsMessage() {
		s.batch.Events = append(s.batch.Events, it.RecordedEvent)
	}
	if it.Kind != outbox.KindSkip {
		d.move(s, it)
	}
	d.handed = append(d.handed, it.deliveries...)
	s.full = s.full || len(s.batch.Events) >= d.f.Limit
}

const (
	awaitedSQL = `SELECT DISTINCT sequence FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '' AND NOT present`

	knownSQL = `
SELECT EXISTS (SELECT FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '' AND sequence = $3 AND position = $4),
       coalesce((SELECT min(position) FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '' AND sequence = $3), 0)`
)

// change hands on what happens to the rows of a partition key.
func (d *feed) change(s *step, it *item, verdict Verdict) {
	h := consumer.HeldMessage{Kind: consumer.Redelivered, Event: it.RecordedEvent, Previous: it.Previous}
	switch verdict {
	case Skip:
		h.Kind = consumer.Awaited
		d.awaited[it.PartitionKey] = true // for the rest of the tenure: it costs one look when it is no longer so
		d.move(s, it)
	case Forget:
		h.Kind = consumer.Discarded
	}
	s.touched[it.PartitionKey] = true
	s.batch.Held = append(s.batch.Held, h)
}
