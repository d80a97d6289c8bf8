package saga

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

const (
	listDefault = 100
	listMost    = 1000
	// listScanned bounds how many instances one page looks at when no index knows what is asked for.
	listScanned = 5000
)

// Filter selects instances of one saga.
type Filter struct {
	// Saga is needed.
	Saga string
	// Stuck selects those that do not go on by themselves, as the managers know it: what only [Explain] finds, overdue timers
	// and a blocked outbox, is not among it, nor is what somebody has paused.
	Stuck bool
	// Reason selects those that are stuck for it, one of the Reason… constants that managers store: dead_letter,
	// reply_overdue, compensation_failed, handler_missing; or those that are paused, with paused.
	Reason string
	// State is "running", "compensating", "completed" or "compensated".
	State string
	// Older selects those that have not changed for so long; with Stuck or Reason, that have been stuck, or paused, for so long.
	Older time.Duration
	// After is the Next of the page before; empty for the first page. Only [List] reads it and Limit.
	After string
	// Limit is how many a page has at most. Default 100, at most 1,000.
	Limit int
}

func (f Filter) validate() error {
	if err := explainNames(f.Saga); err != nil {
		return opInvalid("Filter.Saga", fmt.Sprintf("%.200q", f.Saga), "is empty, has a zero byte, or is not UTF-8", "name the saga")
	}
	stored := []string{"", flow.DeadLetter, flow.ReplyOverdue, flow.CompensationFailed, flow.HandlerMissing, flow.Paused}
	switch {
	case !slices.Contains(stored, f.Reason):
		return opInvalid("Filter.Reason", f.Reason, "is no reason that managers store", "use one of "+strings.Join(stored[1:], ", "))
	case !slices.Contains([]string{"", string(flow.Running), string(flow.Compensating), string(flow.Completed), string(flow.Compensated)}, f.State):
		return opInvalid("Filter.State", f.State, "is no state", `use "running", "compensating", "completed" or "compensated"`)
	case f.Older < 0:
		return opInvalid("Filter.Older", f.Older.String(), "is below 0", "name a time like 1h")
	case f.Limit < 0 || f.Limit > listMost:
		return opInvalid("Filter.Limit", fmt.Sprint(f.Limit), fmt.Sprintf("is not between 1 and %d", listMost), "ask for less, and go on with After")
	}
	return nil
}

// String is the filter as people read it.
func (f Filter) String() string {
	parts := []string{fmt.Sprintf("saga %q", f.Saga)}
	if f.Stuck || f.Reason != "" && f.Reason != flow.Paused {
		parts = append(parts, "stuck")
	}
	if f.Reason != "" {
		parts = append(parts, f.Reason)
	}
	if f.State != "" {
		parts = append(parts, "state "+f.State)
	}
	if f.Older > 0 {
		parts = append(parts, "for longer than "+f.Older.String())
	}
	return strings.Join(parts, ", ")
}

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

// The orders of lists, each that of an index.
const (
	byStuck   = "stuck"   // since when they are stuck
	byPause   = "paused"  // since when they are paused
	byChange  = "changed" // of one open state: since when they have not changed
	byEnding  = "ended"   // of one state that is an end: when they ended
	byListKey = "key"
)

func (f Filter) order() string {
	switch {
	case f.Reason == flow.Paused:
		return byPause
	case f.Stuck || f.Reason != "":
		return byStuck
	case f.State == "":
		return byListKey
	case flow.State(f.State).Over():
		return byEnding
	}
	return byChange
}

// listCursor is where a page ended.
type listCursor struct {
	Order string    `json:"o"`
	At    time.Time `json:"a,omitzero"`
	Key   string    `json:"k"`
	Run   int       `json:"r"`
}

func (f Filter) after() (*listCursor, error) {
	if f.After == "" {
		return nil, nil
	}
	var c listCursor
	text, err := base64.RawURLEncoding.DecodeString(f.After)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil || c.Order != f.order() {
		return nil, opInvalid("Filter.After", fmt.Sprintf("%.100q", f.After), "is not the Next of a page of this filter", "pass it on unchanged, with the same filter")
	}
	return &c, nil
}

func (c listCursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // texts, numbers and times of the database: there is none
	}
	return base64.RawURLEncoding.EncodeToString(text)
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

// sifts reports whether more is asked for than the order's index knows.
func (f Filter) sifts() bool {
	switch f.order() {
	case byStuck:
		return f.Reason != "" || f.State != ""
	case byPause:
		return f.Stuck || f.State != ""
	case byEnding:
		return true
	case byListKey:
		return f.Older > 0
	}
	return false
}

// wheres collects conditions and their arguments.
type wheres struct {
	conditions []string
	args       []any
}

// arg adds an argument and returns how the statement names it.
func (w *wheres) arg(value any) string {
	w.args = append(w.args, value)
	return fmt.Sprintf("$%d", len(w.args))
}

func (w *wheres) String() string {
	if len(w.conditions) == 0 {
		return "true"
	}
	return strings.Join(w.conditions, " AND ")
}

// selection splits what f asks for into what the index of its order finds and what is looked at row by row.
func (f Filter) selection(w *wheres, now time.Time) (fits, order string) {
	rest := &wheres{}
	find := func(format string, names ...any) { w.conditions = append(w.conditions, fmt.Sprintf(format, names...)) }
	sift := func(format string, names ...any) {
		rest.conditions = append(rest.conditions, fmt.Sprintf(format, names...))
	}
	before := func(column string) string {
		var at any
		if !now.IsZero() {
			at = now
		}
		return fmt.Sprintf("%s < coalesce(%s::timestamptz, clock_timestamp()) - %s::interval", column, w.arg(at), w.arg(f.Older))
	}
	find("s.saga = %s", w.arg(f.Saga))
	column := ""
	switch f.order() {
	case byStuck:
		column = "s.stuck_since"
		find("s.stuck <> ''")
		if f.Reason != "" {
			sift("s.stuck = %s", w.arg(f.Reason))
		}
		if f.State != "" {
			sift("s.state = %s", w.arg(f.State))
		}
	case byPause:
		column = "s.paused_at"
		find("s.paused_at IS NOT NULL")
		if f.Stuck {
			sift("s.stuck <> ''")
		}
		if f.State != "" {
			sift("s.state = %s", w.arg(f.State))
		}
	case byChange:
		column = "s.changed_at"
		find("s.ended_at IS NULL")
		find("s.state = %s", w.arg(f.State))
	case byEnding:
		column = "s.ended_at"
		find("s.ended_at IS NOT NULL")
		sift("s.state = %s", w.arg(f.State))
	}
	switch {
	case f.Older == 0:
	case column == "":
		sift("%s", before("s.changed_at"))
	default:
		find("%s", before(column))
	}
	if column != "" {
		return rest.String(), column + ", s.key, s.run"
	}
	return rest.String(), "s.key, s.run"
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
