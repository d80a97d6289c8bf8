package inbox

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// logLines keeps what is logged.
type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

//go:noinline
func runsIntoIt() { panic("hunter2") }

// Where a panic of the handler came from is in the log, once, and its value is not.
func TestStackOfAPanicIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var l logLines
	cfg := w.config()
	cfg.Attempts, cfg.Logger = 3, slog.New(slog.NewTextHandler(&l, nil))
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
