package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
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
	again   bool // the message that was judged last is for the next step
}

func (s *step) empty() bool {
	return len(s.batch.Events) == 0 && len(s.batch.Held) == 0 && len(s.changed) == 0 && len(s.queue) == 0
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
