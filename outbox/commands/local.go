package commands

import (
	"context"
	"time"

	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/outbox"
)

// Source is where a dispatcher finds commands: [Local], or an *[outbox.Subscription] of [Topic].
type Source interface {
	consumer.Source
	consumer.Beginner
	// Carries names what the source consists of: "topic commands".
	Carries() string
	// StartsAt is where it begins: at the beginning, or nobody would carry out what was sent before.
	StartsAt() outbox.Start
	// Schema is the PostgreSQL schema of the store.
	Schema() string
}

// group is who follows the topic, as the cleaning of the outbox knows it.
const group = "dispatcher"

// Local is the source of a dispatcher that reads commands from the outbox itself: no relay and no broker is needed. rows is
// store.Outbox(), one of its own. A relay that runs publishes commands to its broker all the same; nobody has to read
// them there.
//
// The other source is an [outbox.Subscription] of [Topic], without CatchUp and from the beginning. Both are the same to
// the dispatcher, so that a program may be restarted with the other one at any time.
func Local(rows outbox.Rows) Source {
	direct, err := outbox.NewDirect(rows, outbox.SubscriptionConfig{Topic: Topic, Group: group})
	if err != nil {
		return nil // rows is nil: NewDispatcher says so
	}
	return &local{direct, rows}
}

type local struct {
	*outbox.Direct
	rows outbox.Rows
}

// forLong: without a relay nobody declares a subscriber lost.
const forLong = 10 * 365 * 24 * time.Hour

// cleanAlone removes commands that were carried out, where no relay does.
func (l *local) cleanAlone(ctx context.Context, d *Dispatcher) error {
	var relayed bool
	if err := d.db.QueryRow(ctx, d.sql.relayed).Scan(&relayed); err != nil || relayed {
		return err
	}
	_, err := l.rows.Clean(ctx, forLong)
	return err
}

const relayedSQL = `SELECT EXISTS (SELECT FROM {schema}.consumers WHERE kind = 'relay')`
