package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// turns is what this process knows of the parts that outcomes are kept in.
type turns struct {
	looked  atomic.Int64 // when it was last seen to, in nanoseconds since started
	working atomic.Bool
}

// started is where durations of this process are counted from; unlike the time of day they never go back.
var started = time.Now()

// begin lets the first look come at some moment within the usual time: of programs that live for seconds only, one in many
// looks.
func (t *turns) begin(every time.Duration) {
	t.looked.Store(int64(time.Since(started) - rand.N(every)))
}

// turnEvery is how often it is looked whether the outcomes' parts move on: often enough that keys go soon after they may.
func (s *Store) turnEvery() time.Duration {
	return min(max(s.cfg.KeepKeys/16, 100*time.Millisecond), time.Minute)
}

// turnOutcomes lets the outcomes' parts move on when it is time: the older one is emptied, and written from then on. Any number of processes may call it at once.
func (s *Store) turnOutcomes(ctx context.Context) error {
	s.turns.looked.Store(int64(time.Since(started)))
	var now *time.Time
	if s.cfg.Clock != nil {
		at := s.cfg.Clock().UTC()
		now = &at
	}
	var turned bool
	if err := s.pool.QueryRow(ctx, s.sql.turnOutcomes, s.cfg.KeepKeys, now).Scan(&turned); err != nil {
		return fmt.Errorf("postgres: remove old keys: %w", err)
	}
	if turned {
		s.cfg.Logger.Info("daybook: keys of commands that are older than Config.KeepKeys were removed", "keep", s.cfg.KeepKeys)
	}
	return nil
}

// turnSoon runs turnOutcomes beside the caller when nobody in this process has for a while, one at a time. Programs
// without Run need it.
func (s *Store) turnSoon() {
	if time.Since(started)-time.Duration(s.turns.looked.Load()) < s.turnEvery() || !s.turns.working.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.turns.working.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.turnOutcomes(ctx); err != nil {
			s.cfg.Logger.Error("daybook: old keys of commands cannot be removed", "error", err)
		}
	}()
}
