package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// ErrNoGap: there is no gap to accept. What is missing may have come meanwhile, or what lies behind it is not stored yet,
// which it is after Config.HoldFor.
var ErrNoGap = errors.New("inbox: no gap to accept")

// AllPartitions names every partition of an inbox; see [Base].
const AllPartitions = -1

// Ref names an inbox to those who look after it.
type Ref struct {
	Schema  string // default "daybook"
	Name    string
	Version int // default 1
}

// By is who decides, and why. Both are needed, and are kept with the actions of dead letters.
type By struct{ Actor, Reason string }

func (b By) validate(what string) error {
	if b.Actor == "" || b.Reason == "" {
		return fmt.Errorf("inbox: %s: By.Actor or By.Reason is empty: say who decides, and why", what)
	}
	return nil
}

// AcceptGap decides that what is missing before the first message that waits in a partition never comes: the partition
// goes on behind it. It returns the positions between which the missing messages lay: above from, up to upTo. One that comes
// after all is a repeat then, and is dropped. The error is [ErrNoGap] when nothing waits. The owner goes on within a third
// of its lease.
func AcceptGap(ctx context.Context, pool *pgxpool.Pool, ref Ref, partition int, by By) (from, upTo eventstore.Position, err error) {
	if err := by.validate("accept a gap"); err != nil {
		return from, upTo, err
	}
	err = ref.change(ctx, pool, "accept a gap", partition, func(tx pgx.Tx, sql func(string) string, applied int64) error {
		var position, previous int64
		err := tx.QueryRow(ctx, sql(firstGapSQL), ref.Name, ref.Version, partition, applied).Scan(&position, &previous)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && previous <= applied {
			return ErrNoGap
		}
		if err != nil {
			return err
		}
		from, upTo = eventstore.PositionAt(applied), eventstore.PositionAt(previous)
		if _, err := tx.Exec(ctx, sql(moveSQL), ref.Name, ref.Version, partition, previous); err != nil {
			return err
		}
		return note(ctx, tx, sql, ref, "accept gap", by, fmt.Sprintf("partition %d: nothing above %s up to %s", partition, from, upTo))
	})
	return from, upTo, err
}

// Base is where an inbox goes on.
type Base struct {
	// Partition is one, or [AllPartitions].
	Partition int
	// Position is that of the last message that is not wanted: everything up to it counts as applied.
	Position eventstore.Position
	// Epoch, if set, is the history that the publishing store has now: messages of the one before are dropped from then on.
	// It needs AllPartitions, and Position may lie below what was applied.
	Epoch uuid.UUID
}

// Rebase moves an inbox to another place: when it was behind for longer than the publisher keeps what it has sent, after
// its tables were filled by other means; and when the publishing store was restored. What waited in a gap up to that place
// is removed. Without an Epoch it moves forward only, and what is set aside of the partition up to that place counts as applied
// like everything else there: its letters are discarded, in the name of who decides, and its keys go on behind it. With one,
// what is set aside and lies behind that place belongs to a history that is no more: its letters are discarded too, and the
// versions that [Latest] goes by are forgotten. Letters of messages that cannot be read have no place, and stay. The owner goes on within a third of its lease; an inbox that has stopped is
// to be run again.
func Rebase(ctx context.Context, pool *pgxpool.Pool, ref Ref, to Base, by By) error {
	if err := by.validate("rebase"); err != nil {
		return err
	}
	if to.Partition < AllPartitions || to.Epoch != uuid.Nil && to.Partition != AllPartitions {
		return fmt.Errorf("inbox: rebase: Base.Partition: %d: use a partition from 0, or AllPartitions, which an Epoch needs", to.Partition)
	}
	return ref.change(ctx, pool, "rebase", to.Partition, func(tx pgx.Tx, sql func(string) string, applied int64) error {
		if to.Epoch == uuid.Nil && to.Position.Ordinal() < applied {
			return fmt.Errorf("position %s lies below what was applied, %d: give the Epoch if the store was restored, or install a new version", to.Position, applied)
		}
		if to.Epoch != uuid.Nil {
			if err := newEpoch(ctx, tx, sql, ref, to.Epoch); err != nil {
				return err
			}
			if err := forgetBeyond(ctx, tx, sql, ref, to.Position.Ordinal(), by); err != nil {
				return err
			}
		}
		if to.Epoch == uuid.Nil {
			if err := forgetBelow(ctx, tx, sql, ref, to, by); err != nil {
				return err
			}
		}
		move := moveSQL
		if to.Partition == AllPartitions {
			move = moveAllSQL
		}
		if _, err := tx.Exec(ctx, sql(move), ref.Name, ref.Version, to.Partition, to.Position.Ordinal()); err != nil {
			return err
		}
		upTo := to.Position.Ordinal()
		if to.Epoch != uuid.Nil {
			upTo = 1<<63 - 1
		}
		if _, err := tx.Exec(ctx, sql(dropGapSQL), ref.Name, ref.Version, to.Partition, upTo); err != nil {
			return err
		}
		return note(ctx, tx, sql, ref, "rebase", by, fmt.Sprintf("partition %d: at %s, epoch %s", to.Partition, to.Position, to.Epoch))
	})
}

