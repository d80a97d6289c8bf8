package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/deadletter"
	"github.com/daybook-go/daybook/projection"
)

// Paid says that an order was paid.
type Paid struct{ Cents int64 }

var (
	shopEvents = eventstore.NewCatalog(eventstore.TypeOf[Paid]("order.paid"))
	errAccount = errors.New("no such account")
)

// withShop runs an example on a PostgreSQL of its own, with a projection that cannot book two of three orders until it is
// mended.
func withShop(f func(ctx context.Context, letters *deadletter.Letters, mend func()) error) {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error {
		var mended atomic.Bool
		bookings := projection.Projection{Name: "bookings", Version: 1, Events: shopEvents, Handlers: []projection.Handler{
			projection.Handle(func(_ context.Context, _ pgx.Tx, e projection.Event[Paid]) error {
				if e.Payload.Cents < 100 && !mended.Load() {
					return fmt.Errorf("book %s: %w", e.Stream, errAccount)
				}
				return nil
			}),
		}}
		if err := projection.Install(ctx, pool, bookings); err != nil {
			return err
		}
		for i, cents := range []int64{50, 500, 60} {
			event, err := shopEvents.Encode(Paid{cents})
			if err != nil {
				return err
			}
			if _, err := store.Append(ctx, eventstore.To(eventstore.NewStreamID("order", fmt.Sprint(i+1)), eventstore.NoStream, event)); err != nil {
				return err
			}
		}
		runner, err := projection.NewRunner(pool, store.Log(), projection.Config{
			Classify: func(error) eventstore.FailureKind { return eventstore.Permanent },
		}, bookings)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- runner.Run(ctx) }()
		letters, err := deadletter.New(pool, deadletter.Config{Fresh: time.Millisecond})
		if err == nil {
			err = f(ctx, letters, func() { mended.Store(true) })
		}
		stop()
		return errors.Join(err, <-done)
	})
}

// every calls f each 10 ms until it says that it has seen enough.
func every(ctx context.Context, f func() (enough bool, err error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if enough, err := f(); enough || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// parked waits until so many letters wait for people.
func parked(ctx context.Context, letters *deadletter.Letters, n int64) error {
	return every(ctx, func() (bool, error) {
		status, err := letters.Status(ctx)
		return len(status) == 1 && status[0].Parked == n, err
	})
}

// What failed is grouped by its cause. Once the program is mended, the group is tried again: one first, then the others.
func ExampleLetters_Redrive() {
	withShop(func(ctx context.Context, letters *deadletter.Letters, mend func()) error {
		if err := parked(ctx, letters, 2); err != nil {
			return err
		}
		groups, err := letters.Groups(ctx, deadletter.Filter{Consumer: "bookings"})
		if err != nil {
			return err
		}
		for _, g := range groups {
			fmt.Printf("%d letters of %s v%d, %s\n", g.Letters, g.Consumer, g.Version, g.Type)
		}
		mend()
		plan, err := letters.Redrive(ctx, deadletter.OfGroup(groups[0].Fingerprint), deadletter.Options{
			Actor: "ann", Reason: "the accounts are there", Canary: 1, Rate: 100,
		})
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d letters\n", plan.State, plan.Items)
		if err := every(ctx, func() (bool, error) {
			plan, err = letters.Plan(ctx, plan.ID)
			return !plan.Running(), err
		}); err != nil {
			return err
		}
		fmt.Printf("%s: %d succeeded, %d failed\n", plan.State, plan.Succeeded, plan.Failed)
		return nil
	})
	// Output:
	// 2 letters of bookings v1, order.paid
	// running: 2 letters
	// done: 2 succeeded, 0 failed
}

// A letter that will never succeed is discarded, and put back when that was a mistake.
func ExampleLetters_Discard() {
	withShop(func(ctx context.Context, letters *deadletter.Letters, _ func()) error {
		if err := parked(ctx, letters, 2); err != nil {
			return err
		}
		page, err := letters.List(ctx, deadletter.Filter{Consumer: "bookings", Version: 1, Sequence: "order-3"})
		if err != nil {
			return err
		}
		id := page.Letters[0].ID
		fmt.Println(page.Letters[0].Sequence, page.Letters[0].Error)
		by := deadletter.Options{Actor: "ann", Reason: "the order was a test"}
		if _, err := letters.Discard(ctx, deadletter.One(id), by); err != nil {
			return err
		}
		_, err = letters.Discard(ctx, deadletter.One(id), by)
		fmt.Println(errors.Is(err, deadletter.ErrRefused))
		if err := letters.Undo(ctx, id, deadletter.Options{Actor: "ben", Reason: "it was not"}); err != nil {
			return err
		}
		letter, err := letters.Show(ctx, id)
		if err != nil {
			return err
		}
		fmt.Println(letter.State)
		for _, a := range letter.Actions {
			fmt.Printf("%s by %s: %s\n", a.What, a.Actor, a.Reason)
		}
		return nil
	})
	// Output:
	// order-3 book order-3: no such account
	// true
	// parked
	// discard by ann: the order was a test
	// undo by ben: it was not
}
