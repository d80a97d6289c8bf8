package inbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/outbox"
)

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
	case s.again:
		return later, nil
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

const (
	awaitedSQL = `SELECT DISTINCT sequence FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '' AND NOT present`

	knownSQL = `
SELECT EXISTS (SELECT FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '' AND sequence = $3 AND position = $4),
       coalesce((SELECT min(position) FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '' AND sequence = $3), 0)`
)