func newEpoch(ctx context.Context, tx pgx.Tx, sql func(string) string, ref Ref, epoch uuid.UUID) error {
	var record string
	if err := tx.QueryRow(ctx, sql(sourceSQL), ref.Name, ref.Version).Scan(&record); err != nil {
		return err
	}
	carries, _, _ := cutRecord(record)
	known, ok := parseRecord(carries, record)
	if !ok {
		return fmt.Errorf("the record of what it follows is %q, which is not that of an inbox", record)
	}
	if known.current != epoch {
		if known.current != uuid.Nil {
			known.earlier = append(known.earlier, known.current)
		}
		known.current = epoch
	}
	_, err := tx.Exec(ctx, sql(setSourceSQL), ref.Name, ref.Version, known.record(carries))
	return err
}

// forgetBeyond takes out what is set aside of a history that has ended at a position: what the new one has in the same
// places is something else.
func forgetBeyond(ctx context.Context, tx pgx.Tx, sql func(string) string, ref Ref, position int64, by By) error {
	if _, err := tx.Exec(ctx, sql(discardBeyondSQL), ref.Name, ref.Version, position, by.Actor, by.Reason); err != nil {
		return err
	}
	for _, text := range []string{dropBeyondSQL, releaseBeyondSQL, shortenSQL} {
		if _, err := tx.Exec(ctx, sql(text), ref.Name, ref.Version, position); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, sql(forgetVersionsSQL), ref.Name, ref.Version)
	return err
}

// forgetBelow takes out what is set aside below a place where an inbox goes on: it must not take effect once more.
func forgetBelow(ctx context.Context, tx pgx.Tx, sql func(string) string, ref Ref, to Base, by By) error {
	position := to.Position.Ordinal()
	if _, err := tx.Exec(ctx, sql(discardBelowSQL), ref.Name, ref.Version, to.Partition, position, by.Actor, by.Reason); err != nil {
		return err
	}
	for _, text := range []string{dropBelowSQL, releaseBelowSQL, goOnBehindSQL} {
		if _, err := tx.Exec(ctx, sql(text), ref.Name, ref.Version, to.Partition, position); err != nil {
			return err
		}
	}
	return nil
}

// change locks the segment, runs f with what is applied, and takes the lease away, so that whoever has it reads all anew.
func (r *Ref) change(ctx context.Context, pool *pgxpool.Pool, what string, partition int, f func(tx pgx.Tx, sql func(string) string, applied int64) error) error {
	r.Schema, r.Version = cmp.Or(r.Schema, defaultSchema), cmp.Or(r.Version, 1)
	sql := func(text string) string { return inSchema(text, r.Schema) }
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var last int
		var floor int64
		err := tx.QueryRow(ctx, sql(lockSQL), r.Name, r.Version).Scan(&last, &floor)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return errors.New("there is no such inbox")
		case err != nil:
			return err
		case partition > last || partition < AllPartitions:
			return fmt.Errorf("partition %d is not one of its %d", partition, last+1)
		}
		applied := floor
		if err := tx.QueryRow(ctx, sql(appliedSQL), r.Name, r.Version, partition, floor).Scan(&applied); err != nil {
			return err
		}
		if err := f(tx, sql, applied); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, sql(fenceSQL), r.Name, r.Version)
		return err
	})
	if err != nil {
		return fmt.Errorf("inbox: %s of %q version %d: %w", what, r.Name, r.Version, err)
	}
	return nil
}

func note(ctx context.Context, tx pgx.Tx, sql func(string) string, ref Ref, what string, by By, detail string) error {
	_, err := tx.Exec(ctx, sql(noteSQL), by.Actor, what, ref.Name, ref.Version, by.Reason+" ("+detail+")")
	return err
}

