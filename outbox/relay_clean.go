package outbox

import (
	"context"
	"math/rand/v2"
)

// clean works beside the publishing until ctx ends, from the beginning on: a relay that never runs for long cleans too.
// What it cannot do now it does the next time.
func (r *Relay) clean(ctx context.Context) {
	failing := false
	for ok := true; ok; ok = rest(ctx, r.cfg.CleanEvery/2+rand.N(r.cfg.CleanEvery/2+1)) {
		err := r.cleanOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			r.log.Warn("relay cannot clean the outbox, which grows until it can", "error", err.Error())
		case err == nil && failing:
			r.log.Info("relay cleans the outbox again")
		}
		failing = err != nil
	}
}

// cleanOnce names in the log whom the cleaning has declared lost.
func (r *Relay) cleanOnce(ctx context.Context) error {
	report, err := r.rows.Clean(ctx, r.cfg.Retention)
	for _, l := range report.Lost {
		r.log.Warn("a subscriber was behind for longer than the retention and is lost: the outbox no longer waits for it",
			"topic", l.Topic, "group", l.Group, "consumer", l.Consumer, "version", l.Version, "floor", l.Floor, "oldest", l.Oldest)
	}
	return err
}
