package saga_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/saga"
)

// The orders of the torture tests. Goods and purses belong to several orders each, papers to one. What does
// something looks at nothing that keeps it from happening twice: that is what is tested. What undoes something undoes it once.
type (
	placement struct {
		N      int
		Fate   fate
		Goods  string
		Purse  string
		Pieces int
		Cents  int
	}
	settled struct{ How string }

	held struct {
		Order  string
		Pieces int
	}
	soldOut struct{ Order string }
	freed   struct {
		Order  string
		Pieces int
	}

	paid struct {
		Order string
		Cents int
	}
	declined struct{ Order string }
	repaid   struct {
		Order string
		Cents int
	}

	drawn  struct{ What string }
	busy   struct{ What string }
	torn   struct{ What string }
	signed struct{} // never comes
)

// fate is what is to become of an order.
type fate string

const (
	smooth    fate = "smooth"
	hasty     fate = "busy once"      // a step fails at first; completed
	penniless fate = "declined"       // by an answer by key
	lacking   fate = "sold out"       // by an answer
	forbidden fate = "refused"        // by the receiver's error, in a group
	silent    fate = "never answered" // a deadline passes
)

func fateOf(n int) fate {
	switch n %= 50; {
	case n < 3:
		return hasty
	case n < 6:
		return penniless
	case n < 8:
		return lacking
	case n < 10:
		return forbidden
	case n < 11:
		return silent
	}
	return smooth
}

func (f fate) completes() bool { return f == smooth || f == hasty }

// orderOf is the nth order of so many.
func orderOf(n, of int) placement {
	shared := max(1, of/10)
	return placement{
		N: n, Fate: fateOf(n), Goods: fmt.Sprint("g", n%shared), Purse: fmt.Sprint("p", (n/7)%shared), Pieces: 1 + n%4, Cents: 100 + n%977,
	}
}

func keyOf(n int) string { return fmt.Sprintf("o%d", n) }

type (
	hold struct {
		Goods, Order string
		Pieces       int
		None         bool
	}
	free struct{ Goods, Order string }
	pay  struct {
		Purse, Order string
		Cents        int
		Poor         bool
	}
	repay struct{ Purse, Order string }
	draw  struct {
		What, Order  string
		Busy, Denied bool
	}
	tear   struct{ What, Order string }
	settle struct{ Order, How string }
)

type (
	goodsEvent interface{ goods() }
	purseEvent interface{ purse() }
	paperEvent interface{ paper() }
	orderEvent interface{ order() }
)

func (held) goods()      {}
func (soldOut) goods()   {}
func (freed) goods()     {}
func (paid) purse()      {}
func (declined) purse()  {}
func (repaid) purse()    {}
func (drawn) paper()     {}
func (busy) paper()      {}
func (torn) paper()      {}
func (signed) paper()    {}
func (placement) order() {}
func (settled) order()   {}

// paper is how often it was drawn and not torn, and how often its maker was busy.
type paper struct{ Drawn, Busy int }

var (
	goodsType = aggregate.Define("goods", func(s map[string]int, e goodsEvent) map[string]int {
		switch e := e.(type) {
		case held:
			s = with(s, e.Order, e.Pieces)
		case freed:
			delete(s, e.Order)
		}
		return s
	}, eventstore.NewCatalog(eventstore.TypeOf[held]("goods.held"), eventstore.TypeOf[soldOut]("goods.sold-out"), eventstore.TypeOf[freed]("goods.freed")))
	purseType = aggregate.Define("purse", func(s map[string]int, e purseEvent) map[string]int {
		switch e := e.(type) {
		case paid:
			s = with(s, e.Order, e.Cents)
		case repaid:
			delete(s, e.Order)
		}
		return s
	}, eventstore.NewCatalog(eventstore.TypeOf[paid]("purse.paid"), eventstore.TypeOf[declined]("purse.declined"), eventstore.TypeOf[repaid]("purse.repaid")))
	paperType = aggregate.Define("paper", func(s paper, e paperEvent) paper {
		switch e.(type) {
		case drawn:
			s.Drawn++
		case torn:
			s.Drawn--
		case busy:
			s.Busy++
		}
		return s
	}, eventstore.NewCatalog(eventstore.TypeOf[drawn]("paper.drawn"), eventstore.TypeOf[busy]("paper.busy"), eventstore.TypeOf[torn]("paper.torn"), eventstore.TypeOf[signed]("paper.signed")))
	orderType = aggregate.Define("order", func(n int, _ orderEvent) int { return n + 1 },
		eventstore.NewCatalog(eventstore.TypeOf[placement]("order.placed"), eventstore.TypeOf[settled]("order.settled")))

	orderEvents = eventstore.Join(goodsType.Catalog(), purseType.Catalog(), paperType.Catalog(), orderType.Catalog())
)

