package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// maxCount bounds how many letters of one group are counted, allCounts those of all groups together, although at least
	// leastCount of each: beyond that people need no number, and a count takes as long as there are letters.
	maxCount   = 10_000
	allCounts  = 100_000
	leastCount = 10
	// maxGroups bounds how many groups are looked at.
	maxGroups = 10_000
)

// Group is failures of one cause.
type Group struct {
	Fingerprint string `json:"fingerprint"`
	Consumer    string `json:"consumer"`
	Version     int    `json:"version"`
	// Letters is how many there are; with More there are more than that, which were not counted.
	Letters int64 `json:"letters"`
	More    bool  `json:"more"`
	// Oldest and Newest are the times of the last failures of its letters, the first and the last of them.
	Oldest time.Time `json:"oldest"`
	Newest time.Time `json:"newest"`
	// Example is the letter that failed last, Error and Type are its.
	Example uuid.UUID `json:"example"`
	Type    string    `json:"type"`
	Error   string    `json:"error"`
}

// Groups returns the causes of the open letters, those with the most letters first, as far as they are counted: up to
// 10,000 of a group, or fewer where there are more than ten groups, so that the answer takes no longer when there are
// millions. Of more than 10,000 groups it looks at the first by consumer, version and fingerprint. Of f it reads Consumer,
// Version, Fingerprint, Since, Until and Limit; the others, which the index of groups does not know, are refused.
func (l *Letters) Groups(ctx context.Context, f Filter) ([]Group, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	if f.Topic != "" || f.Sequence != "" || f.Type != "" || f.Kind != "" || f.After != "" || f.State != "" && f.State != Open {
		return nil, invalid("Filter", f.String(), "has more than groups are found by",
			"leave consumer, version, group, since and until, and list the letters of a group with the rest")
	}
	var groups []Group
	sql, args := f.groupsSQL()
	err := l.read(ctx, "groups", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, groupsPlanSQL); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, l.sql(sql), args...)
		if err != nil {
			return err
		}
		groups, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Group, error) {
			var g Group
			err := row.Scan(&g.Consumer, &g.Version, &g.Fingerprint, &g.Letters, &g.More, &g.Oldest, &g.Newest, &g.Example, &g.Type, &g.Error)
			g.Oldest, g.Newest = g.Oldest.UTC(), g.Newest.UTC()
			return g, err
		})
		return err
	})
	return groups, err
}

// groupsPlanSQL: only the index of groups has their order. Another one, and a sort, would read all letters.
const groupsPlanSQL = `SELECT set_config('enable_sort', 'off', true), set_config('enable_incremental_sort', 'off', true),
  set_config('enable_bitmapscan', 'off', true)`

// groupsSQL goes through the index of groups from each to the next, counts in the index alone, and looks at one letter of each
// group that it returns.
func (f Filter) groupsSQL() (string, []any) {
	var first, in where // of the letter that the walk begins with, and of the letters of one group
	first.conditions = append(first.conditions, isOpen)
	goesOn := "" // no condition of the index: it would begin again at the consumer's first letter
	if f.Consumer != "" {
		first.add("l.consumer = %s", f.Consumer)
		goesOn += fmt.Sprintf(" AND n.consumer = $%d", len(first.args))
	}
	if f.Version != 0 {
		first.add("l.version = %s::int", f.Version)
		goesOn += fmt.Sprintf(" AND n.version = $%d::int", len(first.args))
	}
	in.args = first.args
	in.conditions = append(in.conditions, isOpen, "l.consumer = g.consumer", "l.version = g.version", "l.fingerprint = g.fingerprint")
	if !f.Since.IsZero() {
		in.add("l.last_failed_at >= %s::timestamptz", f.Since)
	}
	if !f.Until.IsZero() {
		in.add("l.last_failed_at < %s::timestamptz", f.Until)
	}
	wanted := "true"
	if f.Fingerprint != "" {
		wanted = "g.fingerprint = " + in.arg(f.Fingerprint)
	}
	return fmt.Sprintf(`
WITH RECURSIVE every AS (
  (SELECT l.consumer, l.version, l.fingerprint, 1 AS nth FROM {schema}.letters l WHERE %[1]s
    ORDER BY l.consumer, l.version, l.fingerprint LIMIT 1)
  UNION ALL
  SELECT n.consumer, n.version, n.fingerprint, g.nth + 1
    FROM every g, LATERAL (
      SELECT l.consumer, l.version, l.fingerprint FROM {schema}.letters l
       WHERE `+isOpen+` AND (l.consumer, l.version, l.fingerprint) > (g.consumer, g.version, g.fingerprint)
       ORDER BY l.consumer, l.version, l.fingerprint LIMIT 1) n
   WHERE g.nth < %[5]d%[9]s),
named AS MATERIALIZED (SELECT g.consumer, g.version, g.fingerprint FROM every g WHERE %[3]s),
most AS MATERIALIZED (SELECT least(%[6]d, greatest(%[7]d / greatest(count(*), 1), %[8]d)) AS n FROM named),
g AS MATERIALIZED (
  SELECT g.consumer, g.version, g.fingerprint, k.n
    FROM named g, LATERAL (
      SELECT count(*) AS n FROM (SELECT FROM {schema}.letters l WHERE %[2]s ORDER BY l.last_failed_at LIMIT (SELECT n + 1 FROM most)) x) k
   WHERE k.n > 0
   ORDER BY k.n DESC, g.consumer, g.version, g.fingerprint LIMIT %[4]s::int)
SELECT g.consumer, g.version, g.fingerprint, least(g.n, most.n), g.n > most.n, o.last_failed_at, e.last_failed_at,
       e.letter, e.type, coalesce(e.errors[1], '')
  FROM g CROSS JOIN most,
       LATERAL (SELECT l.last_failed_at FROM {schema}.letters l WHERE %[2]s
                 ORDER BY l.consumer, l.version, l.fingerprint, l.last_failed_at LIMIT 1) o,
       LATERAL (SELECT l.last_failed_at, l.letter, l.type, l.errors FROM {schema}.letters l WHERE %[2]s
                 ORDER BY l.consumer DESC, l.version DESC, l.fingerprint DESC, l.last_failed_at DESC LIMIT 1) e
 ORDER BY g.n DESC, g.consumer, g.version, g.fingerprint`,
		&first, &in, wanted, in.arg(f.limit()), maxGroups, maxCount, allCounts, leastCount, goesOn), in.args
}
