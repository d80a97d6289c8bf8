package timers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/timers"
)

const (
	schema = "daybook"
	queue  = "tested"
	// patience bounds every wait; none is expected to come near it.
	patience = 60 * time.Second
)

// second0 is the time 0 of stepped clocks.
var second0 = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) *time.Time {
	t := second0.Add(time.Duration(seconds * float64(time.Second)))
	return &t
}

// steps is a clock that goes on when it is told to.
type steps struct {
	mu  sync.Mutex
	now time.Time
}

func (s *steps) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *steps) step(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// send sends what is queued, as one transaction.
func send(t testing.TB, db timers.DB, queue func(b *pgx.Batch)) {
	t.Helper()
	b := &pgx.Batch{}
	queue(b)
	if err := db.SendBatch(context.Background(), b).Close(); err != nil {
		t.Fatal(err)
	}
}

func set(t testing.TB, db timers.DB, now *time.Time, settings ...timers.Setting) {
	t.Helper()
	for i := range settings {
		if settings[i].Queue == "" {
			settings[i].Queue = queue
		}
	}
	send(t, db, func(b *pgx.Batch) { timers.Set(b, schema, now, settings) })
}

// setMany sets n timers of the queue at once, all due at one time.
func setMany(t testing.TB, db timers.DB, queue, prefix string, n int, due string) {
	t.Helper()
	send(t, db, func(b *pgx.Batch) {
		b.Queue(`INSERT INTO daybook.timers (queue, name, due_at, visible_at) SELECT $1, $2 || i, `+due+`, `+due+` FROM generate_series(1, $3::int) i`, queue, prefix, n)
	})
}

func claim(t testing.TB, db timers.DB, owner string, now *time.Time, lease time.Duration) []timers.Timer {
	t.Helper()
	list, err := timers.Claim(t.Context(), db, timers.ClaimRequest{Schema: schema, Queue: queue, Owner: owner, Now: now, Limit: 100, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func finish(db timers.DB, list ...timers.Timer) error {
	b := &pgx.Batch{}
	timers.Finish(b, schema, list)
	return db.SendBatch(context.Background(), b).Close()
}

func execute(t testing.TB, db timers.DB, sql string, args ...any) {
	t.Helper()
	send(t, db, func(b *pgx.Batch) { b.Queue(sql, args...) })
}

func value[T any](t testing.TB, db timers.DB, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// names of timers, each with its token and its due time in seconds since second0.
func told(list []timers.Timer) []string {
	texts := []string{}
	for _, x := range list {
		texts = append(texts, fmt.Sprintf("%s token %d until %g", x.Name, x.Token, x.LeasedUntil.Sub(second0).Seconds()))
	}
	return texts
}

func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return postgrestest.New(t)
}
