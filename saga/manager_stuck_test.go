package saga

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// R-ST15: an instance that becomes stuck is a line, a count, and in Health, until it is not.
func TestStuckInstancesAreToldOf(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	var out livetest.Lines
	cfg := quick()
	cfg.Logger = out.Logger()
	m := w.manager(cfg, script(1))
	w.start(m)
	healthy := func() bool { h := m.Health(t.Context()); return h.Ready && h.State == "running" }
	livetest.Eventually(t, "it is ready", healthy)
	const line = "level=ERROR msg=\"an instance is stuck until somebody acts: Explain says why\" saga=script "
	w.open("x", "stick")
	livetest.Eventually(t, "x is counted", func() bool { return m.Stats()[0].Stuck == 1 })
	livetest.Eventually(t, "Health says so", func() bool {
		h := m.Health(t.Context())
		return h.Ready && h.State == "degraded" && h.Reason == "saga script manager: 1 instance is stuck and waits for people: List with Stuck has it" && !h.Since.IsZero()
	}, func() string { return m.Health(t.Context()).Reason })
	w.poke("x") // it stays stuck
	w.sees("x", 1, "opened; poked")
	w.open("y", "script fail")
	livetest.Eventually(t, "y is counted", func() bool { return m.Stats()[0].Stuck == 2 })
	livetest.Eventually(t, "Health counts two", func() bool { return strings.Contains(m.Health(t.Context()).Reason, "2 instances are stuck") })
	w.exec("UPDATE daybook.sagas SET version = 7 WHERE key = 'x'; UPDATE daybook.sagas SET stuck = '' WHERE key = 'x'")
	w.poke("x")
	livetest.Eventually(t, "x is counted again", func() bool { return m.Stats()[0].Stuck == 3 })
	lines := slices.DeleteFunc(strings.SplitAfter(out.String(), "\n"), func(l string) bool { return !strings.Contains(l, line) })
	if len(lines) != 3 || !strings.Contains(lines[0], "key=x run=1 reason=dead_letter") || !strings.Contains(lines[1], "key=y run=1 reason=dead_letter") ||
		!strings.Contains(lines[2], "key=x run=1 reason=handler_missing") {
		t.Errorf("these lines are about what is stuck:\n%s", strings.Join(lines, ""))
	}
	w.exec("UPDATE daybook.sagas SET version = 1 WHERE key = 'x'")
	w.becomes("what is kept", "0", "SELECT held::text FROM daybook.sagas WHERE key = 'x'")
	w.exec("UPDATE daybook.timers SET name = replace(name, 'do fail', 'do complete')")
	w.planEnds(w.plan(flow.ActionRetry, "nothing", "", "y"))
	livetest.Eventually(t, "Health is well again", healthy, func() string { return m.Health(t.Context()).Reason })
}

// Many at once are ten lines a second, and a count of the others.
func TestLinesAboutStuckInstances(t *testing.T) {
	t.Parallel()
	var l lines
	now := time.Now()
	n := 0
	for range 50 {
		if fits, leftOut := l.fits(now); fits {
			n++
			if leftOut != 0 {
				t.Errorf("%d were left out", leftOut)
			}
		}
	}
	if n != 10 {
		t.Errorf("%d lines in a second", n)
	}
	if fits, leftOut := l.fits(now.Add(time.Second)); !fits || leftOut != 40 {
		t.Errorf("the next: %v, with %d left out", fits, leftOut)
	}
	if n := (&stuckCount{n: stuckCap}).String(); !strings.HasPrefix(n, "1000 or more instances are stuck") {
		t.Error(n)
	}
}
