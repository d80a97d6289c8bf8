package projection

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/livetest"
)

//go:noinline
func runsIntoIt() { panic("hunter2") }

// Where a panic of a handler or of a fold came from is in the log, once, and its value is not.
func TestStackOfAPanicIsLogged(t *testing.T) {
	t.Parallel()
	v := counts("panicking")
	v.Folds = []Fold[string, count]{On(ByStream, func(s count, _ Event[added]) count { runsIntoIt(); return s })}
	p := logged("falls_over", func(context.Context, pgx.Tx, Event[added]) error { runsIntoIt(); return nil })
	w := newWorld(t, v, p)
	w.append("s", added{1})
	for _, d := range []Definition{v, p} {
		var l livetest.Lines
		w.start(w.runner(Config{Attempts: 1, Logger: l.Logger()}, d))
		livetest.Eventually(t, "both are logged", func() bool {
			return strings.Contains(l.String(), "sequence is parked") && strings.Contains(l.String(), "handler panicked")
		})
		text := l.String()
		if strings.Count(text, "handler panicked") != 1 || strings.Count(text, "projection.runsIntoIt") != 1 || !strings.Contains(text, "level=ERROR") {
			t.Errorf("the log is %s", text)
		}
		if strings.Contains(text, "hunter2") {
			t.Errorf("the value is in the log: %s", text)
		}
	}
}
