package inbox

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/livetest"
)

//go:noinline
func runsIntoIt() { panic("hunter2") }

// Where a panic of the handler came from is in the log, once, and its value is not.
func TestStackOfAPanicIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var l livetest.Lines
	cfg := w.config()
	cfg.Attempts, cfg.Logger = 3, l.Logger()
	w.start(w.inbox(cfg, func(context.Context, pgx.Tx, Message) error { runsIntoIt(); return nil }))
	w.broker.send(w.pub.next(1).event())
	w.eventually("it is parked", func() bool { return strings.Contains(l.String(), "sequence is parked") })
	text := l.String()
	if strings.Count(text, "handler panicked") != 1 || strings.Count(text, "inbox.runsIntoIt") != 1 || !strings.Contains(text, "level=ERROR") {
		t.Errorf("the log is %s", text)
	}
	if strings.Contains(text, "hunter2") {
		t.Errorf("the value is in the log: %s", text)
	}
}
