package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/saga"
)

// until waits until so many events of a type are in the log.
func (s shell) until(t *testing.T, event string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for have := 0; have < n; {
		const sql = "SELECT count(*) FROM daybook.events WHERE type = $1"
		if err := s.pool.QueryRow(ctx, sql, event).Scan(&have); err != nil && ctx.Err() != nil {
			t.Fatalf("%d of %d events %s are there: %v", have, n, event, err) // at first the table is not there
		}
		<-look.C
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":          {[]string{"-h"}, 0, "-orders orders"},
		"unknown flag":  {[]string{"-chaoss"}, 2, "-chaoss"},
		"no orders":     {[]string{"-orders", "0"}, 2, "place between 1 and 100,000"},
		"two files":     {[]string{"a.csv", "b.csv"}, 2, "name one file, not 2"},
		"no such file":  {[]string{"no-such.csv"}, 1, "no-such.csv"},
		"kind of file":  {[]string{"main.go"}, 1, "rename the file"},
		"flag too late": {[]string{"orders.csv", "-chaos"}, 2, "name one file, not 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			p := program{out: &out, notes: &out, executable: os.Executable}
			if code := p.run(t.Context(), c.args); code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("it ended with %d, and said\n%s", code, out.String())
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0.00", 5: "0.05", -5: "-0.05", 99_999: "999.99", 123_456_789: "1,234,567.89", -100_000: "-1,000.00"} {
		if got := money(n); got != want {
			t.Errorf("%d cents are %s, want %s", n, got, want)
		}
	}
}

// What is under way are the orders; what waits beside them is told apart, and sagas of other programs are not counted.
func TestSight(t *testing.T) {
	t.Parallel()
	var s sight
	if s.add(nil); s.left() != 0 || s.String() != "0 orders under way, 0 of them being undone, 0 stuck" {
		t.Errorf("nothing: %d left, %s", s.left(), s)
	}
	s.add([]saga.Count{
		{Saga: "cancel-unpaid", Running: 4, Stuck: 1}, {Saga: "checkout", Running: 3, Compensating: 2, Stuck: 1}, {Saga: "loans", Running: 70, Stuck: 7},
		{Saga: "take-out", Running: 1},
	})
	s.untold = 1
	if want := "5 orders under way, 2 of them being undone, 1 stuck; beside them 5 other sagas; 1 webhook not taken"; s.left() != 10 || s.String() != want {
		t.Errorf("%d left, %q; want 10, %q", s.left(), s, want)
	}
}

func TestFaultsAreCounted(t *testing.T) {
	t.Parallel()
	many := make([]string, shown+1)
	for i := range many {
		many[i] = "x"
	}
	if text := wrong(many).Error(); !strings.HasPrefix(text, "the audit found 21 faults, the first 20 of which are\n") || strings.Count(text, "\nx") != shown {
		t.Errorf("%q", text)
	}
	if text := wrong(many[:2]).Error(); text != "the audit found 2 faults\nx\nx" {
		t.Errorf("%q", text)
	}
}
