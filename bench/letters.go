package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/projection"
)

const (
	// setAside is how many sequences are parked.
	setAside = 10_000
	// letterParts times applyEvents are the events of a round.
	letterParts = 10
)

// letterFigures measures what sequences that are set aside cost the others.
func letterFigures(ctx context.Context, e *env) ([]figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: 32})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	without, with := totals, totals
	without.Name, with.Name = "without_letters", "with_letters"
	if err := projection.Install(ctx, e.pool, without, with); err != nil {
		return nil, err
	}
	if _, err := e.pool.Exec(ctx, parkSQL, setAside, with.Name); err != nil {
		return nil, fmt.Errorf("set sequences aside: %w", err)
	}
	runners, spans := make([]*projection.Runner, 2), make([]*span, 2)
	for i, view := range []projection.Definition{without, with} {
		spans[i] = &span{}
		cfg := projection.Config{MaxParked: setAside + 1, Observer: spans[i]}
		if runners[i], err = projection.NewRunner(e.pool, store.Log(), cfg, view); err != nil {
			return nil, err
		}
	}
	ratios := make([]float64, 0, rounds)
	for round := range rounds + 1 {
		var token eventstore.Token // of the last append
		for part := range letterParts {
			if token, err = seedCounters(ctx, store, round*letterParts+part); err != nil {
				return nil, err
			}
		}
		var took [2]time.Duration
		for i := range runners {
			i = (i + round) % 2 // no side always comes first
			if err := runners[i].CatchUp(ctx, token); err != nil {
				return nil, err
			}
			took[i] = spans[i].took()
		}
		if round == 0 {
			continue // warms connections and plans
		}
		fmt.Printf("  %d events applied in %s, with %d sequences set aside in %s\n",
			letterParts*applyEvents, took[0].Round(time.Millisecond), setAside, took[1].Round(time.Millisecond))
		ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
	}
	return []figure{newFigure("letters", fmt.Sprintf("events/s beside %d parked sequences", setAside), "", "none parked", 0.9, true, ratios)}, nil
}

// span is the time from the begin of the first batch to the end of the last: reading what is set aside, when the lease is
// taken, is not part of it.
type span struct {
	eventstore.NopObserver
	mu          sync.Mutex
	first, last time.Time
}

func (s *span) ObserveBatch(b eventstore.BatchObservation) {
	if b.Events == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	if s.first.IsZero() {
		s.first = s.last.Add(-b.Duration)
	}
}

func (s *span) took() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.last.Sub(s.first)
	s.first = time.Time{}
	return d
}

// parkSQL sets sequences aside as a worker would, each with its letter.
const parkSQL = `
WITH n AS (SELECT i, 'counter-parked-' || i AS sequence FROM generate_series(1, $1::int) AS i),
p AS (
  INSERT INTO daybook.parked (consumer, version, sequence, partition, state, first_position, last_position)
  SELECT $2::text, c.version, n.sequence, daybook.partition_of(n.sequence, s.partitions), 'parked', n.i, n.i
    FROM n, daybook.store s, daybook.consumers c WHERE c.consumer = $2::text
  RETURNING consumer, version, sequence, partition, first_position)
INSERT INTO daybook.letters (letter, consumer, version, sequence, partition, position, state, kind, attempts, round, fingerprint, errors,
       first_errors, first_failed_at, last_failed_at, handler, program, id, type, schema_version, flags, content_type, tenant, correlation_id,
       causation_id, actor, headers, data, recorded_at)
SELECT gen_random_uuid(), p.consumer, p.version, p.sequence, p.partition, p.first_position, 'parked', 'permanent', 1, 1, 'f', '{broken}',
       '{broken}', now(), now(), 'h', 'p', gen_random_uuid(), 'counter.counted', 1, 0, 'application/msgpack', '', '', '', '', '', '', now()
  FROM p`
