package projectiontest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/projection"
)

// RecordedAt is when every event of a scenario was recorded.
var RecordedAt = time.Date(2024, time.February, 29, 12, 0, 0, 0, time.UTC)

// patience bounds how long a scenario waits for the database.
const patience = 30 * time.Second

// Events are events of one stream; make them with [In].
type Events struct {
	stream   string
	payloads []any
}

// In says in which stream events happened: "account-ada".
func In(stream string, events ...any) Events { return Events{stream, events} }

// Fold returns the rows that a view has after events, without a database.
func Fold[K comparable, S any](t testing.TB, v projection.View[K, S], events ...Events) map[K]S {
	t.Helper()
	var h history
	for _, e := range events {
		h.add(t, v.Events, e)
	}
	rows, err := v.Replay(func(yield func(eventstore.RecordedEvent, error) bool) {
		for _, e := range h.all {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Scenario feeds a view on PostgreSQL. It is for one goroutine, that of the test.
type Scenario[K comparable, S any] struct {
	t    testing.TB
	pool *pgxpool.Pool
	view projection.View[K, S]
	h    history
}

// For installs the view in a migrated database that belongs to this test alone.
func For[K comparable, S any](t testing.TB, pool *pgxpool.Pool, v projection.View[K, S]) *Scenario[K, S] {
	t.Helper()
	if err := projection.Install(t.Context(), pool, v); err != nil {
		t.Fatal(err)
	}
	return &Scenario[K, S]{t: t, pool: pool, view: v}
}

// Given adds events of a stream, "account-ada", to what has happened.
func (s *Scenario[K, S]) Given(stream string, events ...any) *Scenario[K, S] {
	s.t.Helper()
	s.h.add(s.t, s.view.Events, In(stream, events...))
	return s
}

// Then applies what has happened since the last Then, and compares all rows of the view.
func (s *Scenario[K, S]) Then(want map[K]S) *Scenario[K, S] {
	s.t.Helper()
	if err := s.apply(); err != nil {
		s.t.Fatal(err)
	}
	got := map[K]S{}
	for r, err := range s.view.All(s.t.Context(), s.pool) {
		if err != nil {
			s.t.Fatal(err)
		}
		got[r.Key] = r.State
	}
	for _, line := range compare(got, want) {
		s.t.Error(line)
	}
	return s
}

// apply runs a runner until it has come to the end, or stopped.
func (s *Scenario[K, S]) apply() error {
	end := make(chan struct{}, 1)
	r, err := projection.NewRunner(s.pool, source{&s.h, end}, projection.Config{Attempts: 1, OnFailure: projection.Stop}, s.view)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	err = s.arrive(ctx, r, end, done)
	cancel()
	if err == nil {
		err = <-done
	}
	return err
}

func (s *Scenario[K, S]) arrive(ctx context.Context, r *projection.Runner, end <-chan struct{}, done chan error) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		part := r.Health(ctx).Parts[0]
		if part.State == "stopped" {
			return fmt.Errorf("projectiontest: %s", part.Reason)
		}
		lags, err := r.Lag(ctx)
		if err == nil && lags[0].Applied.Compare(s.h.end()) >= 0 {
			return nil
		}
		select {
		case err := <-done:
			done <- nil
			return err
		case <-ctx.Done():
			return fmt.Errorf("projectiontest: the view did not arrive within %v: %s %s: %w", patience, part.State, part.Reason, ctx.Err())
		case <-end:
		case <-look.C:
		}
	}
}

func compare[K comparable, S any](got, want map[K]S) (lines []string) {
	for k, w := range want {
		switch g, ok := got[k]; {
		case !ok:
			lines = append(lines, fmt.Sprintf("row %v is missing, want %+v", k, w))
		case !reflect.DeepEqual(g, w):
			lines = append(lines, fmt.Sprintf("row %v is %+v, want %+v", k, g, w))
		}
	}
	for k, g := range got {
		if _, ok := want[k]; !ok {
			lines = append(lines, fmt.Sprintf("row %v is %+v, want none", k, g))
		}
	}
	slices.Sort(lines)
	return lines
}

// history is a log in memory.
type history struct {
	all      []eventstore.RecordedEvent
	versions map[eventstore.StreamID]eventstore.Version
}

func (h *history) end() eventstore.Position { return eventstore.PositionAt(int64(len(h.all))) }

func (h *history) add(t testing.TB, catalog *eventstore.Catalog, events Events) {
	t.Helper()
	stream, err := eventstore.ParseStreamID(events.stream)
	if err != nil {
		t.Fatal(err)
	}
	if catalog == nil {
		t.Fatal("projectiontest: the view has no catalog: set Events")
	}
	if h.versions == nil {
		h.versions = map[eventstore.StreamID]eventstore.Version{}
	}
	for _, payload := range events.payloads {
		data, err := catalog.Encode(payload)
		if err != nil {
			t.Fatal(err)
		}
		h.versions[stream]++
		h.all = append(h.all, eventstore.RecordedEvent{
			EventData: data, Stream: stream, Version: h.versions[stream],
			Position: eventstore.PositionAt(int64(len(h.all) + 1)), PartitionKey: stream.String(), RecordedAt: RecordedAt,
		})
	}
}

// source gives a history to a runner, and says when it has been read to its end.
type source struct {
	h   *history
	end chan<- struct{}
}

// ReadPage implements [projection.Source].
func (s source) ReadPage(_ context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	page := eventstore.Page{Through: after}
	for _, e := range s.h.all[min(int(after.Ordinal()), len(s.h.all)):] {
		if slices.Contains(f.Types, e.Type) {
			if len(page.Events) == limit {
				break
			}
			page.Events = append(page.Events, e)
		}
		page.Through = e.Position
	}
	return page, nil
}

// Wait implements [projection.Source].
func (s source) Wait(ctx context.Context, after eventstore.Position) error {
	if after.Before(s.h.end()) {
		return nil
	}
	select {
	case s.end <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}
