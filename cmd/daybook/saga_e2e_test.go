package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

// A parcel is booked and shipped. Its carrier may be closed, and then refuses it.
type (
	parcelOrdered struct{}
	carrierClosed struct{ Closed bool }
	parcelBooked  struct{}
	parcelShipped struct{}

	bookParcel   struct{}
	unbookParcel struct{}
	shipParcel   struct{}

	parcel struct{ Closed, Booked, Shipped bool }
)

func (p parcel) Evolve(e any) parcel {
	switch e := e.(type) {
	case carrierClosed:
		p.Closed = e.Closed
	case parcelBooked:
		p.Booked = true
	case parcelShipped:
		p.Shipped = true
	}
	return p
}

var errCarrierClosed = errors.New("the carrier is closed")

func (bookParcel) Decide(parcel) ([]any, error)   { return []any{parcelBooked{}}, nil }
func (unbookParcel) Decide(parcel) ([]any, error) { return nil, nil }
func (shipParcel) Decide(p parcel) ([]any, error) {
	if p.Closed {
		return nil, errCarrierClosed
	}
	return []any{parcelShipped{}}, nil
}

var (
	parcelEvents = eventstore.NewCatalog(eventstore.TypeOf[parcelOrdered]("parcel.ordered"), eventstore.TypeOf[carrierClosed]("parcel.carrier"),
		eventstore.TypeOf[parcelBooked]("parcel.booked"), eventstore.TypeOf[parcelShipped]("parcel.shipped"))
	parcels = aggregate.Define("parcel", parcel.Evolve, parcelEvents)
)

type delivery struct{ Parcel string }

func (d delivery) book() (string, bookParcel)     { return d.Parcel, bookParcel{} }
func (d delivery) unbook() (string, unbookParcel) { return d.Parcel, unbookParcel{} }
func (d delivery) ship() (string, shipParcel)     { return d.Parcel, shipParcel{} }

func deliveries() saga.Definition { return deliveriesOf(1) }

func deliveriesOf(version int) saga.Definition {
	return saga.Define(saga.Process[delivery]{
		Name: "delivery", Version: version, Events: parcelEvents,
		Start: saga.StartOn(func(e saga.Event[parcelOrdered]) delivery { return delivery{Parcel: e.Stream.ID} }),
		Steps: []saga.Step[delivery]{
			{Name: "book", Send: saga.Send(delivery.book), Undo: saga.Send(delivery.unbook), Pivot: true},
			{Name: "ship", Send: saga.Send(delivery.ship)},
		},
	})
}

// depot is a store with a manager and a dispatcher in this process, and somebody at a terminal.
type depot struct {
	*desk
	store *postgres.Store
}

func newDepot(t *testing.T) *depot {
	t.Helper()
	pool := postgrestest.New(t)
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := saga.Install(t.Context(), pool, deliveries()); err != nil {
		t.Fatal(err)
	}
	return &depot{desk: &desk{t: t, pool: pool, url: postgrestest.URL(pool)}, store: store}
}

func (d *depot) bus() *bus.Bus {
	b := bus.New(bus.Config{}, bus.Idempotent(d.store))
	repository := aggregate.NewRepository(d.store, parcels)
	bus.HandleAddressed(b, bus.TypeOf[bookParcel]("parcel.book"), repository, bookParcel.Decide)
	bus.HandleAddressed(b, bus.TypeOf[unbookParcel]("parcel.unbook"), repository, unbookParcel.Decide)
	bus.HandleAddressed(b, bus.TypeOf[shipParcel]("parcel.ship"), repository, shipParcel.Decide)
	return b
}

