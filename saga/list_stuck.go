package saga

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Instances that do not go on are found in stages. Each stage is an index, or a part of the outbox, that finds all instances
// with one kind of problem among very many that have none, and perhaps some more. What it finds is judged by the rule of
// [Explain]. An instance that several stages find is of the first.

// listStage is one of them.
type listStage struct {
	name    string
	reasons []string // which it can find
	// active reports whether there can be any at this moment; nil: always.
	active func(*listing) bool
	// find returns candidates behind a cursor, in order, about most of them; and where it has come to, nil at its end.
	find func(ctx context.Context, l *listing, after *listCursor, most int) (found []candidate, end *listCursor, err error)
	// first reports whether a candidate is the first place at which the stage finds its instance.
	first func(l *listing, r *reading, c candidate) bool
	// has reports whether the stage finds the instance at all.
	has func(l *listing, r *reading) bool
}

// candidate is an instance that may not go on.
type candidate struct {
	place
	command uuid.UUID // by which it was found
	timer   string
	at      listCursor
}

// listing is a list of instances that do not go on, as it is made.
type listing struct {
	explaining
	f       Filter
	tx      pgx.Tx
	common  reading // what all instances have in common
	judged  map[place]*reading
	stages  []*listStage
	looked  int // rows and messages that were found
	fetched int // instances that were read

	relayed bool    // commands are published by a relay
	sent    []int64 // by partition, up to where the dispatcher has come with commands
	told    []int64 // and the saga with their ends
}

// The bounds of one page, beside what it lists: rows and messages that are looked at, and instances that are read for nothing.
const (
	listLooked = listScanned
	listRead   = 500
)

// listStuck goes through the stages.
func (o explaining) listStuck(ctx context.Context, tx pgx.Tx, f Filter, after *listCursor) (Page, error) {
	page := Page{Sagas: []Summary{}}
	l := &listing{explaining: o, f: f, tx: tx, judged: map[place]*reading{}}
	if err := l.prepare(ctx); err != nil {
		return page, err
	}
	var last listCursor
	for n, stage := range l.stages {
		if after != nil {
			switch before := cmp.Compare(stageNumber(stage.name), stageNumber(after.Order)); {
			case before < 0, before == 0 && after.Over:
				continue
			case before > 0: // that one is not active any more
				after = nil
			}
		}
		for {
			found, end, err := stage.find(ctx, l, after, min(f.Limit-len(page.Sagas)+1, listMost))
			if err == nil {
				err = l.judge(ctx, found)
			}
			if err != nil {
				return page, err
			}
			for _, c := range found {
				if r := l.judged[c.place]; r != nil && l.lists(n, r, c) {
					if len(page.Sagas) == f.Limit {
						page.Next = last.String()
						return page, nil
					}
					page.Sagas = append(page.Sagas, r.summary())
					l.judged[c.place] = nil // it is known, and not listed again
				}
				last = c.at
			}
			if end == nil {
				break
			}
			if last, after = *end, end; l.looked >= listLooked || l.fetched >= f.Limit+listRead {
				page.Next = last.String()
				return page, nil
			}
		}
		after, last = nil, listCursor{Order: stage.name, Over: true}
	}
	return page, nil
}

// lists reports whether a candidate of a stage is listed there.
func (l *listing) lists(stage int, r *reading, c candidate) bool {
	f := l.f
	if f.State != "" && r.row.state != f.State || !l.fits(r) {
		return false
	}
	for _, earlier := range l.stages[:stage] {
		if earlier.has(l, r) {
			return false
		}
	}
	s := l.stages[stage]
	return s.first == nil || s.first(l, r, c)
}

// fits judges what was read of an instance by what is asked for.
func (l *listing) fits(r *reading) bool {
	all := r.problems()
	if l.f.Stuck && !slices.ContainsFunc(all, keeps) {
		return false
	}
	return slices.ContainsFunc(all, func(p Problem) bool {
		return (l.f.Reason == p.Reason || l.f.Reason == "" && keeps(p)) && (l.f.Older == 0 || p.Since.Before(r.now.Add(-l.f.Older)))
	})
}

