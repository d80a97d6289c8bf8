package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/snapshot"
)

type counters = aggregate.Repository[int64, counted]

// commandFigures measures what commands cost when they meet, when the stream is long, and when they have a key.
func commandFigures(ctx context.Context, e *env) ([]figure, error) {
	var figures []figure
	for _, measure := range []func(context.Context, *env) (figure, error){laneFigure, cacheFigure, snapshotFigure, keyFigure, outcomeFigure} {
		f, err := measure(ctx, e)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// alternately measures a pair in turns and returns the ratios of the second to the first.
func alternately(name string, first, second func() (float64, error)) ([]float64, error) {
	ratios := make([]float64, 0, rounds)
	for range rounds {
		a, err := first()
		if err != nil {
			return nil, err
		}
		b, err := second()
		if err != nil {
			return nil, err
		}
		fmt.Printf("  %s: %.1f and %.1f\n", name, a, b)
		ratios = append(ratios, b/a)
	}
	return ratios, nil
}

// laneFigure lets 64 callers command one aggregate, with and without lanes. Both have a cache, so that the length of the
// stream does not count. Bare optimistic retry begins again at once; what the pauses of Retry alone make of it is printed
// beside it.
func laneFigure(ctx context.Context, e *env) (figure, error) {
	const callers = 64
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: callers})
	if err != nil {
		return figure{}, err
	}
	defer store.Close()
	patient := aggregate.WithRetry(aggregate.Retry{Retries: 1_000_000})
	atOnce := aggregate.WithRetry(aggregate.Retry{Retries: 1_000_000, Base: 1, Cap: 1})
	bare := aggregate.NewRepository(store, counter, aggregate.WithCache(1<<20), aggregate.WithoutLanes(), atOnce)
	pausing := aggregate.NewRepository(store, counter, aggregate.WithCache(1<<20), aggregate.WithoutLanes(), patient)
	lanes := aggregate.NewRepository(store, counter, aggregate.WithCache(1<<20), patient)
	ratios, err := alternately("64 callers on one stream, bare and with lanes (commands/s)",
		func() (float64, error) {
			return commandsFor(ctx, bare, callers, oneStream(uuid.NewString()), countOne, nil)
		},
		func() (float64, error) {
			return commandsFor(ctx, lanes, callers, oneStream(uuid.NewString()), countOne, nil)
		})
	if err != nil {
		return figure{}, err
	}
	rate, err := commandsFor(ctx, pausing, callers, oneStream(uuid.NewString()), countOne, nil)
	fmt.Printf("  the same without lanes, but with random pauses: %.1f\n", rate)
	return newFigure("commands", "64 callers on one stream, with lanes", "×", "bare optimistic retry", 5, true, ratios), err
}

// cacheFigure compares commands on streams of 1,000 events with and without a cache.
func cacheFigure(ctx context.Context, e *env) (figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{})
	if err != nil {
		return figure{}, err
	}
	defer store.Close()
	plain, cached := aggregate.NewRepository(store, counter), aggregate.NewRepository(store, counter, aggregate.WithCache(1<<20))
	run := func(r *counters) (float64, error) {
		id := uuid.NewString()
		if err := fillCounter(ctx, store, id, 1000); err != nil {
			return 0, err
		}
		if _, err := r.Load(ctx, id); err != nil { // warm connections, and the cache where there is one
			return 0, err
		}
		const commands = 200
		start := time.Now()
		for range commands {
			if _, err := r.Handle(ctx, id, countOne); err != nil {
				return 0, err
			}
		}
		return commands / time.Since(start).Seconds(), nil
	}
	ratios, err := alternately("stream of 1,000 events, without and with a cache (commands/s)",
		func() (float64, error) { return run(plain) }, func() (float64, error) { return run(cached) })
	return newFigure("commands", "cached, stream of 1,000 events", "×", "the same without a cache", 1.5, true, ratios), err
}

// snapshotFigure compares loading a stream of 30,000 events that has a snapshot with loading one of 100 events.
func snapshotFigure(ctx context.Context, e *env) (figure, error) {
	const length, behind = 30_000, 99 // as far back as Every(100) lets it be
	store, err := postgres.New(ctx, e.pool, postgres.Config{})
	if err != nil {
		return figure{}, err
	}
	defer store.Close()
	long, short := uuid.NewString(), uuid.NewString()
	r := aggregate.NewRepository(store, counter, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(100)))
	if err := fillCounter(ctx, store, long, length-behind); err != nil {
		return figure{}, err
	}
	if err := r.Snapshots().Rebuild(ctx, long); err != nil {
		return figure{}, err
	}
	if err := errors.Join(moreOfCounter(ctx, store, long, length-behind, behind), fillCounter(ctx, store, short, 100)); err != nil {
		return figure{}, err
	}
	load := func(id string) func() (float64, error) {
		return func() (float64, error) {
			took := make([]time.Duration, 0, 300)
			for range cap(took) {
				start := time.Now()
				if _, err := r.Load(ctx, id); err != nil {
					return 0, err
				}
				took = append(took, time.Since(start))
			}
			return float64(middle(took).Microseconds()), nil
		}
	}
	ratios, err := alternately("load of 100 events, and of 30,000 with a snapshot 99 events back (µs)", load(short), load(long))
	return newFigure("commands", "load of 30,000 events, snapshot 99 events back", "×", "load of a stream of 100 events", 1.5, false, ratios), err
}

