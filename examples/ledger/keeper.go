package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/examples/ledger/reports"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projection"
)

// source is where the read models learn of what was appended. Changing it between two runs loses and doubles nothing.
type source string

const (
	fromStream source = "stream" // as it is published
	fromLog    source = "log"    // as it is stored
)

func (s source) check() error {
	if s == fromStream || s == fromLog {
		return nil
	}
	return fmt.Errorf("--source %q is unknown: use stream or log", string(s))
}

// silence is how long the projections wait for the channel before they ask the store. The channel is within this process:
// it is silent when another one has the relay.
const silence = 250 * time.Millisecond

// broker is what messages go through. Publisher and subscriber may be anything that Watermill has: Kafka, NATS, AMQP.
type broker struct {
	message.Publisher
	message.Subscriber
}

// Close is both; the channel is one thing.
func (b broker) Close() error { return b.Publisher.Close() }

func newBroker() broker {
	channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 64, BlockPublishUntilSubscriberAck: true}, nil)
	return broker{channel, channel}
}

// keeper keeps the read models up to date. Any number of processes may have one: of the relay, and of each projection, one
// works and the others stand by.
type keeper struct {
	store  *postgres.Store
	runner *projection.Runner
	// These are nil when the source is the log.
	relay        *outbox.Relay
	subscription *outbox.Subscription
	broker       broker
}

func (p *program) keeper(l *ledger, from source) (*keeper, error) {
	k := &keeper{store: l.store}
	var events projection.Source = l.store.Log()
	if from == fromStream {
		if err := p.publishing(l, k); err != nil {
			return nil, err
		}
		events = k.subscription
	}
	var err error
	k.runner, err = projection.NewRunner(l.pool, events, projection.Config{Lease: lease, Logger: l.logger, Observer: p.observer}, reports.All()...)
	return k, err
}

// publishing lets a keeper publish what is appended, and follow that.
func (p *program) publishing(l *ledger, k *keeper) (err error) {
	k.broker = newBroker()
	through := k.broker
	if p.broker != nil {
		through = p.broker(through)
	}
	k.relay, err = outbox.NewRelay(l.pool, l.store.Outbox(), through.Publisher, outbox.Config{Lease: lease, Logger: l.logger, Observer: p.observer})
	if err != nil {
		return err
	}
	k.subscription, err = outbox.NewSubscription(l.store.Outbox(), through.Subscriber, outbox.SubscriptionConfig{
		Topic: topic, Group: "ledger", CatchUp: l.store.Log(), Silence: silence, Logger: l.logger,
	})
	return err
}

// run works until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.store.Run(ctx) })
	g.Go(func() error { return k.runner.Run(ctx) })
	if k.relay != nil {
		g.Go(func() error { return k.relay.Run(ctx) })
	}
	return g.Wait()
}

// begun gives the parts a moment to get to work, so that what is measured from then on is not how they start. It waits no
// longer for what another process does.
func (k *keeper) begun(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for ctx.Err() == nil && !inPlace(k.health(ctx), 0) {
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
}

// close is called when run has returned.
func (k *keeper) close() {
	if k.relay != nil {
		_ = k.broker.Close() // nothing is in it that the store does not have
	}
}

// published waits until everything that the token stands for was published, by whichever process.
func (k *keeper) published(ctx context.Context, token eventstore.Token) error {
	var want eventstore.Position
	for _, mark := range token.Marks() {
		if mark.Position.After(want) {
			want = mark.Position
		}
	}
	if want.IsZero() {
		return nil
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		lag, err := k.relay.Lag(ctx)
		switch {
		case err != nil:
			return err
		case lag.State == "not started": // in a moment
		case lag.State != "running":
			return fmt.Errorf("the relay is %s, so that nothing is published: %s", lag.State, lag.Reason)
		case !lag.Cursor.Before(want):
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// health says how each part is doing.
func (k *keeper) health(ctx context.Context) []eventstore.Health {
	parts := k.runner.Health(ctx).Parts
	if k.relay != nil {
		parts = append([]eventstore.Health{k.relay.Health(ctx)}, parts...)
	}
	return parts
}
