package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/testscale"
)

// counter counts what a pool sends.
type counter struct{ n atomic.Int64 }

// TraceQueryStart implements [pgx.QueryTracer].
func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements [pgx.BatchTracer].
func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { c.n.Add(1) }

// TraceBatchEnd implements [pgx.BatchTracer].
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// setAside makes n sequences wait for people, as if their first events had failed.
func (w *world) setAside(n int) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.parked (consumer, version, sequence, partition, state, first_position, last_position)
	        SELECT $1, 1, 's-parked' || i, 0, 'parked', 1, 1 FROM generate_series(1, $2::int) AS i`, testConsumer, n)
}

// What is set aside costs the others no statement: only batches that pass by something send three more, however many
// sequences that concerns.
func TestSetAsideCostsTheOthersNoStatement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.append("first", "v")
	many := testscale.N(10_000)
	w.setAside(many)
	c := &counter{}
	cfg := w.pool.Config()
	cfg.ConnConfig.Tracer = c
	traced := &world{t: t, pool: newPool(t, cfg), store: w.store}
	b := &batches{}
	traced.run(traced.worker(Config{Observer: b, Lease: time.Hour}))
	per := func(keys ...string) int64 {
		var all []eventstore.Write
		for _, key := range keys {
			all = append(all, eventstore.To(eventstore.StreamID{Category: "s", ID: key}, eventstore.AnyVersion,
				eventstore.EventData{Type: "test.happened", Data: []byte(key)}))
		}
		before, batch := c.n.Load(), len(b.sizes())
		r, err := w.store.Append(t.Context(), all...)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Token.Marks() {
			w.reaches(m.Position)
		}
		w.eventually("it is told", func() bool { return len(b.sizes()) > batch })
		return c.n.Load() - before
	}
	per("warm")
	healthy := per("x", "y")
	const own = 2 + 2 + 2 // BEGIN and settings, two inserts, fence and COMMIT
	if healthy > own+1 {  // and perhaps a look for redrives, once a second
		t.Errorf("a batch with %d sequences set aside sends %d statements, want %d", many, healthy, own)
	}
	if passing := per("x", "y", "parked1", "parked2", "parked3", "parked4"); passing > own+3+1 {
		t.Errorf("a batch that passes by four events sends %d statements, want %d", passing, own+3)
	}
	if n := ask[int](w, "SELECT sum(queued)::int FROM daybook.parked"); n != 4 {
		t.Errorf("%d events are counted, want 4", n)
	}
}

// BenchmarkSetAside measures what sequences that are set aside cost the others: none of 20,000 events is of them, or every
// tenth.
func BenchmarkSetAside(b *testing.B) {
	for _, c := range []struct{ parked, every int }{{0, 0}, {10_000, 0}, {10_000, 10}} {
		b.Run(fmt.Sprintf("parked=%d/passed=%d", c.parked, c.every), func(b *testing.B) {
			w := newWorld(b)
			const n = 20_000
			var at eventstore.Position
			for i := 0; i < n; i += 100 {
				var all []eventstore.Write
				for j := i; j < i+100; j++ {
					key := fmt.Sprint("k", j%500)
					if c.every > 0 && j%c.every == 0 {
						key = fmt.Sprint("parked", 1+j/c.every)
					}
					all = append(all, eventstore.To(eventstore.StreamID{Category: "s", ID: key}, eventstore.AnyVersion,
						eventstore.EventData{Type: "test.happened", Data: []byte("v")}))
				}
				r, err := w.store.Append(context.Background(), all...)
				if err != nil {
					b.Fatal(err)
				}
				for _, m := range r.Token.Marks() {
					if m.Position.After(at) {
						at = m.Position
					}
				}
			}
			w.setAside(c.parked)
			var took time.Duration
			for b.Loop() {
				w.exec("UPDATE daybook.segments SET floor = 0")
				var began time.Time
				stop := w.run(New(Spec{Ref: testRef, Applier: pure{}}, w.store.Log(), Config{Probe: func(place string) {
					if place == ProbeTaken { // once what is set aside has been read
						began = time.Now()
					}
				}}))
				w.reaches(at)
				took += time.Since(began)
				stop()
			}
			b.ReportMetric(float64(n)*float64(b.N)/took.Seconds(), "events/s")
		})
	}
}

// pure has no effects.
type pure struct{}

// Plan implements [Applier].
func (pure) Plan(context.Context, []eventstore.RecordedEvent) (Plan, error) { return pure{}, nil }

// Relaxed implements [Applier].
func (pure) Relaxed() bool { return true }

// Load implements [Plan].
func (pure) Load(*pgx.Batch) {}

// Apply implements [Plan].
func (pure) Apply(context.Context, pgx.Tx, *pgx.Batch) error { return nil }
