package saga

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

// listStages are all stages, in the order of lists.
var listStages []*listStage

func init() { // not where it is declared: what stages do looks at their numbers
	listStages = []*listStage{
		rowStage("stuck", "s.stuck_since", "s.stuck <> ''", []string{ReasonDeadLetter, ReasonReplyOverdue, ReasonCompensationFailed, ReasonHandlerMissing},
			func(l *listing, r *reading) bool {
				return r.row.stuck != "" && (l.f.Reason == "" || l.f.Reason == r.row.stuck) && l.old(r.row.stuckSince)
			}, func(l *listing) time.Time { return l.ago(l.f.Older) }),
		rowStage("paused", "s.paused_at", "s.paused_at IS NOT NULL", []string{ReasonPaused},
			func(l *listing, r *reading) bool { return !r.row.pausedAt.IsZero() && l.old(r.row.pausedAt) },
			func(l *listing) time.Time { return l.ago(l.f.Older) }),
		{
			name: "letters", reasons: []string{ReasonDeadLetter, ReasonRetrying}, find: findLetters,
			active: func(l *listing) bool { return len(l.common.open) > 0 },
			has: func(_ *listing, r *reading) bool {
				return slices.ContainsFunc(r.letters, func(o explainOpen) bool { return o.concerns })
			},
		},
		{
			name: "aside", reasons: []string{ReasonDeadLetter}, find: findAside,
			active: func(l *listing) bool { return l.relayed },
			has:    func(_ *listing, r *reading) bool { return r.firstCommand(CommandInfo.aside) != uuid.Nil },
			first: func(_ *listing, r *reading, c candidate) bool {
				return r.firstCommand(CommandInfo.aside) == c.command
			},
		},
		timerStage("overdue", ReasonTimerOverdue, "t.queue || '' = $1", "t.visible_at, t.id + 0",
			func(*listing) time.Time { return time.Time{} }, func(l *listing) time.Time { return l.ago(explainPatience) },
			func(l *listing, t TimerInfo) bool { return t.visible.Before(l.ago(explainPatience)) }),
		timerStage("given up", ReasonDeadLetter, "t.queue = $1 AND t.attempts > 0", "t.visible_at, t.name",
			func(l *listing) time.Time { return l.common.now.Add(never / 2) }, func(l *listing) time.Time { return l.common.now.Add(never).AddDate(1, 0, 0) },
			func(l *listing, t TimerInfo) bool {
				return t.Attempts > 0 && t.visible.After(l.common.now.Add(never/2))
			}),
		rowStage("waiting", "s.waits_since", "s.waits_since IS NOT NULL", []string{ReasonReplyOverdue},
			func(l *listing, r *reading) bool {
				return !r.row.waitsSince.IsZero() && r.row.waitsSince.Before(l.ago(max(l.overdue, l.f.Older)))
			}, func(l *listing) time.Time { return l.ago(max(l.overdue, l.f.Older)) }),
		backlogStage("commands", "commands", "q.id", func(l *listing) []int64 { return l.sent },
			func(l *listing) bool {
				_, dispatcher := l.common.stopped(explainDispatcher, time.Time{})
				_, relay := l.common.stopped(explainRelay, time.Time{})
				return dispatcher || l.relayed && relay
			}, CommandInfo.underWay),
		backlogStage("ends", "", "CASE WHEN q.causation_id ~ '^[0-9a-f-]{36}$' THEN q.causation_id::uuid END", func(l *listing) []int64 { return l.told },
			func(l *listing) bool {
				_, stopped := l.common.stopped(explainReplies(l.f.Saga), time.Time{})
				return stopped
			}, CommandInfo.untold),
		openStage(flow.Running), openStage(flow.Compensating),
		timerStage("failed", ReasonRetrying, "t.queue = $1 AND t.attempts > 0", "t.visible_at, t.name",
			func(*listing) time.Time { return time.Time{} }, func(l *listing) time.Time { return l.common.now.Add(never / 2) },
			func(l *listing, t TimerInfo) bool {
				return t.Attempts > 0 && t.visible.Before(l.common.now.Add(never/2))
			}),
		rowStage("retrying", "s.retries_since", "s.retries_since IS NOT NULL", []string{ReasonRetrying},
			func(_ *listing, r *reading) bool { return !r.row.retriesSince.IsZero() },
			func(l *listing) time.Time { return l.common.now.Add(never) }),
	}
}

// old: what began then is old enough for the filter.
func (l *listing) old(since time.Time) bool { return since.Before(l.ago(l.f.Older)) || l.f.Older == 0 }

