package deadletter

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// Undo puts a discarded letter back: it waits for people again, and everything later of its sequence waits behind it. A
// letter of the sequence that has failed meanwhile is closed as [Behind].
//
// It is refused, with a [*RefusedError] that names the position, when something later of the sequence has taken effect or
// has been discarded since: the message would come after it. Where the message came from the log, an event of the sequence
// that the consumer does not read counts as well, as nobody knows here that it does not. A relay's letter is never put
// back: the relay tells consumers that a discarded message never comes.
func (l *Letters) Undo(ctx context.Context, letter uuid.UUID, o Options) error {
	if err := o.validate(false); err != nil {
		return err
	}
	return l.write(ctx, "undo", func(tx pgx.Tx) error {
		var src source
		var seen eventstore.Position
		h, err := l.lock(ctx, tx, letter, func(h *held) (err error) {
			if h.state != Discarded {
				return refuse("undo", letter, "it is %s, not discarded", h.state)
			}
			if src, err = l.source(ctx, tx, h); err != nil {
				return err
			}
			// What takes long is done before the segment is locked. What comes to it meanwhile is looked at below.
			if seen, err = l.reached(ctx, tx, h); err == nil && seen.After(h.position) {
				err = l.nothingLater(ctx, tx, h, src, h.position, seen)
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case h.segment == nil:
			return refuse("undo", letter, "%s v%d is no longer installed", h.consumer, h.version)
		}
		through, err := l.reached(ctx, tx, h)
		if err != nil {
			return err
		}
		if h.sequence != nil && h.sequence.First.Before(h.position) {
			return refuse("undo", letter, "its sequence waits at position %s, which is before it: settle that first", h.sequence.First)
		}
		if through.After(seen) && through.After(h.position) {
			if err := l.nothingLater(ctx, tx, h, src, later(seen, h.position), through); err != nil {
				return err
			}
		}
		return l.putBack(ctx, tx, h, src, o)
	})
}

func later(a, b eventstore.Position) eventstore.Position {
	if a.Before(b) {
		return b
	}
	return a
}

// source is where the messages of a consumer come from.
type source struct {
	topic string // of its outbox rows; empty for the whole log
	alien bool   // nowhere in this store
	held  bool   // what is queued is held, not read again
}

func (l *Letters) source(ctx context.Context, tx pgx.Tx, h *held) (source, error) {
	var kind, carries string
	err := tx.QueryRow(ctx, l.sql(`SELECT kind, source FROM {schema}.consumers WHERE consumer = $1 AND version = $2`), h.consumer, h.version).Scan(&kind, &carries)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return source{}, nil // refused when its segment is not there either
	case err != nil:
		return source{}, err
	case kind == "relay":
		return source{}, refuse("undo", h.letter, "consumers may have been told by now that the message never comes, and would drop it: enqueue it anew")
	case kind == "inbox":
		return source{alien: true, held: true}, nil
	case carries != "":
		const prefix = "topic "
		return source{topic: carries[min(len(prefix), len(carries)):], held: true}, nil
	}
	return source{}, nil
}

// reached is how far the sequence has gone: up to there everything of it has taken effect, or was discarded.
func (l *Letters) reached(ctx context.Context, tx pgx.Tx, h *held) (eventstore.Position, error) {
	var at int64
	err := tx.QueryRow(ctx, l.sql(reachedSQL), h.consumer, h.version, h.key.Topic, h.key.Sequence, h.partition).Scan(&at)
	return eventstore.PositionAt(at), err
}

const reachedSQL = `
SELECT coalesce((SELECT p.first_position - 1 FROM {schema}.parked p WHERE p.consumer = $1 AND p.version = $2 AND p.topic = $3 AND p.sequence = $4),
  greatest((SELECT max(s.floor) FROM {schema}.segments s WHERE s.consumer = $1 AND s.version = $2 AND s.first_partition <= $5 AND s.last_partition >= $5),
           (SELECT max(c.applied) FROM {schema}.checkpoints c WHERE c.consumer = $1 AND c.version = $2 AND c.partition = $5)), 0)`

// nothingLater refuses when a message of the sequence lies in (after, through].
func (l *Letters) nothingLater(ctx context.Context, tx pgx.Tx, h *held, src source, after, through eventstore.Position) error {
	if src.alien {
		return refuse("undo", h.letter, "its partition has gone on to position %s since, and nobody knows here whether with something of its sequence", through)
	}
	var at int64
	var err error
	if src.topic == "" {
		err = tx.QueryRow(ctx, l.sql(laterEventSQL), after.Ordinal(), through.Ordinal(), h.partition, h.key.Sequence).Scan(&at)
	} else {
		var cleaned bool
		if err = tx.QueryRow(ctx, l.sql(cleanedSQL), h.position.Ordinal()).Scan(&cleaned); err != nil {
			return err
		} else if cleaned {
			return refuse("undo", h.letter, "the outbox has been cleaned beyond it, and nobody knows whether something later of its sequence was sent")
		}
		err = tx.QueryRow(ctx, l.sql(laterMessageSQL), after.Ordinal(), through.Ordinal(), h.partition, h.key.Sequence, src.topic).Scan(&at)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	var other uuid.UUID
	err = tx.QueryRow(ctx, l.sql(letterAtSQL), h.consumer, h.version, h.key.Topic, at).Scan(&other)
	if err == nil {
		return refuse("undo", h.letter, "position %d, which is later in its sequence, was discarded since: undo letter %s first", at, other)
	} else if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return refuse("undo", h.letter, "position %d, which is later in its sequence, has taken effect since: this one would come after it", at)
}

const laterEventSQL = `
SELECT e.position FROM {schema}.events e
 WHERE e.position > $1 AND e.position <= $2 AND e.partition = $3 AND (e.partition_key = $4 OR e.partition_key = '' AND e.stream_id = $4)
 ORDER BY e.position LIMIT 1`

// laterMessageSQL finds rows, each of which may be a run of messages: their last one counts. A row never crosses a block.
const laterMessageSQL = `
SELECT o.last_position FROM {schema}.outbox o
 WHERE o.partition = $3 AND o.first_position >= ($1::bigint >> 12) << 12 AND o.first_position <= $2 AND o.last_position > $1
   AND o.topic = $5 AND o.key = $4
 ORDER BY o.first_position LIMIT 1`

const cleanedSQL = `SELECT outbox_cleaned > $1 FROM {schema}.store`

const letterAtSQL = `
SELECT letter FROM {schema}.letters WHERE consumer = $1 AND version = $2 AND topic = $3 AND position = $4 AND state = 'discarded'`

func (l *Letters) putBack(ctx context.Context, tx pgx.Tx, h *held, src source, o Options) error {
	tag, err := tx.Exec(ctx, l.sql(reopenSQL), h.letter, h.attempts, h.closedAt)
	switch {
	case err != nil:
		return err
	case tag.RowsAffected() == 0:
		return refuse("undo", h.letter, "it has changed meanwhile: look again")
	}
	tag, err = tx.Exec(ctx, l.sql(stepBackSQL), h.consumer, h.version, h.key.Topic, h.key.Sequence, h.letter, o.Actor, "letter "+h.letter.String()+" was put back before it")
	if err != nil {
		return err
	}
	behind := tag.RowsAffected()
	if behind > 0 && src.held {
		// Its bytes would have to be held in front of what is held.
		return refuse("undo", h.letter, "a later message of its sequence has failed since and is open: let that one be applied or discarded, and settle this one by hand")
	}
	_, err = tx.Exec(ctx, l.sql(parkAgainSQL), h.consumer, h.version, h.key.Topic, h.key.Sequence, h.partition, h.position.Ordinal(), behind)
	if err != nil {
		return err
	}
	if err := l.raise(ctx, tx, h, true); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, l.sql(actSQL), o.Actor, "undo", h.consumer, h.version, h.letter, nil, o.Reason)
	return err
}

const reopenSQL = `
UPDATE {schema}.letters SET state = 'parked', round = 0, closed_at = NULL, closed_by = '', reason = ''
 WHERE letter = $1 AND state = 'discarded' AND attempts = $2 AND closed_at = $3`

const stepBackSQL = `
UPDATE {schema}.letters SET state = 'behind', closed_at = clock_timestamp(), closed_by = $6, reason = $7
 WHERE consumer = $1 AND version = $2 AND topic = $3 AND sequence = $4 AND state IN ('retrying', 'parked') AND letter <> $5`

const parkAgainSQL = `
INSERT INTO {schema}.parked AS p (consumer, version, topic, sequence, partition, state, first_position, last_position, queued)
VALUES ($1, $2, $3, $4, $5, 'parked', $6, $6, $7)
ON CONFLICT (consumer, version, topic, sequence) DO UPDATE
   SET state = 'parked', due_at = NULL, first_position = excluded.first_position, last_position = greatest(p.last_position, excluded.last_position),
       queued = p.queued + excluded.queued`
