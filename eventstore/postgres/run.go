package postgres

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// rangesEvery is how often Run looks whether ranges are needed.
const rangesEvery = time.Minute

// Run tells other processes of appends, hears of theirs, and adds ranges ahead of need, until ctx ends; then it returns
// nil. It needs one connection besides the pool's to listen (none with [Config.TransactionPooler]). Interruptions of
// the database are logged and waited out.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if !s.cfg.TransactionPooler {
		g.Go(func() error { return s.listen(ctx) })
	}
	g.Go(func() error { return s.notifyOthers(ctx) })
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
	return g.Wait()
}
