package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

const testConsumer = "tested"

var testRef = Ref{Store: "daybook", Name: testConsumer, Version: 1}

// steps is a clock that goes on when it is told to.
type steps struct {
	mu  sync.Mutex
	now time.Time
}

func newSteps() *steps { return &steps{now: time.Now()} }

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

// world is a store with one consumer whose effects are the rows of seen.
type world struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *postgres.Store
	// handle decides about each event after its row is written.
	handle func(ctx context.Context, tx pgx.Tx, e eventstore.RecordedEvent) error
}

func newWorld(t testing.TB) *world {
	t.Helper()
	pool := postgrestest.New(t)
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	w := &world{t: t, pool: pool, store: store}
	w.exec("CREATE TABLE seen (n bigint GENERATED ALWAYS AS IDENTITY, position bigint, key text, value text)")
	w.exec("INSERT INTO daybook.consumers (consumer, version, kind) VALUES ($1, 1, 'projection')", testConsumer)
	w.exec(`INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition)
	        SELECT $1, 1, 0, 0, partitions - 1 FROM daybook.store`, testConsumer)
	return w
}

// Plan implements [Applier].
func (w *world) Plan(_ context.Context, events []eventstore.RecordedEvent) (Plan, error) {
	return &worldPlan{w, events}, nil
}

// Relaxed implements [Applier].
func (w *world) Relaxed() bool { return false }

type worldPlan struct {
	w      *world
	events []eventstore.RecordedEvent
}

// Load implements [Plan].
func (p *worldPlan) Load(*pgx.Batch) {}

// Apply implements [Plan].
func (p *worldPlan) Apply(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error {
	for i, e := range p.events {
		_, err := tx.Exec(ctx, "INSERT INTO seen (position, key, value) VALUES ($1, $2, $3)", e.Position.Ordinal(), e.PartitionKey, string(e.Data))
		if err == nil && p.w.handle != nil {
			err = p.w.handle(ctx, Guard(tx), e)
		}
		if err == nil {
			err = CheckOpen(tx)
		}
		if err != nil {
			return &EventError{Index: i, Err: err}
		}
	}
	return nil
}

// append stores events in a stream: each value is the payload of one.
func (w *world) append(key string, values ...string) eventstore.Position {
	w.t.Helper()
	var events []eventstore.EventData
	for _, v := range values {
		events = append(events, eventstore.EventData{Type: "test.happened", Data: []byte(v)})
	}
	r, err := w.store.Append(context.Background(), eventstore.To(eventstore.StreamID{Category: "s", ID: key}, eventstore.AnyVersion, events...))
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Token.Marks()[0].Position
}

func (w *world) worker(cfg Config) *Worker {
	return w.reading(w.store.Log(), cfg)
}

func (w *world) reading(source Source, cfg Config) *Worker {
	w.t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if err := cfg.Validate(); err != nil {
		w.t.Fatal(err)
	}
	return New(Spec{Ref: testRef, Applier: w}, source, cfg)
}

// run runs a worker until stop is called, or the test ends.
func (w *world) run(worker *Worker) (stop func()) {
	w.t.Helper()
	return livetest.Start(w.t, func(ctx context.Context) error {
		db, err := Pool(ctx, w.pool, 1)
		if err != nil {
			return err
		}
		return Run(ctx, db, worker)
	})
}

func (w *world) exec(sql string, args ...any) int64 {
	w.t.Helper()
	return livetest.Exec(w.t, w.pool, sql, args...)
}

func ask[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	return livetest.Ask[T](w.t, w.pool, sql, args...)
}

// seen are the values that took effect, in their order.
func (w *world) seen() []string {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), "SELECT value FROM seen ORDER BY n")
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	livetest.Eventually(w.t, what, is, w.picture)
}