const (
	lockSQL = `
SELECT g.last_partition, g.floor FROM {schema}.segments g JOIN {schema}.consumers c ON c.consumer = g.consumer AND c.version = g.version AND c.kind = '` + kind + `'
 WHERE g.consumer = $1 AND g.version = $2 AND g.segment = 0 FOR UPDATE OF g`

	// appliedSQL: of all partitions, the furthest.
	appliedSQL = `
SELECT greatest($4::bigint, (SELECT max(applied) FROM {schema}.checkpoints WHERE consumer = $1 AND version = $2 AND topic = '' AND ($3 < 0 OR partition = $3)))`

	firstGapSQL = `
SELECT position, previous FROM {schema}.held
 WHERE consumer = $1 AND version = $2 AND topic = '` + gapTopic + `' AND partition = $3 AND position > $4 ORDER BY position LIMIT 1`

	moveSQL = `
INSERT INTO {schema}.checkpoints (consumer, version, topic, partition, applied) VALUES ($1, $2, '', $3, $4)
ON CONFLICT (consumer, version, topic, partition) DO UPDATE SET applied = excluded.applied`

	moveAllSQL = `
WITH gone AS (DELETE FROM {schema}.checkpoints WHERE consumer = $1 AND version = $2 AND $3::int < 0)
UPDATE {schema}.segments SET floor = $4 WHERE consumer = $1 AND version = $2`

	dropGapSQL = `
DELETE FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '` + gapTopic + `' AND ($3 < 0 OR partition = $3) AND position <= $4`

	fenceSQL = `
UPDATE {schema}.segments SET epoch = epoch + 1, parked_rev = parked_rev + 1, owner = '', expires_at = '-infinity'
 WHERE consumer = $1 AND version = $2 AND segment = 0`

	noteSQL = `INSERT INTO {schema}.letter_actions (actor, what, consumer, version, reason) VALUES ($1, $2, $3, $4, $5)`

	discardBeyondSQL = `
UPDATE {schema}.letters SET state = 'discarded', closed_at = clock_timestamp(), closed_by = $4, reason = $5
 WHERE consumer = $1 AND version = $2 AND topic = '' AND state IN ('retrying', 'parked') AND position > $3`

	dropBeyondSQL = `DELETE FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '' AND position > $3`

	releaseBeyondSQL = `DELETE FROM {schema}.parked WHERE consumer = $1 AND version = $2 AND topic = '' AND first_position > $3`

	// shortenSQL is for sequences that have waited since before that position.
	shortenSQL = `
UPDATE {schema}.parked p
   SET last_position = least(p.last_position, $3), queued = (SELECT count(*) FROM {schema}.held h
         WHERE h.consumer = $1 AND h.version = $2 AND h.topic = '' AND h.sequence = p.sequence),
       state = CASE WHEN l.some THEN p.state ELSE 'draining' END, due_at = CASE WHEN l.some THEN p.due_at END
  FROM {schema}.parked x, LATERAL (SELECT EXISTS (SELECT FROM {schema}.letters l
         WHERE l.consumer = $1 AND l.version = $2 AND l.topic = '' AND l.sequence = x.sequence AND l.state IN ('retrying', 'parked')) AS some) l
 WHERE x.consumer = $1 AND x.version = $2 AND x.topic = '' AND x.last_position > $3
   AND p.consumer = $1 AND p.version = $2 AND p.topic = '' AND p.sequence = x.sequence`

	discardBelowSQL = `
UPDATE {schema}.letters SET state = 'discarded', closed_at = clock_timestamp(), closed_by = $5, reason = $6
 WHERE consumer = $1 AND version = $2 AND topic = '' AND state IN ('retrying', 'parked') AND ($3 < 0 OR partition = $3) AND position <= $4`

	dropBelowSQL = `DELETE FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '' AND ($3 < 0 OR partition = $3) AND position <= $4`

	releaseBelowSQL = `
DELETE FROM {schema}.parked WHERE consumer = $1 AND version = $2 AND topic = '' AND ($3 < 0 OR partition = $3) AND last_position <= $4`

	// goOnBehindSQL is for sequences of which something is queued behind that position.
	goOnBehindSQL = `
UPDATE {schema}.parked p
   SET first_position = $4 + 1, state = 'draining', due_at = NULL, queued = (SELECT count(*) FROM {schema}.held h
         WHERE h.consumer = $1 AND h.version = $2 AND h.topic = '' AND h.sequence = p.sequence)
 WHERE p.consumer = $1 AND p.version = $2 AND p.topic = '' AND ($3 < 0 OR p.partition = $3) AND p.first_position <= $4`

	forgetVersionsSQL = `DELETE FROM {schema}.inbox_versions WHERE consumer = $1 AND version = $2`

	sourceSQL    = `SELECT source FROM {schema}.consumers WHERE consumer = $1 AND version = $2 FOR UPDATE`
	setSourceSQL = `UPDATE {schema}.consumers SET source = $3 WHERE consumer = $1 AND version = $2`
)
