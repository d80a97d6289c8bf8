package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// Discards is what [Letters.Discard] did.
type Discards struct {
	// Letters were discarded, in this order.
	Letters []uuid.UUID
	// Left is how many selected letters were left because somebody else changed them meanwhile, or because they are behind
	// others of their sequence.
	Left int
}

// Discard decides that the messages of the selected letters take no effect. Each letter is closed, and its sequence goes
// on with what is queued behind it: that is applied as if the message had not been. In the order of the positions, a
// hundred in a transaction, with rests in which the owners of the segments go on; after an error what was done is returned,
// and stays done.
//
// It may skip an event of a sequence for ever, so it needs Options.Reason. [Letters.Undo] takes it back as long as nothing
// later has taken effect. A single letter that is not open, or not the first open one of its sequence, is a
// [*RefusedError]; of a wider selection such are left out.
func (l *Letters) Discard(ctx context.Context, s Selection, o Options) (Discards, error) {
	var d Discards
	if err := errors.Join(s.validate(), o.validate(true)); err != nil {
		return d, err
	}
	var found []candidate
	err := l.read(ctx, "discard", func(tx pgx.Tx) error {
		f, letter, err := l.resolve(ctx, tx, "discard", s)
		if err != nil {
			return err
		}
		sql, args := f.matchSQL(letter, `SELECT letter, first FROM m ORDER BY position, topic`)
		rows, err := tx.Query(ctx, l.sql(sql), args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
		return err
	})
	switch {
	case err != nil:
		return d, err
	case len(found) == 0:
		return d, fmt.Errorf("%w: no open letter of %s", ErrNotFound, s)
	case o.Expect > 0 && len(found) > o.Expect:
		return d, refuse("discard", uuid.Nil, "%d letters are selected by now, not %d: look again", len(found), o.Expect)
	}
	for len(found) > 0 {
		some, began := found[:min(len(found), discardBatch)], time.Now()
		found = found[len(some):]
		var done Discards
		err := l.write(ctx, "discard", func(tx pgx.Tx) (err error) {
			done, err = l.discardSome(ctx, tx, some, s.filter != nil, o)
			return err
		})
		if err != nil {
			return d, err
		}
		d.Letters, d.Left = append(d.Letters, done.Letters...), d.Left+done.Left
		if len(found) > 0 {
			if err := rest(ctx, max(time.Since(began), discardRest)); err != nil {
				return d, fmt.Errorf("deadletter: discard: %w", err)
			}
		}
	}
	return d, nil
}

// Whoever discards takes the segment from its owner, who has to read anew what is set aside before anything can be
// committed. Letter by letter that would keep a consumer from all its work for as long as it takes.
const (
	discardBatch = 100
	discardRest  = 100 * time.Millisecond
)

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// candidate is a letter that was selected. First: its sequence stood at it.
type candidate struct {
	Letter uuid.UUID
	First  bool
}

// discardSome discards in one transaction. What is refused has changed nothing: of several it is left out.
func (l *Letters) discardSome(ctx context.Context, tx pgx.Tx, some []candidate, several bool, o Options) (d Discards, err error) {
	for _, c := range some {
		if c.First {
			err = l.discard(ctx, tx, c.Letter, o)
		} else {
			err = refuse("discard", c.Letter, "another open letter is before it in its sequence: redrive or discard that one first")
		}
		switch {
		case err == nil:
			d.Letters = append(d.Letters, c.Letter)
		case several && errors.Is(err, ErrRefused):
			d.Left++
		default:
			return d, err
		}
	}
	return d, nil
}

// held is a letter as it was read, and its sequence, with the row of the segment locked.
type held struct {
	letter    uuid.UUID
	consumer  string
	version   int
	key       parking.Key
	partition int
	position  eventstore.Position
	state     State
	attempts  int
	closedAt  *time.Time

	segment  *int // nil: the consumer is gone
	sequence *parking.Sequence
}

// lock reads a letter, then locks the segment that has its partition, and then reads the sequence: from then on nobody
// commits anything of it. What was read of the letter before guards the change.
func (l *Letters) lock(ctx context.Context, tx pgx.Tx, letter uuid.UUID, before func(*held) error) (*held, error) {
	h := &held{letter: letter}
	var position int64
	err := tx.QueryRow(ctx, l.sql(letterSQL), letter).
		Scan(&h.consumer, &h.version, &h.key.Topic, &h.key.Sequence, &h.partition, &position, &h.state, &h.attempts, &h.closedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, notFound("letter", letter)
	} else if err != nil {
		return nil, err
	}
	h.position = eventstore.PositionAt(position)
	if err := before(h); err != nil {
		return nil, err
	}
	if err := tx.QueryRow(ctx, l.sql(lockSQL), h.consumer, h.version, h.partition).Scan(&h.segment); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	var q parking.Sequence
	var first, last int64
	err = tx.QueryRow(ctx, l.sql(sequenceSQL), h.consumer, h.version, h.key.Topic, h.key.Sequence).Scan(&q.State, &first, &last, &q.Queued)
	switch {
	case err == nil:
		q.First, q.Last = eventstore.PositionAt(first), eventstore.PositionAt(last)
		h.sequence = &q
	case !errors.Is(err, pgx.ErrNoRows):
		return nil, err
	}
	return h, nil
}

const letterSQL = `
SELECT consumer, version, topic, sequence, partition, position, state, attempts, closed_at FROM {schema}.letters WHERE letter = $1`

const lockSQL = `
SELECT segment FROM {schema}.segments
 WHERE consumer = $1 AND version = $2 AND first_partition <= $3 AND last_partition >= $3 ORDER BY segment LIMIT 1 FOR UPDATE`

const sequenceSQL = `
SELECT state, first_position, last_position, queued FROM {schema}.parked
 WHERE consumer = $1 AND version = $2 AND topic = $3 AND sequence = $4 FOR UPDATE`

// discard locks the segment of the letter, and changes nothing when it refuses.
func (l *Letters) discard(ctx context.Context, tx pgx.Tx, letter uuid.UUID, o Options) error {
	h, err := l.lock(ctx, tx, letter, func(h *held) error {
		if !h.state.Open() {
			return refuse("discard", letter, "it is %s, no longer open", h.state)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case h.segment != nil && (h.sequence == nil || h.sequence.First != h.position):
		return refuse("discard", letter, "its sequence does not stand at it: look again")
	}
	tag, err := tx.Exec(ctx, l.sql(discardSQL), letter, string(h.state), h.attempts, o.Actor, o.Reason)
	switch {
	case err != nil:
		return err
	case tag.RowsAffected() == 0:
		return refuse("discard", letter, "it has changed meanwhile: look again")
	}
	if h.segment != nil {
		next := l.sql(goOnSQL)
		if _, err := tx.Exec(ctx, next, h.consumer, h.version, h.key.Topic, h.key.Sequence, h.position.Ordinal()+1); err != nil {
			return err
		}
		if err := l.raise(ctx, tx, h, false); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, l.sql(actSQL), o.Actor, "discard", h.consumer, h.version, letter, nil, o.Reason)
	return err
}

const discardSQL = `
UPDATE {schema}.letters SET state = 'discarded', closed_at = clock_timestamp(), closed_by = $4, reason = $5
 WHERE letter = $1 AND state = $2 AND attempts = $3`

// goOnSQL releases a sequence behind which nothing is known, else lets it go on behind the letter. A relay has to tell
// consumers of it first: they wait for the message.
const goOnSQL = `
WITH gone AS (
  DELETE FROM {schema}.parked p WHERE p.consumer = $1 AND p.version = $2 AND p.topic = $3 AND p.sequence = $4 AND p.queued = 0
     AND p.consumer <> 'outbox-relay' AND NOT EXISTS (SELECT FROM {schema}.held h WHERE h.consumer = $1 AND h.version = $2 AND h.topic = $3 AND h.sequence = $4))
UPDATE {schema}.parked p SET state = 'draining', due_at = NULL, first_position = $5
 WHERE p.consumer = $1 AND p.version = $2 AND p.topic = $3 AND p.sequence = $4
   AND (p.queued > 0 OR p.consumer = 'outbox-relay' OR EXISTS (SELECT FROM {schema}.held h WHERE h.consumer = $1 AND h.version = $2 AND h.topic = $3 AND h.sequence = $4))`

// raise tells the owner of the segment that what it knows of its sequences is old: it cannot commit before it has read them
// again. An owner that has nothing set aside and nothing to commit would not notice for a long time; with newEpoch its lease
// cannot be renewed either, and it takes a new one.
func (l *Letters) raise(ctx context.Context, tx pgx.Tx, h *held, newEpoch bool) error {
	_, err := tx.Exec(ctx, l.sql(raiseSQL), h.consumer, h.version, *h.segment, newEpoch)
	return err
}

const raiseSQL = `
UPDATE {schema}.segments SET parked_rev = parked_rev + 1, epoch = epoch + $4::bool::int
 WHERE consumer = $1 AND version = $2 AND segment = $3`
