package saga_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

// Booked begins a trip, whose flight and hotel are booked.
type Booked struct{}

// The commands of a trip.
type (
	BookFlight   struct{}
	CancelFlight struct{}
	BookHotel    struct{}
)

// Trip is the state of the saga.
type Trip struct{ ID string }

func (t Trip) flight() (string, BookFlight)      { return t.ID, BookFlight{} }
func (t Trip) cancelled() (string, CancelFlight) { return t.ID, CancelFlight{} }
func (t Trip) hotel() (string, BookHotel)        { return t.ID, BookHotel{} }

var (
	trips     = eventstore.NewCatalog(eventstore.TypeOf[Booked]("trip.booked"))
	tripsSaga = saga.Define(saga.Process[Trip]{
		Name: "trip", Version: 1, Events: trips,
		Start: saga.StartOn(func(e saga.Event[Booked]) Trip { return Trip{e.Stream.ID} }),
		Steps: []saga.Step[Trip]{
			{Name: "flight", Send: saga.Send(Trip.flight), Undo: saga.Send(Trip.cancelled)},
			{Name: "hotel", Send: saga.Send(Trip.hotel), NothingToUndo: "an unused room costs nothing"},
		},
	})
)

// withTrip runs f with a store in which trip 7 is booked and its saga runs. Nobody carries commands out.
func withTrip(f func(ctx context.Context, pool *pgxpool.Pool) error) {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error {
		b := bus.New(bus.Config{}, bus.Idempotent(store))
		bus.Handle(b, bus.TypeOf[BookFlight]("trip.book-flight", bus.WithoutKey()), func(context.Context, BookFlight) (bus.Reply, error) { return bus.Reply{}, nil })
		bus.Handle(b, bus.TypeOf[CancelFlight]("trip.cancel-flight", bus.WithoutKey()), func(context.Context, CancelFlight) (bus.Reply, error) { return bus.Reply{}, nil })
		bus.Handle(b, bus.TypeOf[BookHotel]("trip.book-hotel", bus.WithoutKey()), func(context.Context, BookHotel) (bus.Reply, error) { return bus.Reply{}, nil })
		if err := saga.Install(ctx, pool, tripsSaga); err != nil {
			return err
		}
		manager, err := saga.NewManager(pool, store.Log(), commands.ForSagas(b, store.Outbox()), saga.Config{}, tripsSaga)
		if err != nil {
			return err
		}
		booked, err := trips.Encode(Booked{})
		if err != nil {
			return err
		}
		if _, err := store.Append(ctx, eventstore.To(eventstore.NewStreamID("trip", "7"), eventstore.NoStream, booked)); err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- manager.Run(running) }()
		err = f(ctx, pool)
		stop()
		return errors.Join(err, <-ended)
	})
}

// explained waits until the instance is there.
func explained(ctx context.Context, pool *pgxpool.Pool) (saga.Explanation, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := saga.Explain(ctx, pool, "trip", "7")
		if !errors.Is(err, saga.ErrNoInstance) {
			return e, err
		}
		<-tick.C
	}
}

// What an instance waits for, and what becomes of it when somebody decides.
func ExampleExplain() {
	withTrip(func(ctx context.Context, pool *pgxpool.Pool) error {
		e, err := explained(ctx, pool) // a sentence, by fmt.Println(e)
		if err != nil {
			return err
		}
		fmt.Println(e.State, "and waits for", e.Awaits)
		for _, c := range e.Commands {
			fmt.Println("sent:", c.Type, "to", c.Target, "and it is now in the", c.Where)
		}
		fmt.Println("to come:", e.ToCome)

		// region operate
		// Somebody pauses it. The manager carries that out.
		operator := saga.Operator{DB: pool, Actor: "ann", Reason: "the airport is closed"}
		plan, err := operator.Pause(ctx, saga.Of("trip", "7"))
		if err != nil {
			return err
		}
		if plan, err = saga.WaitPlan(ctx, pool, plan.ID, nil); err != nil {
			return err
		}
		fmt.Println("plan", plan.State)
		// endregion
		if e, err = saga.Explain(ctx, pool, "trip", "7"); err != nil {
			return err
		}
		fmt.Println(e.Reason+":", e.Text)
		fmt.Println("to do:", e.Problems[0].Commands[0])
		return nil
	})
	// Output:
	// running and waits for an answer to flight (BookFlight to 7)
	// sent: trip.book-flight to 7 and it is now in the outbox
	// to come: [hotel]
	// plan done
	// paused: it was paused by ann: the airport is closed
	// to do: daybook saga resume trip 7 --reason WHY
}
