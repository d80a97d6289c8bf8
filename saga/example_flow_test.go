package saga_test

import (
	"fmt"
	"time"

	"github.com/daybook-go/daybook/saga"
)

// A flow decides in its reactions what comes next: here, which of three airlines is asked.
func ExampleFlow() {
	type Search struct {
		Traveller string
		Asked     int
	}
	airlines := []string{"blue", "red", "green"}
	ask := func(s Search, fx *saga.Effects) Search {
		if s.Asked == len(airlines) {
			fx.Compensated() // nothing was booked, so nothing is to be undone
			return s
		}
		fx.Send("ask", airlines[s.Asked], ReserveSeat{s.Traveller})
		fx.After("patience", time.Hour)
		s.Asked++
		return s
	}
	search := saga.Define(saga.Flow[Search]{
		Name: "search", Version: 1, Events: journeyEvents,
		Start: saga.StartOn(func(e saga.Event[JourneyPlanned]) Search { return Search{Traveller: e.Payload.Traveller} }),
		Reactions: []saga.Reaction[Search]{
			saga.React(func(s Search, _ saga.Event[JourneyPlanned], fx *saga.Effects) Search { return ask(s, fx) }),
			saga.React(func(s Search, _ saga.Event[PlaneFull], fx *saga.Effects) Search { return ask(s, fx) }),
			saga.React(func(s Search, _ saga.Event[SeatReserved], fx *saga.Effects) Search { fx.Complete(); return s }),
			saga.ReactTimer("patience", func(s Search, fx *saga.Effects) Search {
				fx.Undo("ask", airlines[s.Asked-1], ReleaseSeat{})
				return s
			}),
			saga.ReactReply(func(s Search, r saga.Reply, fx *saga.Effects) Search {
				if r.Late { // of an airline that is asked no more, and whose seat is given back
					return s
				}
				if r.Undo && r.State == saga.ReplyDone || !r.Undo && r.State == saga.ReplyRefused {
					return ask(s, fx)
				}
				return s
			}),
		},
	})
	fmt.Println(search.Validate())
	fmt.Print(search.Diagram())
	// Output:
	// <nil>
	// flowchart TD
	//   begin(["journey.planned"])
	//   flow["search<br/>version 1"]
	//   begin --> flow
	//   e1(["journey.planned"]) -->|"caused by its commands"| flow
	//   e2(["plane.full"]) -->|"caused by its commands"| flow
	//   e3(["seat.reserved"]) -->|"caused by its commands"| flow
	//   t1(("patience")) -->|"timer"| flow
	//   flow --> commands["commands"]
	//   flow --> ends(["completed or compensated"])
}

// A reminder a day after a journey was planned, unless the hotel is booked before.
func ExampleAfter() {
	hotel := saga.KeyOf(func(e saga.Event[RoomReserved]) string { return e.Stream.ID })
	remind := saga.After("remind", 24*time.Hour, journeyEvents,
		saga.When(func(e saga.Event[JourneyPlanned]) (string, Reminder) { return e.Stream.ID, Reminder{} }),
		saga.Unless(hotel))
	fmt.Println(remind.Validate())
	fmt.Print(remind.Diagram())
	// Output:
	// <nil>
	// flowchart TD
	//   begin(["journey.planned"]) --> wait(("24h0m0s"))
	//   wait --> send["Reminder"]
	//   wait -->|"room.reserved"| not1(["not sent"])
}

// Choreography: when one thing has happened, another is asked for. Nobody waits for the outcome.
func ExampleNewReactor() {
	itinerary := saga.NewReactor("itinerary", journeyEvents,
		saga.When(func(e saga.Event[RoomReserved]) (string, SendItinerary) { return e.Stream.ID, SendItinerary{} }))
	fmt.Println(itinerary.Validate())
	fmt.Print(itinerary.Diagram())
	// Output:
	// <nil>
	// flowchart TD
	//   e1(["room.reserved"])
	//   e1 --> c1["SendItinerary"]
}
