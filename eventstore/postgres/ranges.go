package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// rangesAhead is how many empty ranges are kept in front of the log.
	rangesAhead = 2
	// manyRanges is the number of ranges from which on a statement that is not planned with its values locks too much.
	manyRanges = 16
)

// ranges is what this process knows of the ranges of positions.
type ranges struct {
	count   atomic.Int64
	lowAt   atomic.Int64 // from this position on more ranges are needed; 0: not known yet
	working atomic.Bool
}

func (r *ranges) many() bool { return r.count.Load() > manyRanges }

func (r *ranges) low(position int64) bool {
	at := r.lowAt.Load()
	return at > 0 && position >= at
}

// EnsureRanges adds ranges of positions to the tables so that two empty ones lie ahead. [Store.Run] calls it; so does
// an append that comes near the end. Any number of processes may call it at once.
func (s *Store) EnsureRanges(ctx context.Context) error {
	var added int
	if err := s.pool.QueryRow(ctx, s.sql.ensureRanges, rangesAhead).Scan(&added); err != nil {
		return fmt.Errorf("postgres: add ranges: %w", err)
	}
	if added > 0 {
		s.cfg.Logger.Info("daybook: ranges added ahead of the log", "ranges", added)
	}
	var count, top, size int64
	if err := s.pool.QueryRow(ctx, s.sql.rangesTop).Scan(&count, &top, &size); err != nil {
		return fmt.Errorf("postgres: read ranges: %w", err)
	}
	s.ranges.count.Store(count)
	s.ranges.lowAt.Store(top - size)
	return nil
}

// ensureRangesSoon runs EnsureRanges beside the caller, one at a time in this process.
func (s *Store) ensureRangesSoon() {
	if !s.ranges.working.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.ranges.working.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.EnsureRanges(ctx); err != nil {
			s.cfg.Logger.Error("daybook: ranges are running out; appends will fail when the last is full", "error", err)
		}
	}()
}

const (
	ensureRangesSQL = `SELECT {schema}.ensure_ranges($1::int)`

	rangesTopSQL = `
SELECT count(*), coalesce(max(r.next_position), 1), (SELECT s.range_size FROM {schema}.store s) FROM {schema}.ranges r`
)
