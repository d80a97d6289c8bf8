package saga

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	listDefault = 100
	listMost    = 1000
	// listScanned bounds how many instances one page looks at when no index knows what is asked for.
	listScanned = 5000
)

// Summary is an instance in a list.
type Summary struct {
	Saga       string    `json:"saga"`
	Key        string    `json:"key"`
	Run        int       `json:"run"`
	Version    int       `json:"version"`
	Kind       string    `json:"kind"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"` // why it is stuck
	Step       string    `json:"step,omitempty"`   // at which it is stuck
	Text       string    `json:"text,omitempty"`
	StuckSince time.Time `json:"stuck_since,omitzero"`
	PausedAt   time.Time `json:"paused_at,omitzero"`
	Awaits     string    `json:"awaits,omitempty"`
	StartedAt  time.Time `json:"started_at"`
	ChangedAt  time.Time `json:"changed_at"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
}

// Page is a part of a list.
type Page struct {
	Sagas []Summary `json:"sagas"`
	// Next is where the list goes on, for Filter.After; empty at its end. A page may have few instances or none although
	// more follow: what is asked for was not among those that one page looks at.
	Next string `json:"next,omitempty"`
}

// List returns a page of the instances that f selects: those that are stuck by since when they are, those of a state by
// when they changed or ended, the others by key; the oldest first. What changes between two pages may be missed or seen
// twice, nothing else is. Of the options it takes [InSchema] and [At].
func List(ctx context.Context, db DB, f Filter, options ...ExplainOption) (Page, error) {
	page := Page{Sagas: []Summary{}}
	if err := f.validate(); err != nil {
		return page, err
	}
	after, err := f.after()
	if err != nil {
		return page, err
	}
	if f.Limit == 0 {
		f.Limit = listDefault
	}
	o := explainOptions(options)
	err = o.read(ctx, db, "list", func(tx pgx.Tx) error {
		most := listScanned
		if !f.sifts() {
			most = f.Limit + 1
		}
		sql, args := f.listSQL(after, most, o.at)
		rows, err := tx.Query(ctx, o.sql(sql), args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		more, last := false, listCursor{}
		for rows.Next() {
			s, fits, nth, err := scanSummary(rows)
			if err != nil {
				return err
			}
			if fits && len(page.Sagas) == f.Limit {
				more = true // this row says so
				break
			}
			last, more = f.cursorAt(s), nth == most
			if fits {
				page.Sagas = append(page.Sagas, s)
			}
		}
		rows.Close()
		if more {
			page.Next = last.String()
		}
		return rows.Err()
	})
	return page, err
}

func scanSummary(row pgx.Row) (s Summary, fits bool, nth int, err error) {
	var stuck, paused, ended *time.Time
	err = row.Scan(&s.Saga, &s.Key, &s.Run, &s.Version, &s.Kind, &s.State, &s.Reason, &s.Step, &s.Text, &stuck, &paused, &s.Awaits,
		&s.StartedAt, &s.ChangedAt, &ended, &fits, &nth)
	s.StuckSince, s.PausedAt, s.EndedAt = explainTime(stuck), explainTime(paused), explainTime(ended)
	s.StartedAt, s.ChangedAt = s.StartedAt.UTC(), s.ChangedAt.UTC()
	return s, fits, nth, err
}

func (f Filter) cursorAt(s Summary) listCursor {
	c := listCursor{Order: f.order(), Key: s.Key, Run: s.Run}
	switch c.Order {
	case byStuck:
		c.At = s.StuckSince
	case byPause:
		c.At = s.PausedAt
	case byChange:
		c.At = s.ChangedAt
	case byEnding:
		c.At = s.EndedAt
	}
	return c
}

const summaryColumns = `s.saga, s.key, s.run, s.version, s.kind, s.state, s.stuck, s.stuck_step, s.stuck_text, s.stuck_since, s.paused_at, s.awaits,
       s.started_at, s.changed_at, s.ended_at`

// listSQL gives, of the next most instances that an index finds, those that fit, at most one more than the limit; and the
// last one in any case, from which to go on. Its rows end with whether they fit and their number.
func (f Filter) listSQL(after *listCursor, most int, now time.Time) (string, []any) {
	w := &wheres{}
	fits, order := f.selection(w, now)
	if after != nil {
		key, run := w.arg(after.Key), w.arg(after.Run)
		if f.order() == byListKey {
			w.conditions = append(w.conditions, fmt.Sprintf("(s.key, s.run) > (%s, %s::int)", key, run))
		} else {
			at := w.arg(after.At)
			column, _, _ := strings.Cut(order, ",")
			w.conditions = append(w.conditions,
				fmt.Sprintf("%s >= %s::timestamptz AND (%s) > (%[2]s::timestamptz, %[4]s, %[5]s::int)", column, at, order, key, run))
		}
	}
	return fmt.Sprintf(`
SELECT * FROM (
  SELECT %s, (%s) AS fits, row_number() OVER (ORDER BY %[4]s) AS nth
    FROM {schema}.sagas s WHERE %[3]s ORDER BY %[4]s LIMIT %[5]s::int) k
 WHERE k.fits OR k.nth = %[5]s::int ORDER BY k.nth LIMIT %[6]s::int`,
		summaryColumns, fits, w, order, w.arg(most), w.arg(f.Limit+1)), w.args
}
