package outbox

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Direct is a topic as a consumer reads it from the outbox itself, without a broker: the same messages in the same order
// as a [Subscription] of the topic, which a consumer may change to and from without losing or repeating anything. It
// needs no relay, but while nobody publishes the outbox, what others have written to it stays there.
//
// A Direct is safe for concurrent use.
type Direct struct {
	sub    *Subscription
	reader atomic.Pointer[string] // who began to read it last
}

// NewDirect checks its configuration; it touches no database. Buffer, Silence and Logger of cfg are not used. The errors of
// all faults are joined.
func NewDirect(rows Rows, cfg SubscriptionConfig) (*Direct, error) {
	sub, err := newSubscription(rows, cfg)
	if err != nil {
		return nil, err
	}
	return &Direct{sub: sub}, nil
}

// Carries implements the source of a consumer; see [Subscription.Carries].
func (d *Direct) Carries() string { return d.sub.Carries() }

// StartsAt is SubscriptionConfig.StartAt.
func (d *Direct) StartsAt() Start { return d.sub.StartsAt() }

// Schema is the PostgreSQL schema of the store.
func (d *Direct) Schema() string { return d.sub.Schema() }

// ReadPage is [Subscription.ReadPage].
func (d *Direct) ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	page, err := d.sub.ReadPage(ctx, after, f, limit)
	var lost *LostError
	if name := d.reader.Load(); name != nil && errors.As(err, &lost) {
		lost.Consumer = *name
	}
	return page, err
}

// Wait is [Subscription.Wait].
func (d *Direct) Wait(ctx context.Context, after eventstore.Position) error {
	return d.sub.Wait(ctx, after)
}

// Begin is [Subscription.Begin].
func (d *Direct) Begin(ctx context.Context, db *pgxpool.Pool, ref consumer.Ref) (eventstore.Position, error) {
	d.reader.Store(&ref.Name)
	return d.sub.Begin(ctx, db, ref)
}