func with(s map[string]int, key string, n int) map[string]int {
	if s == nil {
		s = map[string]int{}
	}
	s[key] = n
	return s
}

var errDenied = errors.New("no carrier goes there")

func (c hold) decide(map[string]int) ([]goodsEvent, error) {
	if c.None {
		return []goodsEvent{soldOut{c.Order}}, nil
	}
	return []goodsEvent{held{c.Order, c.Pieces}}, nil
}

func (c free) decide(s map[string]int) ([]goodsEvent, error) {
	if s[c.Order] == 0 {
		return nil, nil
	}
	return []goodsEvent{freed{c.Order, s[c.Order]}}, nil
}

func (c pay) decide(map[string]int) ([]purseEvent, error) {
	if c.Poor {
		return []purseEvent{declined{c.Order}}, nil
	}
	return []purseEvent{paid{c.Order, c.Cents}}, nil
}

func (c repay) decide(s map[string]int) ([]purseEvent, error) {
	if s[c.Order] == 0 {
		return nil, nil
	}
	return []purseEvent{repaid{c.Order, s[c.Order]}}, nil
}

func (c draw) decide(s paper) ([]paperEvent, error) {
	switch {
	case c.Denied:
		return nil, errDenied
	case c.Busy && s.Busy == 0:
		return []paperEvent{busy{c.What}}, nil
	}
	return []paperEvent{drawn{c.What}}, nil
}

func (c tear) decide(s paper) ([]paperEvent, error) {
	if s.Drawn == 0 {
		return nil, nil
	}
	return []paperEvent{torn{c.What}}, nil
}

// ordersBus has the receivers. The middleware stands before the one that keeps outcomes.
func ordersBus(store *postgres.Store, forgetful bool, middleware ...bus.Middleware) *bus.Bus {
	if forgetful {
		middleware = append(middleware, byAttempt)
	} else {
		middleware = append(middleware, bus.Idempotent(store))
	}
	b := bus.New(bus.Config{}, middleware...)
	goods, purses := aggregate.NewRepository(store, goodsType), aggregate.NewRepository(store, purseType)
	papers, orders := aggregate.NewRepository(store, paperType), aggregate.NewRepository(store, orderType)
	bus.HandleAggregate(b, bus.TypeOf[hold]("goods.hold"), goods, func(c hold) string { return c.Goods }, hold.decide)
	bus.HandleAggregate(b, bus.TypeOf[free]("goods.free"), goods, func(c free) string { return c.Goods }, free.decide)
	bus.HandleAggregate(b, bus.TypeOf[pay]("purse.pay"), purses, func(c pay) string { return c.Purse }, pay.decide)
	bus.HandleAggregate(b, bus.TypeOf[repay]("purse.repay"), purses, func(c repay) string { return c.Purse }, repay.decide)
	bus.HandleAggregate(b, bus.TypeOf[draw]("paper.draw"), papers, func(c draw) string { return c.What + "-" + c.Order }, draw.decide)
	bus.HandleAggregate(b, bus.TypeOf[tear]("paper.tear"), papers, func(c tear) string { return c.What + "-" + c.Order }, tear.decide)
	bus.HandleAggregate(b, bus.TypeOf[settle]("order.settle"), orders, func(c settle) string { return c.Order },
		func(c settle, _ int) ([]orderEvent, error) { return []orderEvent{settled{c.How}}, nil })
	return b
}

