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
	Saga    string `json:"saga"`
	Key     string `json:"key"`
	Run     int    `json:"run"`
	Version int    `json:"version"`
	Kind    string `json:"kind"`
	State   string `json:"state"`
	// Stuck: it does not go on by itself, as [Explain] says. Reasons are those of all its problems, the most telling first.
	// Reason, Step, Text and StuckSince are of the one that counts most, beside that it is paused.
	Stuck      bool      `json:"stuck"`
	Reasons    []string  `json:"reasons,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Step       string    `json:"step,omitempty"`
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

// List returns a page of the instances that f selects: those of a state by when they changed or ended, the others by key; the
// oldest first. With Stuck or Reason first come those that managers have stored as stuck, by since when they are, then those
// that are paused, then those of which the state of letters, timers, answers and consumers says that they do not go on. Each
// is judged by the rule of [Explain], so that the two agree. What is read is what is listed and a bounded rest, by indexes,
// among any number of instances that go on. What changes between two pages may be missed or seen twice, and so may an instance
// whose command was sent again to a dispatcher that does not run; nothing else is. Of the options it takes [InSchema], [At]
// and [OverdueAfter].
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
	err = o.read(ctx, db, "list", func(tx pgx.Tx) (err error) {
		if f.judged() {
			page, err = o.listStuck(ctx, tx, f, after)
			return err
		}
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
		if err := rows.Err(); err != nil {
			return err
		}
		return o.because(ctx, tx, f.Saga, page.Sagas)
	})
	return page, err
}

// because says what keeps those that are listed for another reason. What has ended is kept by letters only.
func (o explaining) because(ctx context.Context, tx pgx.Tx, saga string, all []Summary) error {
	if len(all) == 0 {
		return nil
	}
	common := reading{explaining: o, tx: tx}
	common.row.saga = saga
	if err := common.readCommon(ctx); err != nil {
		return err
	}
	var places []place
	for _, s := range all {
		if s.EndedAt.IsZero() || len(common.open) > 0 {
			places = append(places, place{s.Key, s.Run})
		}
	}
	read, err := common.judge(ctx, places)
	if err != nil {
		return err
	}
	known := map[place]*reading{}
	for _, r := range read {
		known[place{r.row.key, r.row.run}] = r
	}
	for n, s := range all {
		if r := known[place{s.Key, s.Run}]; r != nil {
			all[n] = r.summary()
		}
	}
	return nil
}

func scanSummary(row pgx.Row) (s Summary, fits bool, nth int, err error) {
	var stuck, paused, ended *time.Time
	err = row.Scan(&s.Saga, &s.Key, &s.Run, &s.Version, &s.Kind, &s.State, &s.Reason, &s.Step, &s.Text, &stuck, &paused, &s.Awaits,
		&s.StartedAt, &s.ChangedAt, &ended, &fits, &nth)
	s.StuckSince, s.PausedAt, s.EndedAt = explainTime(stuck), explainTime(paused), explainTime(ended)
	s.StartedAt, s.ChangedAt = s.StartedAt.UTC(), s.ChangedAt.UTC()
	if s.Stuck = s.Reason != ""; s.Stuck {
		s.Reasons = []string{s.Reason}
	}
	return s, fits, nth, err
}

func (f Filter) cursorAt(s Summary) listCursor {
	c := listCursor{Order: f.order(), Key: s.Key, Run: s.Run}
	switch c.Order {
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
