package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/saga/schedule"
)

// The status says how many schedules there are, and shows those that are late or have failed.
func TestStatusShowsSchedules(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	d := &desk{t: t, pool: pool, url: postgrestest.URL(pool)}
	status := func() string {
		t.Helper()
		out, err := run(t, "status", "--database", d.url)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := status(); strings.Contains(out, "schedules") {
		t.Errorf("without any:\n%s", out)
	}
	add := func(job, tenant, next, seen string) {
		t.Helper()
		d.exec(`INSERT INTO daybook.schedules (job, tenant, expression, zone, missed, overlap, too_late, next_slot, seen_at)
			VALUES ($1, $2, '* * * * *', 'UTC', 'once', 'forbid', '0', now() + $3::text::interval, now() - $4::text::interval)`, job, tenant, next, seen)
	}
	add("reports", "", "1 hour", "0")
	add("invoices", "ann", "1 hour", "0")
	if out := status(); !strings.HasSuffix(out, "\n\nschedules   2, none late, none failed the last time\n") {
		t.Errorf("with two that are well:\n%s", out)
	}
	d.exec(`INSERT INTO daybook.schedule_firings (job, tenant, slot, state, error, ended_at) VALUES ('invoices', 'ann', '2026-01-02T02:30:00Z', 'failed', E'the \x1bdisk', now())`)
	add("cleanup", "", "-190 seconds", "0")
	add("old", "", "-3 hours", "2 hours")
	out := status()
	wantIn(t, out, "\n\nschedules   4, 2 late, 1 failed the last time\n\nJOB ", "\nold       -       3h    no process has known it for 2h  -                     -\n",
		"\ncleanup   -       3m    no process begins it            -                     -\n",
		"\ninvoices  ann     -     -                               2026-01-02T02:30:00Z  the �disk\n")
	if strings.Contains(out, "reports") {
		t.Errorf("one that is well is shown:\n%s", out)
	}
	for i := range troubled {
		add(fmt.Sprint("more-", i), "", "-10 minutes", "0")
	}
	if out := status(); !strings.HasSuffix(out, "\nand 3 more\n") || strings.Count(out, "\nmore-") != troubled-1 {
		t.Errorf("with many:\n%s", out)
	}
}

func TestScheduleThatWaitsForAnother(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := schedule.Summary{Schedules: 1, Late: 1, Troubled: []schedule.Trouble{{Job: "a", Late: time.Minute, Open: true}}}
	if err := printSchedules(&out, s, time.Now()); err != nil {
		t.Fatal(err)
	}
	wantIn(t, out.String(), "a    -       1m    an earlier firing goes on  -       -\n")
}
