package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Defect is something in the stored data that no program of ours can have written.
type Defect struct {
	Stream string
	Detail string
}

// String is one line for people.
func (d Defect) String() string { return fmt.Sprintf("stream %q: %s", d.Stream, d.Detail) }

// Check reads the whole log and compares it with the heads of the streams: versions without gaps, rising with positions,
// the head at the last version, every event in its partition; and rows of the outbox with the events that they name. It
// finds what was inserted by hand past the heads, and returns at most limit defects. It takes as long as reading the log;
// nothing is locked.
func (s *Store) Check(ctx context.Context, limit int) ([]Defect, error) {
	defects, err := s.defects(ctx, s.sql.check, s.partitions, limit)
	if err != nil || len(defects) >= limit {
		return defects, err
	}
	more, err := s.defects(ctx, s.sql.checkOutbox, limit-len(defects))
	return append(defects, more...), err
}

func (s *Store) defects(ctx context.Context, sql string, args ...any) ([]Defect, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", err)
	}
	defects, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Defect])
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", err)
	}
	return defects, nil
}

const checkOutboxSQL = `
SELECT o.stream_id, format('the outbox row of topic %s at %s names versions %s to %s, which do not lie there', o.topic, o.first_position, o.from_version, o.to_version)
  FROM {schema}.outbox o, LATERAL (
    SELECT count(*) AS n, min(e.position) AS first, max(e.position) AS last, bool_and(e.partition = o.partition) AS placed FROM {schema}.events e
     WHERE e.stream_id = o.stream_id AND e.version BETWEEN o.from_version AND o.to_version
       AND e.position BETWEEN o.first_position AND o.last_position) x
 WHERE o.stream_id IS NOT NULL
   AND (x.n <> o.to_version - o.from_version + 1 OR x.first <> o.first_position OR x.last <> o.last_position OR NOT x.placed)
 ORDER BY o.first_position, o.topic LIMIT $1`

const checkSQL = `
SELECT d.stream_id, d.detail
  FROM (SELECT coalesce(e.stream_id, h.stream_id) AS stream_id,
               CASE WHEN h.stream_id IS NULL THEN 'has events but no head'
                    WHEN coalesce(e.top, 0) <> h.version THEN format('head is at version %s, last event at %s', h.version, coalesce(e.top, 0))
                    WHEN e.n <> e.top - e.bottom + 1 THEN format('%s events between versions %s and %s', e.n, e.bottom, e.top)
                    WHEN NOT e.ordered THEN 'versions do not rise with positions'
                    WHEN NOT e.placed OR e.partition <> h.partition THEN 'events are not in the partition of their key'
               END AS detail
          FROM (SELECT x.stream_id, count(*) AS n, min(x.version) AS bottom, max(x.version) AS top, min(x.partition) AS partition,
                       bool_and(x.previous IS NULL OR x.previous = x.version - 1) AS ordered,
                       bool_and(x.partition = {schema}.partition_of(CASE x.partition_key WHEN '' THEN x.stream_id ELSE x.partition_key END, $1::int)) AS placed
                  FROM (SELECT v.*, lag(v.version) OVER (PARTITION BY v.stream_id ORDER BY v.position) AS previous FROM {schema}.events v) x
                 GROUP BY x.stream_id) e
          FULL JOIN {schema}.streams h USING (stream_id)) d
 WHERE d.detail IS NOT NULL
 ORDER BY d.stream_id LIMIT $2`
