package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// until waits until so many events of a type are in the log.
func (s shell) until(t *testing.T, event string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
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
