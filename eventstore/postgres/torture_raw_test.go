package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
)

// rawWriter writes events as a person with psql does: the registration must not depend on the engine. It keeps the row
// of its stream, which nobody else writes, as such a person should.
type rawWriter struct {
	x       *torture
	stream  eventstore.StreamID
	version eventstore.Version
}

func (w *rawWriter) write(ctx context.Context, r *rand.Rand) error {
	list := tortureEventsOf(r, 1+r.IntN(4))
	into := []string{"raw", "raw into a range", "copy"}[r.IntN(3)]
	rollback := r.IntN(10) == 0
	err := pgx.BeginFunc(ctx, w.x.pool, func(tx pgx.Tx) error {
		partition := eventstore.PartitionOf(w.stream.String(), eventstore.DefaultPartitions)
		if _, err := tx.Exec(ctx, `INSERT INTO daybook.streams (stream_id, version, partition) VALUES ($1, $2, $3)
			ON CONFLICT (stream_id) DO UPDATE SET version = excluded.version`,
			w.stream.String(), int64(w.version)+int64(len(list)), partition); err != nil {
			return err
		}
		if err := w.insert(ctx, tx, into, list, partition); err != nil {
			return err
		}
		if r.IntN(2) == 0 {
			linger(ctx, r)
		}
		if rollback {
			return errRolledBack
		}
		return nil
	})
	writes := []eventstore.Write{eventstore.To(w.stream, eventstore.AnyVersion, list...)}
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, errRolledBack):
		w.x.ledger.rolledBack(writes)
		return nil
	case errors.As(err, &pgErr) && pgErr.Code == "23514": // the next position is no longer in the range it was meant for
		w.x.ledger.rolledBack(writes)
		w.x.count("raw at the edge of a range")
		return nil
	case err != nil: // what became of it is not known: leave the stream alone
		w.stream, w.version = newStream("raw"), 0
		return err
	}
	w.version += eventstore.Version(len(list))
	w.x.ledger.committed(writes, eventstore.AppendResult{Versions: map[eventstore.StreamID]eventstore.Version{w.stream: w.version}})
	w.x.count(into)
	return nil
}

var errRolledBack = errors.New("rolled back on purpose")

func (w *rawWriter) insert(ctx context.Context, tx pgx.Tx, into string, list []eventstore.EventData, partition int) error {
	columns := []string{"stream_id", "version", "id", "partition", "type", "data"}
	if into == "copy" {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"daybook", "events"}, columns, pgx.CopyFromSlice(len(list), func(i int) ([]any, error) {
			return []any{w.stream.String(), int64(w.version) + int64(i+1), [16]byte(list[i].ID), partition, list[i].Type, list[i].Data}, nil
		}))
		return err
	}
	table := "daybook.events"
	if into == "raw into a range" {
		var lo int64
		if err := tx.QueryRow(ctx, `SELECT first_position FROM daybook.ranges
			WHERE next_position > coalesce(pg_sequence_last_value('daybook.log_position'), 0) + 1 ORDER BY first_position LIMIT 1`).Scan(&lo); err != nil {
			return err
		}
		table = fmt.Sprintf("daybook.events_%d", lo)
	}
	ids, data := make([]uuid.UUID, len(list)), make([][]byte, len(list))
	for i, e := range list {
		ids[i], data[i] = e.ID, e.Data
	}
	_, err := tx.Exec(ctx, `INSERT INTO `+table+` (stream_id, version, id, partition, type, data)
		SELECT $1, $2 + u.ord, u.id, $3, 'raw.happened', u.data FROM unnest($4::uuid[], $5::bytea[]) WITH ORDINALITY AS u(id, data, ord)`,
		w.stream.String(), int64(w.version), partition, ids, data)
	return err
}
