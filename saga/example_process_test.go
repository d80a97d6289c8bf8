package saga_test

import (
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/saga"
)

// A journey is a flight and a hotel, or neither.
type (
	JourneyPlanned struct{ Traveller string }
	SeatReserved   struct{ Seat string }
	PlaneFull      struct{}
	RoomReserved   struct{}
	ReserveSeat    struct{ Traveller string }
	ReleaseSeat    struct{ Seat string }
	ReserveRoom    struct{ Traveller string }
	ConfirmJourney struct{ Seat string }
	GiveUpJourney  struct{}
	Reminder       struct{}
	SendItinerary  struct{}
)

var journeyEvents = eventstore.NewCatalog(
	eventstore.TypeOf[JourneyPlanned]("journey.planned"), eventstore.TypeOf[SeatReserved]("seat.reserved"),
	eventstore.TypeOf[PlaneFull]("plane.full"), eventstore.TypeOf[RoomReserved]("room.reserved"),
)

// Journey is what the saga remembers.
type Journey struct{ ID, Traveller, Seat string }

func plan(e saga.Event[JourneyPlanned]) Journey {
	return Journey{ID: e.Stream.ID, Traveller: e.Payload.Traveller}
}

func (j Journey) reserveSeat() (string, ReserveSeat) { return "flights", ReserveSeat{j.Traveller} }
func (j Journey) releaseSeat() (string, ReleaseSeat) { return "flights", ReleaseSeat{j.Seat} }
func (j Journey) reserveRoom() (string, ReserveRoom) { return "hotels", ReserveRoom{j.Traveller} }
func (j Journey) confirm() (string, ConfirmJourney)  { return j.ID, ConfirmJourney{j.Seat} }
func (j Journey) giveUp() (string, GiveUpJourney)    { return j.ID, GiveUpJourney{} }

func (j Journey) seated(e saga.Event[SeatReserved]) Journey { j.Seat = e.Payload.Seat; return j }
func (j Journey) full(saga.Event[PlaneFull]) Journey        { return j }
func (j Journey) housed(saga.Event[RoomReserved]) Journey   { return j }

// Steps with what undoes them beside them. The hotel answers by its reply alone when it is full.
func ExampleDefine() {
	type answers = []saga.Answer[Journey]
	journey := saga.Define(saga.Process[Journey]{
		Name: "journey", Version: 1, Events: journeyEvents, Start: saga.StartOn(plan),
		Steps: []saga.Step[Journey]{
			{
				Name: "flight", Send: saga.Send(Journey.reserveSeat), Undo: saga.Send(Journey.releaseSeat),
				Succeeded: answers{saga.On(Journey.seated)}, Refused: answers{saga.On(Journey.full)}, Deadline: time.Hour,
			},
			{Name: "hotel", Send: saga.Send(Journey.reserveRoom), Succeeded: answers{saga.On(Journey.housed)}, Pivot: true},
		},
		Completed: saga.Send(Journey.confirm), Compensated: saga.Send(Journey.giveUp),
	})
	fmt.Println(journey.Validate())
	fmt.Print(journey.Diagram())
	// Output:
	// <nil>
	// flowchart TD
	//   begin(["journey.planned"])
	//   s1["flight<br/>ReserveSeat"]
	//   s2{{"hotel<br/>ReserveRoom<br/>no way back from here"}}
	//   completed(["completed<br/>ConfirmJourney"])
	//   begin --> s1
	//   s1 -->|"seat.reserved"| s2
	//   s2 -->|"room.reserved"| completed
	//   u1[/"undo flight<br/>ReleaseSeat"/]
	//   u1 --> compensated
	//   compensated(["compensated<br/>GiveUpJourney"])
	//   s1 -.->|"plane.full"| compensated
	//   s1 -.->|"no outcome within 1h0m0s"| u1
	//   s2 -.->|"refused"| u1
}

// What would keep a saga from coming to a known end is refused before it runs.
func ExampleDefinition_validate() {
	careless := saga.Define(saga.Process[Journey]{
		Name: "journey", Version: 1, Events: journeyEvents, Start: saga.StartOn(plan),
		Steps: []saga.Step[Journey]{
			{Name: "flight", Send: saga.Send(Journey.reserveSeat), Deadline: time.Hour},
			{Name: "hotel", Send: saga.Send(Journey.reserveRoom), Pivot: true},
			{Name: "seat", Send: saga.Send(Journey.reserveSeat), Refused: []saga.Answer[Journey]{saga.On(Journey.full)}},
		},
	})
	fmt.Println(careless.Validate())
	// Output:
	// saga: define "journey" version 1: step "flight": it is before the pivot and has neither Undo nor NothingToUndo: set Undo, or say in NothingToUndo why none is needed, or make it the Pivot
	// saga: define "journey" version 1: step "flight": it has a Deadline and no Undo: its answer may come after all: set Undo, or leave Deadline out
	// saga: define "journey" version 1: step "seat": it has Refused or Failed and no Succeeded: that its command was carried out would count as success, also when its answer is a refusal: name the event of success in Succeeded
	// saga: define "journey" version 1: step "seat": it is behind the pivot and can be refused, where there is no way back: put the step before the pivot, or take Refused out
}
