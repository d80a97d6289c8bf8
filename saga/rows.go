package saga

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

// timerQueue is the queue of the timers of a saga.
func timerQueue(saga string) string { return "saga:" + saga }

// timerPrefix begins the names of the timers of one run of an instance, and of no other. Part of the stored form.
func timerPrefix(ref flow.Ref) string {
	return strconv.Itoa(len(ref.Key)) + ":" + ref.Key + ":" + strconv.Itoa(ref.Run) + ":"
}

// timerName is the name of a timer of an instance within its saga's queue.
func timerName(ref flow.Ref, name string) string { return timerPrefix(ref) + name }

// timersAfter is the first name, in the order of their bytes, that is behind all timers of an instance: they are from
// [timerPrefix], this one not included.
func timersAfter(ref flow.Ref) string {
	p := timerPrefix(ref)
	return p[:len(p)-1] + string(':'+1)
}

// parseTimer is the opposite of timerName, for a saga.
func parseTimer(saga, text string) (ref flow.Ref, name string, ok bool) {
	length, rest, ok := strings.Cut(text, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || len(rest) < n+1 || rest[n] != ':' {
		return ref, "", false
	}
	run, name, ok := strings.Cut(rest[n+1:], ":")
	ref = flow.Ref{Saga: saga, Key: rest[:n]}
	if ref.Run, err = strconv.Atoi(run); err != nil || !ok {
		return ref, "", false
	}
	return ref, name, true
}

// storable is a text for people as PostgreSQL can hold it.
func storable(text string) string {
	if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	}
	return text
}

// locked takes the rows that were locked.
func (t *turn) locked(rows pgx.Rows) error {
	var (
		in                       instance
		key, state, startedBy    string
		run                      int
		stuckSince               *time.Time
		reason, step, text       string
		tenant, correlation, typ string
		startedAt                time.Time
	)
	_, err := pgx.ForEachRow(rows, []any{
		&key, &run, &in.version, &state, &reason, &step, &text, &stuckSince, &in.paused, &in.held, &in.progress, &typ, &in.data,
		&startedBy, &tenant, &correlation, &in.entries, &in.began, &in.position, &startedAt, &in.over, &in.reopened,
	}, func() error {
		one := in
		one.place, one.contentType, one.machine = place{key, run}, typ, t.u.machines[in.version]
		id, err := uuid.Parse(startedBy)
		if err != nil {
			return err
		}
		one.facts = flow.Instance{
			Ref: flow.Ref{Saga: t.u.name, Key: key, Run: run}, Version: in.version, State: flow.State(state),
			Stuck: flow.Stuck{Reason: reason, Step: step, Text: text}, StartedBy: id, Tenant: tenant, CorrelationID: correlation,
			StartedAt: startedAt,
		}
		if stuckSince != nil {
			one.facts.Stuck.Since = *stuckSince
		}
		t.instances[one.place] = &one
		if last := t.latest[key]; last == nil || last.run < run {
			t.latest[key] = &one
		}
		in.progress, in.data = nil, nil
		return nil
	})
	return err
}

// found takes which commands caused something.
func (t *turn) found(rows pgx.Rows) error {
	var id, key, step, direction, state string
	var run, intent int
	_, err := pgx.ForEachRow(rows, []any{&id, &key, &run, &step, &direction, &intent, &state}, func() error {
		command, err := uuid.Parse(id)
		if err != nil {
			return err
		}
		t.origins[command] = origin{
			flow.Origin{ID: command, Step: step, Direction: flow.Direction(direction), Intent: intent}, place{key, run}, state,
		}
		return nil
	})
	return err
}

const (
	// planSQL: all statements of the transaction are the manager's own. They look up rows by index one by one, whatever the
	// planner was told of the tables when they were empty. What is found by an array is found in a LATERAL subquery that
	// cannot be flattened (OFFSET 0): else the planner may read all of a saga first, and the array for each row.
	planSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
  set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)`

	nowSQL = `
SELECT coalesce($2::timestamptz, clock_timestamp()), coalesce(n.cleaned, 0), coalesce(n.runs, 0)
  FROM (SELECT 1) o LEFT JOIN {schema}.saga_names n ON n.saga = $1`

	// lockSQL locks in the order in which everybody does. Nothing but the owner of the events makes new runs, so the last one
	// of a key is the last one also behind a wait.
	lockSQL = `
WITH wanted AS MATERIALIZED (
  SELECT l.key, l.run FROM unnest($2::text[]) k(key)
   CROSS JOIN LATERAL (SELECT s.key, s.run FROM {schema}.sagas s WHERE s.saga = $1 AND s.key = k.key ORDER BY s.run DESC LIMIT 1) l
  UNION
  SELECT c.key, c.run FROM unnest($3::text[]) u(id)
   CROSS JOIN LATERAL (SELECT x.saga, x.key, x.run FROM {schema}.saga_commands x WHERE x.command = u.id::uuid OFFSET 0) c
   WHERE c.saga = $1
  UNION
  SELECT p.key COLLATE "C", p.run FROM unnest($4::text[], $5::int[]) p(key, run))
SELECT s.key, s.run, s.version, s.state, s.stuck, s.stuck_step, s.stuck_text, s.stuck_since, s.paused_at IS NOT NULL, s.held, s.progress,
       s.content_type, s.data, s.started_by::text, s.tenant, s.correlation_id, s.entries, s.began, s.position, s.started_at,
       s.ended_at IS NOT NULL, s.reopened
  FROM (SELECT key, run FROM wanted ORDER BY key COLLATE "C", run) w
  CROSS JOIN LATERAL (SELECT x.* FROM {schema}.sagas x WHERE x.saga = $1 AND x.key = w.key AND x.run = w.run FOR UPDATE OF x) s`

	originsSQL = `
SELECT c.command::text, c.key, c.run, c.step, c.direction, c.intent, c.state
  FROM unnest($2::text[]) u(id)
  CROSS JOIN LATERAL (SELECT x.* FROM {schema}.saga_commands x WHERE x.command = u.id::uuid OFFSET 0) c
 WHERE c.saga = $1`
)