// byAttempt keeps outcomes under keys of attempts, so that none is ever found.
func byAttempt(next bus.Handler) bus.Handler {
	return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
		return next(aggregate.ContextWithIdempotencyKey(ctx, uuid.NewString()), c)
	}
}

// noticing tells of each command that has been carried out, and may yet be forgotten.
func noticing(reached func(place string)) bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
			reply, err := next(ctx, c)
			reached("carried out")
			return reply, err
		}
	}
}

// request is the state of the saga.
type request struct {
	Order string
	Of    placement
	Seen  int // answers
}

func answer[E any](r request, _ saga.Event[E]) request { r.Seen++; return r }

// slack is a deadline that no disturbance reaches.
const slack = time.Hour

func papersStep(what string) saga.Step[request] {
	return saga.Step[request]{
		Name: what,
		Send: saga.Send(func(r request) (string, draw) {
			label := what == "label"
			return "", draw{What: what, Order: r.Order, Busy: label && r.Of.Fate == hasty, Denied: label && r.Of.Fate == forbidden}
		}),
		Undo:      saga.Send(func(r request) (string, tear) { return "", tear{what, r.Order} }),
		Succeeded: []saga.Answer[request]{saga.On(answer[drawn])}, Failed: []saga.Answer[request]{saga.On(answer[busy])},
		Retry: saga.Retry{Attempts: 3, Base: 100 * time.Millisecond}, Deadline: slack,
	}
}

var orderSaga = saga.Define(saga.Process[request]{
	Name: "order", Version: 1, Events: orderEvents,
	Start: saga.StartOn(func(e saga.Event[placement]) request { return request{Order: e.Stream.ID, Of: e.Payload} }),
	Steps: []saga.Step[request]{
		{
			Name: "goods",
			Send: saga.Send(func(r request) (string, hold) {
				return "", hold{r.Of.Goods, r.Order, r.Of.Pieces, r.Of.Fate == lacking}
			}),
			Undo:      saga.Send(func(r request) (string, free) { return "", free{r.Of.Goods, r.Order} }),
			Succeeded: []saga.Answer[request]{saga.On(answer[held])}, Refused: []saga.Answer[request]{saga.On(answer[soldOut])},
			Deadline: slack,
		},
		{
			Name: "money",
			Send: saga.Send(func(r request) (string, pay) {
				return "", pay{r.Of.Purse, r.Order, r.Of.Cents, r.Of.Fate == penniless}
			}),
			Undo:      saga.Send(func(r request) (string, repay) { return "", repay{r.Of.Purse, r.Order} }),
			Succeeded: []saga.Answer[request]{saga.OnKey(saga.KeyOf(func(e saga.Event[paid]) string { return e.Payload.Order }), answer[paid])},
			Refused:   []saga.Answer[request]{saga.OnKey(saga.KeyOf(func(e saga.Event[declined]) string { return e.Payload.Order }), answer[declined])},
			Deadline:  slack,
		},
		{ // it is drawn, and the signature never comes
			Name: "consent", If: func(r request) bool { return r.Of.Fate == silent },
			Send:      saga.Send(func(r request) (string, draw) { return "", draw{What: "consent", Order: r.Order} }),
			Undo:      saga.Send(func(r request) (string, tear) { return "", tear{"consent", r.Order} }),
			Succeeded: []saga.Answer[request]{saga.On(answer[signed])}, Deadline: time.Second,
		},
		{Name: "papers", Together: []saga.Step[request]{papersStep("label"), papersStep("invoice")}},
		{
			Name: "parcel", Pivot: true,
			Send: saga.Send(func(r request) (string, draw) { return "", draw{What: "parcel", Order: r.Order} }),
		},
	},
	Completed:   saga.Send(func(r request) (string, settle) { return "", settle{r.Order, "completed"} }),
	Compensated: saga.Send(func(r request) (string, settle) { return "", settle{r.Order, "compensated"} }),
})
