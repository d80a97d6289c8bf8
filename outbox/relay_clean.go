package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Cleaner is what [Rows] may offer besides: a [Relay] calls it while it publishes. *postgres.Outbox does.
type Cleaner interface {
	// Clean takes out of the outbox what is sent and passed by everybody who follows. Who has been behind for longer than
	// the retention is declared lost first, and named in the report, which is valid as far as it came beside an error.
	Clean(ctx context.Context, retention time.Duration) (eventstore.CleanReport, error)
}

// clean works beside the publishing until ctx ends. What it cannot do now it does the next time.
func (r *Relay) clean(ctx context.Context) {
	cleaner, ok := r.rows.(Cleaner)
	if !ok {
		return
	}
	for rest(ctx, r.cfg.CleanEvery/2+rand.N(r.cfg.CleanEvery/2+1)) {
		report, err := cleaner.Clean(ctx, r.cfg.Retention)
		for _, l := range report.Lost {
			r.log.Warn("a subscriber is lost", "topic", l.Topic, "group", l.Group, "consumer", l.Consumer, "version", l.Version,
				"floor", l.Floor, "oldest", l.Oldest)
		}
		if err != nil && ctx.Err() == nil {
			r.log.Warn("relay could not clean the outbox", "error", err.Error())
		}
	}
}
