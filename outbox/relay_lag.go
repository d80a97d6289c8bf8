package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// Lag says how far the publishing is behind the log.
type Lag struct {
	// State is the state kept in the database: "running", "paused" or "stopped", or "not started" before the first relay of
	// the store has run; Reason says why it does not run.
	State, Reason string
	// Owner names the processes that publish, in order and with ", " between them; it is empty when there is none.
	Owner string
	// Cursor is the position up to which everything is published, Head the safe head: what is published next lies between.
	Cursor, Head eventstore.Position
	// Behind is the distance between them: at most so many messages are still to come.
	Behind int64
	// Age is how long the first message that is not published has been stored; zero when there is none.
	Age time.Duration
	// Segments are the ranges of partitions that relays share, each with a cursor of its own. Cursor is the lowest of them,
	// Behind and Age are the greatest.
	Segments []SegmentLag
}

// SegmentLag is the [Lag] of a range of partitions.
type SegmentLag struct {
	Segment int
	// FirstPartition and LastPartition are inclusive.
	FirstPartition, LastPartition int
	// Owner is the process that publishes the range; empty when there is none.
	Owner  string
	Cursor eventstore.Position
	Behind int64
	Age    time.Duration
}

// Lag reads from the database how far the publishing is, whichever processes do it. The error is a [*NotInstalledError]
// when the store lacks the tables.
func (r *Relay) Lag(ctx context.Context) (Lag, error) {
	var l Lag
	rows, err := r.pool.Query(ctx, r.sql(lagSQL), pgx.QueryExecModeExec, r.ref.Name, r.ref.Version)
	if err == nil {
		err = l.collect(rows)
	}
	pg := (*pgconn.PgError)(nil)
	if l.State == notStarted || errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") { // no such table, no such schema
		if missing := r.installed(ctx, r.pool); missing != nil {
			return Lag{}, missing
		}
	}
	if err != nil {
		return Lag{}, fmt.Errorf("outbox: lag of the relay: %w", err)
	}
	if l.Head, err = r.rows.SafeHead(ctx); err != nil {
		return Lag{}, fmt.Errorf("outbox: lag of the relay: %w", err)
	}
	l.Behind = max(l.Head.Ordinal()-l.Cursor.Ordinal(), 0)
	for i := range l.Segments {
		s := &l.Segments[i]
		s.Behind = max(l.Head.Ordinal()-s.Cursor.Ordinal(), 0)
	}
	return l, nil
}

// collect reads a row for each segment, or one when there is none yet.
func (l *Lag) collect(rows pgx.Rows) error {
	var (
		s           SegmentLag
		number      *int
		first, last int
		cursor      int64
		age         float64
		owners      []string
	)
	lowest := int64(-1)
	_, err := pgx.ForEachRow(rows, []any{&l.State, &l.Reason, &number, &first, &last, &s.Owner, &cursor, &age}, func() error {
		s.Cursor, s.Age = eventstore.PositionAt(cursor), time.Duration(age*float64(time.Second))
		if lowest < 0 || cursor < lowest {
			lowest = cursor
		}
		l.Age = max(l.Age, s.Age)
		if number != nil {
			s.Segment, s.FirstPartition, s.LastPartition = *number, first, last
			l.Segments = append(l.Segments, s)
		}
		if s.Owner != "" && !slices.Contains(owners, s.Owner) {
			owners = append(owners, s.Owner)
		}
		return nil
	})
	slices.Sort(owners)
	l.Owner, l.Cursor = strings.Join(owners, ", "), eventstore.PositionAt(max(lowest, 0))
	return err
}

const notStarted = "not started"

// installed returns a [*NotInstalledError] when a table is not there.
func (r *Relay) installed(ctx context.Context, db *pgxpool.Pool) error {
	var missing string
	err := db.QueryRow(ctx, missingSQL, pgx.QueryExecModeExec, r.ref.Store).Scan(&missing)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("outbox: look for the tables: %w", err)
	}
	return &NotInstalledError{Schema: r.ref.Store, Missing: "table " + missing}
}

// missingSQL knows a table of the first migration, and those of the one that made relays.
const missingSQL = `
SELECT t.name FROM unnest('{consumers,outbox_tails,subscribers}'::text[]) WITH ORDINALITY AS t(name, nth)
 WHERE to_regclass(format('%I.%I', $1::text, t.name)) IS NULL ORDER BY t.nth LIMIT 1`

// lagSQL looks for the first message of each partition by itself, by the index on partitions and from the block of
// positions on that the cursor is in: a row never crosses the border of one. It is planned each time, with its values.
const lagSQL = `
SELECT coalesce(c.state, 'not started'), coalesce(c.reason, ''), s.segment, f.lo, f.hi,
       CASE WHEN s.expires_at > clock_timestamp() THEN s.owner ELSE '' END, f.floor,
       coalesce((SELECT max(greatest(extract(epoch FROM clock_timestamp() - m.recorded_at), 0))
                   FROM generate_series(f.lo, f.hi) AS p(n),
                        LATERAL (SELECT o.recorded_at FROM {schema}.outbox o
                                  WHERE o.partition = p.n AND o.first_position >= (f.floor >> 12) << 12 AND o.last_position > f.floor
                                  ORDER BY o.first_position LIMIT 1) m), 0)::double precision
  FROM (SELECT $1::text AS consumer, $2::int AS version) r
  LEFT JOIN {schema}.consumers c ON c.consumer = r.consumer AND c.version = r.version
  LEFT JOIN {schema}.segments s ON s.consumer = r.consumer AND s.version = r.version
  CROSS JOIN {schema}.store x
  CROSS JOIN LATERAL (SELECT coalesce(s.floor, 0) AS floor, coalesce(s.first_partition, 0) AS lo, coalesce(s.last_partition, x.partitions - 1) AS hi) f
 ORDER BY s.segment`