// dispatch runs a dispatcher.
func (d *depot) dispatch() (stop func()) {
	d.t.Helper()
	dispatcher, err := commands.NewDispatcher(d.pool, commands.Local(d.store.Outbox()), d.bus(), commands.Config{Wake: d.store.Wake, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		d.t.Fatal(err)
	}
	return livetest.Start(d.t, dispatcher.Run)
}

// manage runs a manager.
func (d *depot) manage() (stop func()) {
	d.t.Helper()
	manager, err := saga.NewManager(d.pool, d.store.Log(), commands.ForSagas(d.bus(), d.store.Outbox()),
		saga.Config{Poll: 20 * time.Millisecond, Wake: d.store.Wake}, deliveries())
	if err != nil {
		d.t.Fatal(err)
	}
	return livetest.Start(d.t, manager.Run)
}

func (d *depot) append(id string, events ...any) {
	d.t.Helper()
	var data []eventstore.EventData
	for _, e := range events {
		one, err := parcelEvents.Encode(e)
		if err != nil {
			d.t.Fatal(err)
		}
		data = append(data, one)
	}
	if _, err := d.store.Append(d.t.Context(), eventstore.To(eventstore.NewStreamID("parcel", id), eventstore.AnyVersion, data...)); err != nil {
		d.t.Fatal(err)
	}
}

// until waits for what an instance is said to be.
func (d *depot) until(id, what string, is func(saga.Explanation) bool) saga.Explanation {
	d.t.Helper()
	var e saga.Explanation
	livetest.Eventually(d.t, what, func() bool {
		var err error
		e, err = saga.Explain(d.t.Context(), d.pool, "delivery", id)
		if err != nil && !errors.Is(err, saga.ErrNoInstance) {
			d.t.Fatal(err)
		}
		return err == nil && is(e)
	}, func() string { return e.Sentence })
	return e
}

func over(e saga.Explanation) bool { return e.State == "completed" }

// Sagas get stuck, somebody asks why, mends the cause and tries again: they complete.
func TestStuckSagasFromAFailureToTheirEnd(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.dispatch()
	stopped := d.manage()
	for _, id := range []string{"1", "2", "3"} {
		d.append(id, carrierClosed{true}, parcelOrdered{})
	}
	d.append("4", parcelOrdered{})
	d.until("4", "the one whose carrier is open completes", over)
	for _, id := range []string{"1", "2", "3"} {
		d.until(id, "the others are stuck", func(e saga.Explanation) bool { return e.Stuck })
	}
	out := d.wantError(exitStuck, `delivery "1" is stuck: dead_letter`, "why", "delivery", "1")
	wantIn(t, out, `delivery "1" is stuck at ship since `, "the carrier is closed", "; parcel.ship to parcel-1 (ship) was sent at ", "and was refused at ", "\ndone         book\n", "daybook saga retry delivery 1 --step ship --reason WHY")
	wantIn(t, d.run("list", "delivery", "--stuck"), "\n1    1", "\n2    1", "\n3    1", "dead_letter")

	// Tried again without a change, it refuses again.
	was := d.until("1", "it is stuck", func(e saga.Explanation) bool { return e.Stuck })
	wantIn(t, d.run("retry", "delivery", "1", "--step", "ship", "--reason", "perhaps", "--wait"), "done: 1 of 1 done, 0 refused")
	d.until("1", "it is stuck once more", func(e saga.Explanation) bool { return e.Stuck && len(e.Timeline) >= len(was.Timeline)+3 })

	d.append("1", carrierClosed{false})
	out = d.run("retry", "delivery", "1", "--step", "ship", "--reason", "the carrier is open", "--actor", "ann", "--wait")
	wantIn(t, out, ": retry 1 instance of delivery\n", "done: 1 of 1 done, 0 refused")
	e := d.until("1", "it completes", over)
	if len(e.Actions) != 2 || e.Actions[1].Actor != "ann" || e.Actions[1].State != "done" || len(e.ToCome) != 0 {
		t.Errorf("%+v", e)
	}
	wantIn(t, d.run("history", "delivery", "1"), "started", "stuck", "action", "ann", "the carrier is open", "completed")

	// Many at once, by a plan that waits for a manager, and that it carries out when it is back.
	stopped()
	d.append("2", carrierClosed{false})
	livetest.Eventually(t, "nobody has the lease", func() bool {
		return livetest.Ask[bool](t, d.pool, `SELECT NOT EXISTS (SELECT FROM daybook.segments WHERE consumer = 'saga-delivery' AND expires_at > clock_timestamp())`)
	})
	out = d.run("retry", "delivery", "--all-stuck", "--reason", "the carrier is open", "--yes")
	wantIn(t, out, ": retry 2 instances of delivery\n", "it waits: no process runs the manager of delivery")
	d.manage()
	d.until("2", "it completes", over)
	d.until("3", "it is stuck again", func(e saga.Explanation) bool { return e.Stuck && len(e.Actions) == 1 && e.Actions[0].State == "done" })

	// The last one is answered by hand: what was refused here has been done by telephone.
	d.run("answer", "delivery", "3", "--step", "ship", "--reason", "by telephone", "--wait")
	e = d.until("3", "it completes", over)
	if n := len(e.Done); n != 2 || !e.Done[1].Marked {
		t.Errorf("%+v", e.Done)
	}
	wantIn(t, d.run("why", "delivery", "3"), `delivery "3" was completed at `, "ship (by hand)")
	d.wantError(exitRefused, "has ended", "retry", "delivery", "3", "--reason", "x")
}

// What only the place of a command says: nobody carries commands out.
func TestASagaIsPausedAndItsCommandWaits(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.manage()
	d.append("1", parcelOrdered{})
	d.until("1", "it has sent its command", func(e saga.Explanation) bool { return len(e.Commands) == 1 && e.Commands[0].Where == saga.WhereOutbox })
	wantIn(t, d.run("why", "delivery", "1"), `delivery "1" waits for an answer to book`, "is in the outbox at position", "before the dispatcher", "\nto come      ship\n")
	d.run("pause", "delivery", "1", "--reason", "stocktaking", "--actor", "ann", "--wait")
	wantIn(t, d.wantError(exitStuck, "paused", "why", "delivery", "1"), "was paused by ann: stocktaking", "daybook saga resume delivery 1 --reason WHY")
	wantIn(t, d.run("list", "delivery", "--reason-is", "paused"), "\n1    1", "paused")
	wantIn(t, d.wantError(exitPlan, "1 of 1 instance refused", "pause", "delivery", "1", "--reason", "x", "--wait"), "refused: 1 run 1: it is paused already")

	d.dispatch()
	d.until("1", "what became of it is kept", func(e saga.Explanation) bool { return e.Held > 0 })
	d.run("resume", "delivery", "1", "--shift", "--reason", "done", "--wait")
	d.until("1", "it completes", over)
	out, err := run(t, "status", "--database", d.url)
	if err != nil || !strings.Contains(out, "SAGA ") || strings.Contains(out, "sagas are stuck") {
		t.Errorf("%v\n%s", err, out)
	}
}
