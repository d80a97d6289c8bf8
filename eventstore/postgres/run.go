package postgres

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// rangesEvery is how often Run looks whether ranges are needed.
const rangesEvery = time.Minute

// Run tells other processes of appends, hears of theirs, adds ranges ahead of need, removes old keys of commands, and logs
// who holds the head of the log for long, until ctx ends; then it returns nil. It needs one connection besides the pool's to listen (none with [Config.TransactionPooler]). Interruptions of
// the database are logged and waited out.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if !s.cfg.TransactionPooler {
		g.Go(func() error { return s.listen(ctx) })
	}
	g.Go(func() error { return s.notifyOthers(ctx) })
	g.Go(func() error { return s.watchHead(ctx, heldTooLong, heldTooLong) })
	g.Go(func() error {
		for {
			if err := s.EnsureRanges(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Logger.Error("daybook: ranges could not be added", "error", err)
			}
			if !sleep(ctx, rangesEvery) {
				return nil
			}
		}
	})
	g.Go(func() error {
		for {
			if err := s.turnOutcomes(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Logger.Error("daybook: old keys of commands cannot be removed", "error", err)
			}
			if !sleep(ctx, s.turnEvery()) {
				return nil
			}
		}
	})
	return g.Wait()
}

// watchHead logs when one transaction has held the head for longer than patience, and when it does no more: projections
// stand still meanwhile, and nobody may have to guess why.
func (s *Store) watchHead(ctx context.Context, every, patience time.Duration) error {
	var logged *Blocker
	for sleep(ctx, every) {
		b, held, err := s.Blocker(ctx)
		if err != nil {
			continue // the database is away, which others say
		}
		held = held && b.Age > patience
		if logged != nil && (!held || b.PID != logged.PID || b.Prepared != logged.Prepared || b.Above != logged.Above) {
			s.cfg.Logger.Info("daybook: the head of the log is no longer held by", "process", logged.PID, "prepared", logged.Prepared)
			logged = nil
		}
		if held && logged == nil {
			logged = &b
			s.cfg.Logger.Warn("daybook: the head of the log is held; readers stand still", "reason", b.String(),
				"process", b.PID, "application", b.Application, "age", b.Age)
		}
	}
	return nil
}
