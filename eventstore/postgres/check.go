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
// the head at the last version, every event in its partition. It finds what was inserted by hand past the heads, and
// returns at most limit defects. It takes as long as reading the log; nothing is locked.
func (s *Store) Check(ctx context.Context, limit int) ([]Defect, error) {
	rows, err := s.pool.Query(ctx, s.sql.check, s.partitions, limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", err)
	}
	defects, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Defect])
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", err)
	}
	return defects, nil
}

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
