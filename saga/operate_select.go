package saga

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

// Selection says which instances an [Operator] means. Its zero value selects nothing, and is refused.
type Selection struct {
	saga   string
	keys   []string
	filter *Filter
}

// Of selects instances of a saga by their keys: of each the run that is under way, else the last one.
func Of(saga string, keys ...string) Selection { return Selection{saga: saga, keys: keys} }

// Matching selects the instances that a filter does and that have not ended. It must name more than the saga. After and
// Limit are not read. Of those that are stuck it selects what managers have stored, not what [List] finds besides: an overdue
// timer or a command that does not move needs a program that runs, and no decision about the instance. Name the keys of
// others with [Of].
func Matching(f Filter) Selection {
	f.After, f.Limit = "", 0
	return Selection{saga: f.Saga, filter: &f}
}

// String is the selection as people read it.
func (s Selection) String() string {
	if s.filter != nil {
		return s.filter.String()
	}
	keys := s.keys
	more := ""
	if len(keys) > 10 {
		keys, more = keys[:10], fmt.Sprintf(" and %d more", len(keys)-10)
	}
	return fmt.Sprintf("saga %q, %s%s", s.saga, opList(keys), more)
}

func (s Selection) validate() error {
	switch f := s.filter; {
	case f == nil && len(s.keys) == 0:
		return opInvalid("Selection", "", "selects nothing", "use Of or Matching")
	case f == nil:
		return explainNames(s.saga, s.keys...)
	case *f == Filter{Saga: f.Saga}:
		return opInvalid("Selection", f.String(), "selects every instance", "say which: stuck ones, or those of a state")
	case flow.State(f.State).Over():
		return opInvalid("Selection", f.String(), "is of instances that have ended", "name a state that is not an end")
	case slices.Contains([]string{ReasonTimerOverdue, ReasonOutboxBlocked, ReasonRetrying}, f.Reason):
		return opInvalid("Filter.Reason", f.Reason, "is not stored with instances", "name their keys, or use one of "+strings.Join(storedReasons, ", "))
	}
	return s.filter.validate()
}

// Preview is what a selection stands for now.
type Preview struct {
	Saga string `json:"saga"`
	// Instances is how many are selected, those included that cannot be part of a plan: Over have ended, Planned are in a
	// plan that is running.
	Instances int `json:"instances"`
	Over      int `json:"over"`
	Planned   int `json:"planned"`
	// Examples are the first of them, at most ten.
	Examples []Summary `json:"examples"`
}

// LeftOut is what of it cannot be part of a plan, for people: "1 instance has ended, 2 are in plans that are running"; empty
// when everything can.
func (p Preview) LeftOut() string {
	text := ""
	switch {
	case p.Over == 1:
		text = "1 instance has ended"
	case p.Over > 1:
		text = fmt.Sprintf("%d instances have ended", p.Over)
	}
	switch {
	case p.Planned == 0:
		return text
	case text != "":
		text += fmt.Sprintf(", %d ", p.Planned)
	default:
		text = explainCount(p.Planned, "instance") + " "
	}
	if p.Planned == 1 {
		return text + "is in a plan that is running"
	}
	return text + "are in plans that are running"
}

// Preview says what a selection stands for now, and changes nothing. It needs neither Actor nor Reason. Nothing selected is
// a [*NoInstanceError], or [ErrNoInstance] for a filter.
func (o Operator) Preview(ctx context.Context, s Selection) (Preview, error) {
	var p Preview
	if err := s.validate(); err != nil {
		return p, err
	}
	e := o.explaining()
	err := e.read(ctx, o.DB, "preview", func(tx pgx.Tx) (err error) {
		p, err = e.freeze(ctx, tx, s, uuid.Nil)
		return err
	})
	return p, err
}

