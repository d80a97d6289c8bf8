package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

const (
	trips      = 500 // sagas of a round
	tripSteps  = 4
	tripsAlone = trips * tripSteps // plain commands of a round
)

// sagaFigures measures what a step of a saga costs: the command, its answer, the reply, the state, the history. The peer are
// the same commands, stored by their sender and carried out by the same dispatcher.
func sagaFigures(ctx context.Context, e *env) ([]figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: 32})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	b := tripBus(store)
	sender := commands.ForSagas(b, store.Outbox())
	if err := saga.Install(ctx, e.pool, tripSaga); err != nil {
		return nil, err
	}
	manager, err := saga.NewManager(e.pool, store.Log(), sender, saga.Config{Wake: store.Wake}, tripSaga)
	if err != nil {
		return nil, err
	}
	dispatcher, err := commands.NewDispatcher(e.pool, commands.Local(store.Outbox()), b, commands.Config{Wake: store.Wake, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer meanwhile(ctx, store.Run, manager.Run, dispatcher.Run)()

	ratios := make([]float64, 0, rounds)
	for round := range rounds + 1 {
		var took [2]time.Duration
		for i := range took {
			i = (i + round) % 2 // no side always comes first
			began := time.Now()
			if i == 0 {
				err = sendAlone(ctx, e, store, b, round)
			} else {
				err = travel(ctx, e, store, round)
			}
			if err != nil {
				return nil, err
			}
			took[i] = time.Since(began)
		}
		if round == 0 {
			continue // warms connections and plans
		}
		fmt.Printf("  %d commands alone in %s, as the steps of %d sagas in %s\n",
			tripsAlone, took[0].Round(time.Millisecond), trips, took[1].Round(time.Millisecond))
		ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
	}
	return []figure{newFigure("sagas", "steps/s", "", "the same commands alone, by the same dispatcher", 0.3, true, ratios)}, nil
}

// meanwhile runs things until the function that it returns is called, which waits for them.
func meanwhile(ctx context.Context, runs ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(func() {
			if err := run(ctx); err != nil {
				fmt.Println("  ended:", err)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// sendAlone stores the commands in pages, and waits until all are carried out.
func sendAlone(ctx context.Context, e *env, store *postgres.Store, b *bus.Bus, round int) error {
	const page = 100
	for first := 0; first < tripsAlone; first += page {
		list := make([]bus.Command, page)
		for i := range list {
			var err error
			if list[i], err = b.Prepare(ctx, move{Trip: fmt.Sprintf("alone%d-%d", round, (first+i)/tripSteps), Leg: (first + i) % tripSteps}); err != nil {
				return err
			}
			list[i].ID = uuid.New()
		}
		err := pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error { return commands.Enqueue(ctx, tx, list...) })
		if err != nil {
			return err
		}
		store.Wake()
	}
	return reaches(ctx, e, fmt.Sprintf("alone%d-", round), "SELECT count(*) FROM daybook.operations WHERE state = 'done' AND type = 'trip.move' AND scope = ''",
		tripsAlone*(round+1))
}

// travel begins sagas in pages, and waits until all have completed.
func travel(ctx context.Context, e *env, store *postgres.Store, round int) error {
	const page = 25
	for first := 0; first < trips; first += page {
		writes := make([]eventstore.Write, page)
		for i := range writes {
			event, err := tripEvents.Encode(booked{Legs: tripSteps})
			if err != nil {
				return err
			}
			writes[i] = eventstore.To(eventstore.StreamID{Category: "booking", ID: fmt.Sprintf("saga%d-%d", round, first+i)}, eventstore.NoStream, event)
		}
		if _, err := store.Append(ctx, writes...); err != nil {
			return err
		}
	}
	return reaches(ctx, e, fmt.Sprintf("saga%d-", round), "SELECT count(*) FROM daybook.sagas WHERE saga = 'trip' AND state = 'completed'", trips*(round+1))
}

// reaches asks until a query counts so many.
func reaches(ctx context.Context, e *env, what, sql string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		if err := e.pool.QueryRow(ctx, sql).Scan(&n); err != nil {
			return fmt.Errorf("%s: %d of %d: %w", what, n, want, err)
		}
		if n >= want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %d of %d: %w", what, n, want, ctx.Err())
		}
	}
}

type (
	booked struct{ Legs int }
	move   struct {
		Trip string
		Leg  int
	}
	moved struct{ Leg int }
)

var (
	legEvents  = eventstore.NewCatalog(eventstore.TypeOf[moved]("trip.moved"))
	tripEvents = eventstore.Join(eventstore.NewCatalog(eventstore.TypeOf[booked]("booking.booked")), legEvents)
	tripMove   = bus.TypeOf[move]("trip.move")
	tripType   = aggregate.Define("trip", func(n int, _ moved) int { return n + 1 }, legEvents)
)

func tripBus(store *postgres.Store) *bus.Bus {
	b := bus.New(bus.Config{}, bus.Idempotent(store))
	bus.HandleAggregate(b, tripMove, aggregate.NewRepository(store, tripType), func(c move) string { return c.Trip },
		func(c move, _ int) ([]moved, error) { return []moved{{c.Leg}}, nil })
	return b
}

// trip is the state of a saga.
type trip struct {
	ID  string
	Leg int
}

func (t trip) move() (string, move)         { return "", move{Trip: t.ID, Leg: t.Leg} }
func (t trip) moved(saga.Event[moved]) trip { t.Leg++; return t }
func beginTrip(e saga.Event[booked]) trip   { return trip{ID: e.Stream.ID} }

var tripSaga = saga.Define(saga.Process[trip]{
	Name: "trip", Version: 1, Events: tripEvents, Start: saga.StartOn(beginTrip), Steps: tripLegs(),
})

func tripLegs() (steps []saga.Step[trip]) {
	for i := range tripSteps {
		steps = append(steps, saga.Step[trip]{
			Name: fmt.Sprintf("leg-%d", i+1), Send: saga.Send(trip.move), Undo: saga.Send(trip.move), Deadline: time.Hour,
			Succeeded: []saga.Answer[trip]{saga.On(trip.moved)},
		})
	}
	return steps
}
