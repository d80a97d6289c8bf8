package livetest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Patience bounds every wait.
const Patience = 30 * time.Second

// Start runs something until stop is called, or the test ends. It must return nil within two seconds of the end of its
// context.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			began := time.Now()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
				if d := time.Since(began); d > 2*time.Second {
					t.Errorf("Run took %v to end", d)
				}
			case <-time.After(Patience):
				t.Error("Run did not end")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// Eventually polls, for what nothing tells of, less and less often. Each of more is called when it never is, and says how
// things are.
func Eventually(t testing.TB, what string, is func() bool, more ...func() string) {
	t.Helper()
	pause := 2 * time.Millisecond
	late := time.After(Patience)
	for !is() {
		select {
		case <-time.After(pause):
			pause = min(pause*5/4, 25*time.Millisecond)
		case <-late:
			var now strings.Builder
			for _, say := range more {
				now.WriteString("\n" + say())
			}
			t.Fatalf("%s: not within %v%s", what, Patience, now.String())
		}
	}
}

// DB is a pool, a connection or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Exec runs a statement and returns how many rows it was about.
func Exec(t testing.TB, db DB, sql string, args ...any) int64 {
	t.Helper()
	tag, err := db.Exec(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// Ask returns the one value that a query finds.
func Ask[T any](t testing.TB, db DB, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// Lines keeps what is logged. The zero value is ready.
type Lines struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write adds to the text.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is the text so far.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Logger writes to l.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