// freeze finds what is selected. With a plan it writes the items, those left out that have ended or are planned already.
func (o explaining) freeze(ctx context.Context, tx pgx.Tx, s Selection, plan uuid.UUID) (Preview, error) {
	p := Preview{Saga: s.saga}
	if s.filter == nil {
		if err := o.known(ctx, tx, s); err != nil {
			return p, err
		}
	}
	sql, args := s.matchSQL(plan)
	var keys []string
	var runs []int
	if err := tx.QueryRow(ctx, o.sql(sql), args...).Scan(&p.Instances, &p.Over, &p.Planned, &keys, &runs); err != nil {
		return p, err
	}
	if p.Instances == 0 {
		return p, fmt.Errorf("%w: none of %s", ErrNoInstance, s)
	}
	rows, err := tx.Query(ctx, o.sql(examplesSQL), s.saga, keys, runs)
	if err != nil {
		return p, err
	}
	p.Examples, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Summary, error) {
		sum, _, _, err := scanSummary(row)
		return sum, err
	})
	return p, err
}

// known refuses keys that are not there.
func (o explaining) known(ctx context.Context, tx pgx.Tx, s Selection) error {
	rows, err := tx.Query(ctx, o.sql(knownSQL), s.saga, s.keys)
	if err != nil {
		return err
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(missing) == 0 {
		return err
	}
	r := reading{explaining: o, tx: tx}
	return r.near(ctx, s.saga, missing[0])
}

const knownSQL = `
SELECT k.key FROM unnest($2::text[]) WITH ORDINALITY AS k(key, nth)
 WHERE NOT EXISTS (SELECT FROM {schema}.sagas s WHERE s.saga = $1 AND s.key = k.key) ORDER BY k.nth LIMIT 1`

// matchSQL makes m, the instances that are selected.
func (s Selection) matchSQL(plan uuid.UUID) (string, []any) {
	w := &wheres{}
	var from string
	if s.filter == nil {
		keys := slices.Clone(s.keys)
		slices.Sort(keys)
		from = fmt.Sprintf(`
  SELECT s.key, s.run, s.ended_at, k.nth FROM unnest(%s::text[]) WITH ORDINALITY AS k(key, nth), LATERAL (
    SELECT x.key, x.run, x.ended_at FROM {schema}.sagas x WHERE x.saga = %s AND x.key = k.key
     ORDER BY (x.ended_at IS NULL) DESC, x.run DESC LIMIT 1) s
   ORDER BY k.nth LIMIT %s::int`, w.arg(slices.Compact(keys)), w.arg(s.saga), w.arg(opMost+1))
	} else {
		fits, order := s.filter.selection(w, explaining{}.at)
		from = fmt.Sprintf(`
  SELECT s.key, s.run, s.ended_at, row_number() OVER (ORDER BY %[3]s) AS nth FROM {schema}.sagas s
   WHERE %[1]s AND %[2]s AND s.ended_at IS NULL ORDER BY %[3]s LIMIT %[4]s::int`, w, fits, order, w.arg(opMost+1))
	}
	saga := w.arg(s.saga)
	var b strings.Builder
	fmt.Fprintf(&b, `
WITH k AS MATERIALIZED (%s),
m AS MATERIALIZED (
  SELECT k.key, k.run, k.nth, k.ended_at IS NOT NULL AS over,
         EXISTS (SELECT FROM {schema}.saga_plan_items i JOIN {schema}.saga_plans p ON p.plan = i.plan
                  WHERE i.key = k.key AND i.run = k.run AND i.state = 'open' AND p.saga = %s AND p.state = 'running') AS planned
    FROM k)`, from, saga)
	if plan != uuid.Nil {
		fmt.Fprintf(&b, `,
items AS (
  INSERT INTO {schema}.saga_plan_items (plan, item, key, run)
  SELECT %s::uuid, row_number() OVER (ORDER BY m.nth), m.key, m.run FROM m WHERE NOT m.over AND NOT m.planned)`, w.arg(plan))
	}
	b.WriteString(`
SELECT count(*)::int, (count(*) FILTER (WHERE over))::int, (count(*) FILTER (WHERE planned AND NOT over))::int,
       coalesce((array_agg(key ORDER BY nth) FILTER (WHERE nth <= 10)), '{}'), coalesce((array_agg(run ORDER BY nth) FILTER (WHERE nth <= 10)), '{}') FROM m`)
	return b.String(), w.args
}

const examplesSQL = `
SELECT ` + summaryColumns + `, true, u.nth::int
  FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS u(key, run, nth)
  JOIN {schema}.sagas s ON s.saga = $1 AND s.key = u.key AND s.run = u.run ORDER BY u.nth`