// picture is what is set aside, for people.
func (w *world) picture() string {
	return ask[string](w, `SELECT coalesce((SELECT string_agg(p::text, E'\n') FROM (SELECT sequence, state, due_at, first_position, last_position, queued
	        FROM daybook.parked LIMIT 20) p), 'nothing is set aside') || E'\n' ||
	    (SELECT state || ' ' || reason FROM daybook.consumers WHERE consumer = $1) ||
	    (SELECT ' at ' || floor || ' revision ' || parked_rev FROM daybook.segments WHERE consumer = $1)`, testConsumer)
}

// reaches waits until the checkpoint is at a position, and everything before has taken effect or is set aside.
func (w *world) reaches(p eventstore.Position) {
	w.t.Helper()
	w.eventually("the checkpoint comes to "+p.String(), func() bool { return w.floor() >= p.Ordinal() })
}

func (w *world) floor() int64 {
	return ask[int64](w, "SELECT floor FROM daybook.segments WHERE consumer = $1", testConsumer)
}

// state is that of a sequence, "" when it is not set aside.
func (w *world) state(key string) string {
	return ask[string](w, "SELECT coalesce((SELECT state FROM daybook.parked WHERE consumer = $1 AND sequence = $2), '')", testConsumer, "s-"+key)
}

func (w *world) becomes(key, state string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s becomes %q", key, state), func() bool { return w.state(key) == state })
}

// letter is what is known of the only letter of a sequence.
type letter struct {
	State, Kind         string
	Attempts, Round     int
	Errors, FirstErrors []string
	Data                string
	ID                  uuid.UUID
}

func (w *world) letter(key string) letter {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), `SELECT state, kind, attempts, round, errors, first_errors, convert_from(data, 'UTF8'), letter
	    FROM daybook.letters WHERE sequence = $1`, "s-"+key)
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[letter])
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%d letters of %s: %v", len(all), key, err)
	}
	return all[0]
}

// plan asks for a redrive of open letters, as operators do.
func (w *world) plan(rate float64, canary, most int, where string) (id uuid.UUID) {
	w.t.Helper()
	id = uuid.New()
	err := pgx.BeginFunc(context.Background(), w.pool, func(tx pgx.Tx) error {
		ctx := context.Background()
		_, err := tx.Exec(ctx, `INSERT INTO daybook.redrives (redrive, consumer, version, actor, selection, rate, canary, most, items)
		    VALUES ($1, $2, 1, 'test', 'all', $3, $4, $5, 0)`, id, testConsumer, rate, canary, most)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `WITH i AS (
		      INSERT INTO daybook.redrive_items (redrive, item, letter, topic, sequence, partition)
		      SELECT $1, row_number() OVER (ORDER BY position), letter, topic, sequence, partition FROM daybook.letters
		       WHERE consumer = $2 AND state IN ('retrying', 'parked') AND `+where+` RETURNING 1)
		    UPDATE daybook.redrives SET items = (SELECT count(*) FROM i), state = CASE WHEN (SELECT count(*) FROM i) = 0 THEN 'done' ELSE 'running' END
		     WHERE redrive = $1`, id, testConsumer)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) planned(id uuid.UUID) string {
	return ask[string](w, "SELECT state FROM daybook.redrives WHERE redrive = $1", id)
}

var errBad = errors.New("it is bad")

// permanent is a classifier.
func permanent(error) eventstore.FailureKind { return eventstore.Permanent }

// switches is a set of values that tests change while handlers look.
type switches struct {
	mu sync.Mutex
	on map[string]bool
	n  map[string]int // how often each was asked for
}

func turned(on ...string) *switches {
	s := &switches{on: map[string]bool{}, n: map[string]int{}}
	for _, v := range on {
		s.on[v] = true
	}
	return s
}

func (s *switches) is(v string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n[v]++
	return s.on[v]
}

func (s *switches) off(v ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range v {
		delete(s.on, v)
	}
}

func (s *switches) count(v string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n[v]
}

// failing makes the handler fail at values that are on.
func (w *world) failing(s *switches) {
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		if s.is(string(e.Data)) {
			return fmt.Errorf("value %s: %w", e.Data, errBad)
		}
		return nil
	}
}

func newPool(t testing.TB, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
