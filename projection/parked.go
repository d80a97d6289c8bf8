package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/parking"
)

// ErrParked is matched by [*ParkedError].
var ErrParked = errors.New("projection: a sequence is set aside")

// The states of a sequence that is set aside, as [ParkedError].State has them. A third, draining, is no error: what was
// queued behind a letter is being applied, and a wait goes on until it is.
const (
	// SequenceRetrying: its message failed, and is tried again at DueAt.
	SequenceRetrying = string(parking.Retrying)
	// SequenceParked: its message has had its attempts, and waits for people.
	SequenceParked = string(parking.Parked)
)

// ParkedError says that a read model lacks what a token stands for, because a sequence that the token may concern is set
// aside: an event of it failed, and waits to be tried again. The command that gave the token has succeeded nevertheless.
// Answer "not available" (503) with RetryAfter, or read without the token for the row as it is.
//
// A token names streams. A sequence that is a stream concerns tokens of that stream only; one of another partition key
// concerns every token of its partition. It matches [ErrParked].
type ParkedError struct {
	Projection string
	Version    int
	// Sequence is the partition key of the events that wait: the stream, when that has no key of its own. Partition is
	// where it lies.
	Sequence  string
	Partition int
	// State is [SequenceRetrying] or [SequenceParked].
	State string
	// Letter is the dead letter of the event that failed, at Position.
	Letter   uuid.UUID
	Position eventstore.Position
	// Since is when the sequence was set aside. DueAt is when the event is tried again, by the clock of the worker; zero
	// when it waits for people.
	Since, DueAt time.Time

	topic string
}

// Error names the sequence, since when it waits, and what for.
func (e *ParkedError) Error() string {
	waits := "waits for people: mend the cause and redrive letter " + e.Letter.String()
	if e.State == SequenceRetrying {
		waits = "is tried again at " + e.DueAt.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("projection: %q version %d has set %q aside since %s: the event at position %s failed and %s; the write is stored, but not visible here",
		e.Projection, e.Version, e.Sequence, e.Since.UTC().Format(time.RFC3339), e.Position, waits)
}

// Is matches [ErrParked].
func (e *ParkedError) Is(target error) bool { return target == ErrParked }

const (
	parkedRetry  = time.Minute // people are needed
	minimumRetry = time.Second
)

// RetryAfter is when asking again may help: the time until the next attempt, seen from now, or a minute when the event
// waits for people.
func (e *ParkedError) RetryAfter(now time.Time) time.Duration {
	if e.State != SequenceRetrying {
		return parkedRetry
	}
	return min(max(e.DueAt.Sub(now), minimumRetry), parkedRetry)
}

// concerns reports whether a sequence that is set aside may hold something that the mark stands for. keyed: streams have
// it as their partition key, so that its name says nothing of which they are.
func concerns(m eventstore.Mark, sequence string, first int64, keyed bool) bool {
	if first > m.Position.Ordinal() { // all of it below has taken effect
		return false
	}
	if m.Streams == nil || keyed {
		return true
	}
	id, err := eventstore.ParseStreamID(sequence)
	return err != nil || slices.Contains(m.Streams, eventstore.StreamHash(id))
}

// parked looks for sequences of one projection that keep it from showing the token. One that is draining comes back as how
// far the projection is; the others are a [*ParkedError]. Who is patient waits also for what is tried again.
func (q *question) parked(ctx context.Context, db Querier, ref consumer.Ref) (*behindBy, error) {
	marks := make(map[int]eventstore.Mark, len(q.partitions))
	var hashed []int32 // partitions of which the token names the streams, once for each
	var hashes []int64
	var whole []int32 // the others
	for _, m := range q.token.Marks() {
		marks[m.Partition] = m
		if m.Streams == nil {
			whole = append(whole, int32(m.Partition))
		}
		for _, h := range m.Streams {
			hashed, hashes = append(hashed, int32(m.Partition)), append(hashes, int64(h))
		}
	}
	var draining *behindBy
	var found *ParkedError
	err := probe(ctx, db, func(rows pgx.Rows) error {
		for rows.Next() {
			e := &ParkedError{Projection: ref.Name, Version: ref.Version}
			var first int64
			var due *time.Time
			var keyed bool
			if err := rows.Scan(&e.topic, &e.Sequence, &e.Partition, &e.State, &first, &e.Since, &due, &keyed); err != nil {
				return err
			}
			if !concerns(marks[e.Partition], e.Sequence, first, keyed) {
				continue
			}
			e.Position = eventstore.PositionAt(first)
			if due != nil {
				e.DueAt = *due
			}
			switch {
			case e.State == string(parking.Draining), e.State == SequenceRetrying && q.patient:
				draining = farther(draining, &behindBy{name: ref.Name, version: ref.Version, have: first - 1})
			case found == nil || found.State == SequenceRetrying && e.State == SequenceParked:
				found = e
			}
		}
		return rows.Err()
	}, inStore(parkedSQL, q.store), ref.Name, ref.Version, q.partitions, q.positions, whole, hashed, hashes)
	switch {
	case err != nil:
		return nil, fmt.Errorf("projection: wait: %w", err)
	case found == nil:
		return draining, nil
	}
	err = probe(ctx, db, func(rows pgx.Rows) error { // none when it was closed meanwhile
		for rows.Next() {
			if err := rows.Scan(&found.Letter); err != nil {
				return err
			}
		}
		return rows.Err()
	}, inStore(openLetterSQL, q.store), ref.Name, ref.Version, found.topic, found.Sequence)
	if err != nil {
		return nil, fmt.Errorf("projection: wait: %w", err)
	}
	return nil, found
}

// parkedSQL finds what is set aside below a token and may concern it: of a thousand sequences in a partition hardly one. That
// streams share a partition key is looked up in an index that has only such streams, usually none.
const parkedSQL = `
WITH p AS MATERIALIZED (
  SELECT p.topic, p.sequence, p.partition, p.state, p.first_position, p.since, p.due_at,
         p.partition = ANY ($5::int[]) OR p.hash IS NULL
         OR EXISTS (SELECT FROM unnest($6::int[], $7::bigint[]) AS h(partition, hash) WHERE h.partition = p.partition AND h.hash = p.hash) AS named
    FROM unnest($3::int[], $4::bigint[]) AS m(partition, position)
    JOIN {schema}.parked p ON p.consumer = $1 AND p.version = $2 AND p.partition = m.partition AND p.first_position <= m.position)
SELECT p.topic, p.sequence, p.partition, p.state, p.first_position, p.since, p.due_at, k.keyed
  FROM p, LATERAL (SELECT EXISTS (SELECT FROM {schema}.streams s WHERE s.partition_key <> '')
                      AND EXISTS (SELECT FROM {schema}.streams s WHERE s.partition_key = p.sequence AND s.partition_key <> '') AS keyed) k
 WHERE p.named OR k.keyed
 ORDER BY p.first_position`

const openLetterSQL = `
SELECT letter FROM {schema}.letters
 WHERE consumer = $1 AND version = $2 AND topic = $3 AND sequence = $4 AND state IN ('retrying', 'parked')
 ORDER BY position LIMIT 1`
