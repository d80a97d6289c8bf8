package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// text is what a summary says of one schedule.
func (t Trouble) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s late %t", title(t.Job, t.Tenant), t.Late > 0)
	if t.Open {
		b.WriteString(" open")
	}
	if t.Orphaned {
		b.WriteString(" orphaned")
	}
	if !t.Failed.IsZero() {
		fmt.Fprintf(&b, " failed %s: %s", t.Failed.Format(slotForm), t.Error)
	}
	return b.String()
}

func summary(t *testing.T, db DB, options ...Option) Summary {
	t.Helper()
	s, err := Summarize(t.Context(), db, options...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Late is what is due, or was decided, and has not begun; failed, whose last slot that was carried out failed for good.
func TestSummarize(t *testing.T) {
	t.Parallel()
	w := &world{t, postgrestest.New(t), &steps{now: second0}}
	if s := summary(t, w.pool); s.Schedules != 0 || s.Late != 0 || s.Failed != 0 || s.More != 0 || s.Troubled != nil {
		t.Errorf("without schedules: %+v", s)
	}
	// Of each: when its next slot is, and when it was seen, from now.
	for name, c := range map[string][2]string{
		"well": {"1 hour", "0"}, "soon": {"-20 seconds", "0"}, "due": {"-1 hour", "0"}, "long": {"-2 hours", "0"}, "gone": {"-3 hours", "-6 minutes"},
		"waits": {"1 hour", "0"}, "broke": {"1 hour", "0"}, "mended": {"1 hour", "0"}, "missed": {"1 hour", "0"}, "removed": {"1 hour", "-1 day"},
	} {
		w.exec(`INSERT INTO daybook.schedules (job, tenant, expression, zone, missed, overlap, too_late, next_slot, seen_at)
			VALUES ($1, CASE $1 WHEN 'broke' THEN 'ann' ELSE '' END, '', '', '', '', '0', clock_timestamp() + $2::text::interval, clock_timestamp() + $3::text::interval)`, name, c[0], c[1])
	}
	firing := func(job string, slot, state, text string) {
		t.Helper()
		w.exec(`INSERT INTO daybook.schedule_firings (job, tenant, slot, state, error, ended_at)
			SELECT $1, tenant, CASE WHEN left($2, 1) = '-' THEN clock_timestamp() + $2::text::interval ELSE $2::text::timestamptz END, $3, $4,
			       CASE WHEN $3 IN ('waiting', 'running', 'retrying') THEN NULL ELSE now() END FROM daybook.schedules WHERE job = $1`, job, slot, state, text)
	}
	firing("long", "-4 hours", "running", "")
	firing("waits", "-30 minutes", "waiting", "")
	firing("broke", "2026-01-02T02:30:00Z", "done", "")
	firing("broke", "2026-01-03T02:30:00Z", "failed", "the disk is full")
	firing("broke", "2026-01-04T02:30:00Z", "retrying", "the disk is full")
	firing("mended", "2026-01-03T02:30:00Z", "failed", "the disk is full")
	firing("mended", "2026-01-04T02:30:00Z", "done", "")
	firing("missed", "2026-01-03T02:30:00Z", "failed", "no")
	firing("missed", "2026-01-04T02:30:00Z", "missed", "too late")
	firing("missed", "2026-01-05T02:30:00Z", "replaced", "a later slot was due")
	firing("due", "2026-01-03T02:30:00Z", "failed", "no")

	want := []string{
		"gone late true orphaned", "long late true open", "due late true failed 2026-01-03T02:30:00Z: no", "waits late true",
		"broke of ann late false open failed 2026-01-03T02:30:00Z: the disk is full", "missed late false failed 2026-01-03T02:30:00Z: no",
	}
	texts := func(s Summary) (all []string) {
		for _, t := range s.Troubled {
			all = append(all, t.text())
		}
		return all
	}
	s := summary(t, w.pool)
	if s.Schedules != 10 || s.Late != 4 || s.Failed != 3 || s.More != 0 || !slices.Equal(texts(s), want) {
		t.Errorf("%d, %d late, %d failed, %d more:\n%s\nwant\n%s", s.Schedules, s.Late, s.Failed, s.More, strings.Join(texts(s), "\n"), strings.Join(want, "\n"))
	}
	if late := s.Troubled[2].Late; late < time.Hour || late > 2*time.Hour {
		t.Errorf("what has been due for an hour is late by %v", late)
	}
	if seen := s.Troubled[0].Seen; time.Since(seen) < 5*time.Minute || time.Since(seen) > time.Hour {
		t.Errorf("what was seen six minutes ago was seen %v ago", time.Since(seen))
	}
	s = summary(t, w.pool, AtMost(2))
	if s.Schedules != 10 || s.Late != 4 || s.Failed != 3 || s.More != 4 || !slices.Equal(texts(s), want[:2]) {
		t.Errorf("at most two: %d, %d late, %d failed, %d more: %q", s.Schedules, s.Late, s.Failed, s.More, texts(s))
	}
	s = summary(t, w.pool, OfTenant("ann"))
	if s.Schedules != 1 || s.Late != 0 || s.Failed != 1 || !slices.Equal(texts(s), want[4:5]) {
		t.Errorf("of a tenant: %+v", s)
	}
	if _, err := Summarize(t.Context(), w.pool, InSchema("elsewhere")); err == nil || !strings.HasPrefix(err.Error(), "schedule: summary: ") {
		t.Errorf("where there is no store: %v", err)
	}
}

// What a runner makes of a job that fails and of one that goes well. By the database's clock all of it is to come.
func TestSummarizeARunner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := func(name string, err error) Job {
		return Job{Name: name, Cron: "* * * * * *", Zone: "UTC", Attempts: 1, Run: func(context.Context, Firing) error { return err }}
	}
	w.start(w.runner(w.config(), job("good", nil), job("bad", errors.New("no"))))
	w.registered(2)
	w.clock.step(2 * time.Second)
	w.settled()
	if s := summary(t, w.pool); s.Schedules != 2 || s.Late != 0 || s.Failed != 1 || len(s.Troubled) != 1 || s.Troubled[0].Job != "bad" || s.Troubled[0].Error != "no" {
		t.Errorf("after a failure: %+v", s)
	}
}