// keyFigure compares commands with and without an idempotency key, 32 callers on streams of their own. The events are
// those of the append figures.
func keyFigure(ctx context.Context, e *env) (figure, error) {
	const callers = 32
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: callers})
	if err != nil {
		return figure{}, err
	}
	defer store.Close()
	r := aggregate.NewRepository(store, notebook)
	newKey := func() aggregate.HandleOption { return aggregate.WithIdempotencyKey(uuid.NewString()) }
	ratios, err := alternately("32 callers, 3 events of 300 bytes, without and with a key (commands/s)",
		func() (float64, error) { return commandsFor(ctx, r, callers, freshStreams(), note, nil) },
		func() (float64, error) { return commandsFor(ctx, r, callers, freshStreams(), note, newKey) })
	return newFigure("commands", "with an idempotency key, 3 events, 32 callers", "×", "the same commands without", 0.8, true, ratios), err
}

// outcomeFigure compares the appends alone: with an outcome that is stored under a key, and without.
func outcomeFigure(ctx context.Context, e *env) (figure, error) {
	const callers = 32
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: callers})
	if err != nil {
		return figure{}, err
	}
	defer store.Close()
	ratios, err := alternately("32 callers, 3 events of 300 bytes, without and with an outcome (appends/s)",
		func() (float64, error) { return appendFor(ctx, store, callers, slot) },
		func() (float64, error) { return appendFor(ctx, keyed{store}, callers, slot) })
	return newFigure("commands", "append with an outcome, 3 events, 32 callers", "×", "the same appends without", 0.8, true, ratios), err
}

// keyed appends each time under a new key.
type keyed struct{ *postgres.Store }

func (k keyed) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.AppendResult, error) {
	_, err := k.AppendOnce(ctx, eventstore.Claim{Key: uuid.NewString(), Call: uuid.New()}, eventstore.Outcome{}, writes...)
	return eventstore.AppendResult{}, err
}

// noted is an event with as many bytes as those of the append figures.
type noted struct{ Text []byte }

var notebook = aggregate.Define("notebook", func(n int, _ noted) int { return n + 1 },
	eventstore.NewCatalog(eventstore.TypeOf[noted]("notebook.noted")))

func note(int) ([]noted, error) {
	events := make([]noted, eventsPerAppend)
	for i := range events {
		events[i].Text = payload
	}
	return events, nil
}

// commandsFor lets callers command for a time and returns commands per second. target names the aggregate of a caller's
// n-th command.
func commandsFor[S, E any](ctx context.Context, r *aggregate.Repository[S, E], callers int, target func(caller, n int) string,
	decide func(S) ([]E, error), option func() aggregate.HandleOption,
) (float64, error) {
	ctx = eventstore.WithMetadata(ctx, sample)
	var total atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	start := time.Now()
	for c := range callers {
		wg.Go(func() {
			for n := 0; time.Since(start) < slot; n++ {
				var opts []aggregate.HandleOption
				if option != nil {
					opts = append(opts, option())
				}
				if _, err := r.Handle(ctx, target(c, n), decide, opts...); err != nil {
					errs <- err
					return
				}
				total.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(total.Load()) / time.Since(start).Seconds(), nil
	}
}

func oneStream(id string) func(int, int) string { return func(int, int) string { return id } }

// freshStreams gives each caller a new stream after every 20 commands.
func freshStreams() func(caller, n int) string {
	run := benchRun.Add(1)
	return func(caller, n int) string { return fmt.Sprintf("keys-%d-%d-%d", run, caller, n/appendsPerName) }
}

func countOne(int64) ([]counted, error) { return []counted{{Cents: 1}}, nil }

func fillCounter(ctx context.Context, store *postgres.Store, id string, n int) error {
	return moreOfCounter(ctx, store, id, 0, n)
}

func moreOfCounter(ctx context.Context, store *postgres.Store, id string, from, n int) error {
	for n > 0 {
		part := min(n, 1000)
		events := make([]eventstore.EventData, part)
		for i := range events {
			events[i] = count()
		}
		if _, err := store.Append(ctx, eventstore.To(counter.Stream(id), eventstore.Exactly(eventstore.Version(from)), events...)); err != nil {
			return err
		}
		from, n = from+part, n-part
	}
	return nil
}