// prepare reads what all instances have in common, and finds out which stages there are.
func (l *listing) prepare(ctx context.Context) error {
	l.common = reading{explaining: l.explaining, tx: l.tx}
	l.common.row.saga = l.f.Saga
	if err := l.common.readCommon(ctx); err != nil {
		return err
	}
	if _, err := l.tx.Exec(ctx, listPlanSQL); err != nil {
		return err
	}
	if err := l.readPlaces(ctx); err != nil {
		return err
	}
	for _, s := range listStages {
		if s.serves(l.f) && (s.active == nil || s.active(l)) {
			l.stages = append(l.stages, s)
		}
	}
	return nil
}

// serves reports whether the stage can find what is asked for.
func (s *listStage) serves(f Filter) bool {
	return slices.ContainsFunc(s.reasons, func(reason string) bool {
		return reason == f.Reason || f.Reason == "" && reason != ReasonRetrying
	})
}

func stageNumber(name string) int {
	return slices.IndexFunc(listStages, func(s *listStage) bool { return s.name == name })
}

// readCommon reads what time it is, and the consumers and letters of the saga.
func (r *reading) readCommon(ctx context.Context) error {
	if r.now = r.at; r.now.IsZero() {
		if err := r.tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&r.now); err != nil {
			return err
		}
	}
	r.now = r.now.UTC()
	r.at = r.now // of all instances
	if err := r.readConsumers(ctx); err != nil {
		return err
	}
	return r.readOpen(ctx)
}

// listPlanSQL: the first few are taken in an order that one index has, and no other.
const listPlanSQL = `SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// judge reads instances that were not read before, by the statements of [Explain].
func (l *listing) judge(ctx context.Context, found []candidate) error {
	var places []place
	for _, c := range found {
		if _, known := l.judged[c.place]; !known {
			l.judged[c.place] = nil
			places = append(places, c.place)
		}
	}
	l.fetched += len(places)
	all, err := l.common.judge(ctx, places)
	for _, r := range all {
		l.judged[place{r.row.key, r.row.run}] = r
	}
	return err
}

// judge reads instances for their problems. One that is not there any more is left out.
func (r *reading) judge(ctx context.Context, places []place) ([]*reading, error) {
	if len(places) == 0 {
		return nil, nil
	}
	b := &pgx.Batch{}
	all := make([]*reading, len(places))
	for n, p := range places {
		one := *r
		one.row.key, one.row.run = p.key, p.run
		all[n] = &one
		b.Queue(r.sql(explainRowSQL), one.row.saga, p.key, p.run).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			if !rows.Next() {
				all[n] = nil
				return rows.Err()
			}
			return one.scanRow(rows)
		})
		one.queueFacts(b)
	}
	if err := r.tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r *reading) bool { return r == nil })
	for _, one := range all {
		if err := one.find(ctx); err != nil {
			return nil, err
		}
		one.concern()
	}
	return all, nil
}

// summary is the instance in a list.
func (r *reading) summary() Summary {
	i := r.row
	s := Summary{
		Saga: i.saga, Key: i.key, Run: i.run, Version: i.version, Kind: i.kind, State: i.state, PausedAt: i.pausedAt, Awaits: i.awaits,
		StartedAt: i.startedAt, ChangedAt: i.changedAt, EndedAt: i.endedAt,
	}
	s.because(r.problems())
	return s
}

// because tells of problems: that it is paused is told only when there is nothing else.
func (s *Summary) because(all []Problem) {
	for _, p := range all {
		if !slices.Contains(s.Reasons, p.Reason) {
			s.Reasons = append(s.Reasons, p.Reason)
		}
	}
	n := slices.IndexFunc(all, func(p Problem) bool { return keeps(p) && p.Reason != ReasonPaused })
	if n < 0 {
		n = mainProblem(all)
	}
	if n >= 0 {
		p := all[n]
		s.Reason, s.Step, s.Text, s.StuckSince = p.Reason, p.Step, p.Text, p.Since
	}
	s.Stuck = slices.ContainsFunc(all, keeps)
}

// ago is what was so long before the list is made.
func (l *listing) ago(d time.Duration) time.Time { return l.common.now.Add(-d) }