// openStage has all instances of a state that have not ended, while nobody runs their manager and there is something that it
// has not read.
func openStage(state flow.State) *listStage {
	s := rowStage(string(state), "s.changed_at", fmt.Sprintf("s.ended_at IS NULL AND s.state = '%s'", state), []string{ReasonOutboxBlocked},
		func(_ *listing, r *reading) bool { return !r.over() && r.row.state == string(state) },
		func(l *listing) time.Time { return l.common.now.Add(never) })
	s.active = func(l *listing) bool {
		return (l.f.State == "" || l.f.State == string(state)) && len(l.common.unread()) > 0
	}
	return s
}

// rowStage has the instances of an index over sagas, by a time of theirs that is before another one.
func rowStage(name, column, where string, reasons []string, has func(*listing, *reading) bool, before func(*listing) time.Time) *listStage {
	sql := fmt.Sprintf(`
SELECT s.key, s.run, %[1]s, s.state, s.stuck FROM {schema}.sagas s
 WHERE s.saga = $1 AND %[2]s AND %[1]s < $2 AND %[1]s >= $3 AND (%[1]s, s.key, s.run) > ($3, $4, $5) ORDER BY %[1]s, s.key, s.run LIMIT $6`, column, where)
	return &listStage{name: name, reasons: reasons, has: has, find: func(ctx context.Context, l *listing, after *listCursor, most int) ([]candidate, *listCursor, error) {
		from := cmp.Or(after, &listCursor{})
		if l.f.State != "" || l.f.Reason != "" && name == "stuck" {
			most = listMost // some are passed over
		}
		limit := before(l)
		if l.f.Older == 0 && name != "waiting" {
			limit = l.common.now.Add(never)
		}
		rows, err := l.tx.Query(ctx, l.sql(sql), l.f.Saga, limit, from.At, from.Key, from.Run, most)
		if err != nil {
			return nil, nil, err
		}
		var found []candidate
		end := listCursor{Order: name}
		var state, stuck string
		n := 0
		_, err = pgx.ForEachRow(rows, []any{&end.Key, &end.Run, &end.At, &state, &stuck}, func() error {
			n++
			if l.f.State != "" && state != l.f.State || name == "stuck" && l.f.Reason != "" && stuck != l.f.Reason {
				return nil
			}
			found = append(found, candidate{place: place{end.Key, end.Run}, at: end})
			return nil
		})
		l.looked += n - len(found)
		if err != nil || n < most {
			return found, nil, err
		}
		return found, &end, nil
	}}
}

// timerStage has the instances of timers that are visible between two times.
func timerStage(name, reason, where, order string, from, to func(*listing) time.Time, is func(*listing, TimerInfo) bool) *listStage {
	second := "t.name"
	if order != "t.visible_at, t.name" {
		second = "t.id + 0"
	}
	sql := fmt.Sprintf(`
SELECT t.name, t.visible_at, t.id FROM {schema}.timers t
 WHERE %[1]s AND t.visible_at >= $2 AND t.visible_at < $3 AND (%[2]s) > ($2, $4) ORDER BY %[2]s LIMIT $5`, where, order)
	first := func(l *listing, r *reading) (first *TimerInfo) {
		for n := range r.timers {
			if t := &r.timers[n]; is(l, *t) && (first == nil || timerBefore(t, first, second)) {
				first = t
			}
		}
		return first
	}
	return &listStage{
		name: name, reasons: []string{reason},
		has: func(l *listing, r *reading) bool { return first(l, r) != nil },
		first: func(l *listing, r *reading, c candidate) bool {
			t := first(l, r)
			return t != nil && t.Name == c.timer
		},
		find: func(ctx context.Context, l *listing, after *listCursor, most int) ([]candidate, *listCursor, error) {
			begin := cmp.Or(after, &listCursor{At: from(l)})
			var behind any = begin.Number
			if second == "t.name" {
				behind = begin.Name
			}
			rows, err := l.tx.Query(ctx, l.sql(sql), timerQueue(l.f.Saga), begin.At, to(l), behind, most)
			if err != nil {
				return nil, nil, err
			}
			var found []candidate
			end := listCursor{Order: name}
			n := 0
			_, err = pgx.ForEachRow(rows, []any{&end.Name, &end.At, &end.Number}, func() error {
				n++
				if ref, timer, ok := parseTimer(l.f.Saga, end.Name); ok {
					found = append(found, candidate{place: place{ref.Key, ref.Run}, timer: timer, at: end})
				}
				return nil
			})
			l.looked += n
			if err != nil || n < most {
				return found, nil, err
			}
			return found, &end, nil
		},
	}
}

// timerBefore is the order of the indexes.
func timerBefore(x, y *TimerInfo, second string) bool {
	if c := x.visible.Compare(y.visible); c != 0 {
		return c < 0
	}
	if second == "t.name" {
		return x.Name < y.Name
	}
	return x.id < y.id
}
