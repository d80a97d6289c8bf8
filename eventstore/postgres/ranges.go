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
	size    atomic.Int64 // positions in one range
	lowAt   atomic.Int64 // from this position on more ranges are needed
	working atomic.Bool
}

func (r *ranges) many() bool { return r.count.Load() > manyRanges }

func (r *ranges) low(position int64) bool { return position >= r.lowAt.Load() }

// EnsureRanges adds ranges of positions until enough of them lie ahead. [Store.Run] and Append do so by themselves; it
// may be called by any number of processes at once, also by a role without DDL rights.
func (s *Store) EnsureRanges(ctx context.Context) error { return s.ensureRanges(ctx, rangesAhead) }

func (s *Store) ensureRanges(ctx context.Context, ahead int64) error {
	var added int
	if err := s.pool.QueryRow(ctx, s.sql.ensureRanges, ahead).Scan(&added); err != nil {
		return fmt.Errorf("postgres: add ranges: %w", err)
	}
	if added > 0 {
		s.cfg.Logger.Info("daybook: ranges added ahead of the log", "ranges", added)
	}
	return s.readRanges(ctx)
}

func (s *Store) readRanges(ctx context.Context) error {
	var count, top, size int64
	if err := s.pool.QueryRow(ctx, s.sql.rangesTop).Scan(&count, &top, &size); err != nil {
		return fmt.Errorf("postgres: read ranges: %w", err)
	}
	s.ranges.count.Store(count)
	s.ranges.size.Store(size)
	s.ranges.lowAt.Store(top - size)
	return nil
}

// makeRoom adds ranges for an append of n events that found none. A burst can be faster than the adding ahead of need.
func (s *Store) makeRoom(ctx context.Context, n int) error {
	return s.ensureRanges(ctx, rangesAhead+int64(n)/max(s.ranges.size.Load(), 1))
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
SELECT count(*), coalesce(max(r.next_position), 1), (SELECT s.range_size FROM {schema}.store s WHERE s.singleton) FROM {schema}.ranges r`
)
