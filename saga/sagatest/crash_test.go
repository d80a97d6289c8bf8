package sagatest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/saga"
	"github.com/daybook-go/daybook/saga/sagatest"
)

// A journey books a seat, a room and a car, each at an aggregate of its own, which remembers whether it is booked.
type (
	planned  struct{ Full string } // what has no room
	booked   struct{}
	full     struct{}
	released struct{}

	book    struct{ What, Journey, Full string }
	release struct{ What, Journey string }
	told    struct{}
	tell    struct{ Journey string }

	booking struct{ Held bool }
	journey struct{ ID, Full string }
)

type bookingEvent interface{ booking() }

func (booked) booking()   {}
func (full) booking()     {}
func (released) booking() {}

var (
	bookings = aggregate.Define("booking", func(b booking, e bookingEvent) booking {
		switch e.(type) {
		case booked:
			b.Held = true
		case released:
			b.Held = false
		}
		return b
	}, eventstore.NewCatalog(eventstore.TypeOf[booked]("booking.booked"), eventstore.TypeOf[full]("booking.full"),
		eventstore.TypeOf[released]("booking.released")))
	tellings = aggregate.Define("telling", func(n int, _ told) int { return n + 1 }, eventstore.NewCatalog(eventstore.TypeOf[told]("telling.told")))
	plans    = eventstore.NewCatalog(eventstore.TypeOf[planned]("journey.planned"))

	bookType    = bus.TypeOf[book]("booking.book")
	releaseType = bus.TypeOf[release]("booking.release")
	tellType    = bus.TypeOf[tell]("telling.tell")
)

func (c book) decide(b booking) ([]bookingEvent, error) {
	switch {
	case b.Held:
		return nil, errors.New("it is booked already")
	case c.Full == c.What:
		return []bookingEvent{full{}}, nil
	}
	return []bookingEvent{booked{}}, nil
}

func (c release) decide(b booking) ([]bookingEvent, error) {
	if !b.Held {
		return nil, nil // harmless
	}
	return []bookingEvent{released{}}, nil
}

func journeyBus(w sagatest.World, middleware ...bus.Middleware) *bus.Bus {
	b := bus.New(bus.Config{}, append(middleware, bus.Idempotent(w.Store))...)
	repository := aggregate.NewRepository(w.Store, bookings)
	bus.HandleAggregate(b, bookType, repository, func(c book) string { return c.What + "-" + c.Journey }, book.decide)
	bus.HandleAggregate(b, releaseType, repository, func(c release) string { return c.What + "-" + c.Journey }, release.decide)
	bus.HandleAggregate(b, tellType, aggregate.NewRepository(w.Store, tellings), func(c tell) string { return c.Journey },
		func(_ tell, _ int) ([]told, error) { return []told{{}}, nil })
	return b
}

func (j journey) booked(saga.Event[booked]) journey { return j }
func (j journey) full(saga.Event[full]) journey     { return j }

func bookStep(what string) saga.Step[journey] {
	return saga.Step[journey]{
		Name:      what,
		Send:      saga.Send(func(j journey) (string, book) { return "", book{what, j.ID, j.Full} }),
		Undo:      saga.Send(func(j journey) (string, release) { return "", release{what, j.ID} }),
		Succeeded: []saga.Answer[journey]{saga.On(journey.booked)}, Refused: []saga.Answer[journey]{saga.On(journey.full)},
		Deadline: time.Hour,
	}
}

var journeys = saga.Define(saga.Process[journey]{
	Name: "journey", Version: 1, Events: eventstore.Join(plans, bookings.Catalog(), tellings.Catalog()),
	Start: saga.StartOn(func(e saga.Event[planned]) journey { return journey{e.Stream.ID, e.Payload.Full} }),
	Steps: []saga.Step[journey]{
		bookStep("seat"),
		{Name: "stay", Together: []saga.Step[journey]{bookStep("room"), bookStep("car")}},
	},
	Completed: saga.Send(func(j journey) (string, tell) { return "", tell{j.ID} }),
})

func plan(full string) func(context.Context, sagatest.World) error {
	return func(ctx context.Context, w sagatest.World) error {
		e, err := plans.Encode(planned{full})
		if err != nil {
			return err
		}
		_, err = w.Store.Append(ctx, eventstore.To(eventstore.NewStreamID("journey", "1"), eventstore.NoStream, e))
		return err
	}
}

// consistent: who has not completed holds nothing, who has holds everything, and was told once.
func consistent(ctx context.Context, w sagatest.World, ended sagatest.State) error {
	for _, what := range []string{"seat", "room", "car"} {
		held, n := false, 0
		for e, err := range w.Store.ReadStream(ctx, eventstore.NewStreamID("booking", what+"-1"), eventstore.Range{}) {
			if err != nil {
				return err
			}
			switch e.Type {
			case "booking.booked":
				held = true
				n++
			case "booking.released":
				held = false
			}
		}
		if held != (ended == "completed") || n > 1 {
			return fmt.Errorf("%s is held: %t, booked %d times, of a journey that is %s", what, held, n, ended)
		}
	}
	return nil
}

func TestCrashEverywhereCompleted(t *testing.T) {
	sagatest.CrashEverywhere(t, journeys, sagatest.Crashes{Bus: journeyBus, Start: plan(""), Check: consistent})
}

func TestCrashEverywhereCompensated(t *testing.T) {
	sagatest.CrashEverywhere(t, journeys, sagatest.Crashes{Bus: journeyBus, Start: plan("car"), Check: consistent})
}
