package shop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/examples/checkout/audit"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
	"github.com/daybook-go/daybook/examples/checkout/shop"
	"github.com/daybook-go/daybook/examples/checkout/stock"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/saga/sagatest"
)

const (
	// number is an order whose webhook the provider sends twice.
	number = "1-0002"
	shelf  = 5 // items of each kind
	// settles bounds how long the books may take to agree when the saga has ended: webhooks may still be under way.
	settles = 20 * time.Second
)

// town has a shop and a payment provider for each world of a crash test.
type town struct {
	t *testing.T

	mu    sync.Mutex
	shops map[*pgxpool.Pool]*open
}

// open is a shop that is open.
type open struct {
	*shop.Shop
	provider *provider.Provider
	close    func()
}

func newTown(t *testing.T) *town {
	c := &town{t: t, shops: map[*pgxpool.Pool]*open{}}
	t.Cleanup(func() { // those of runs that failed
		for _, o := range c.shops {
			o.close()
		}
	})
	return c
}

// in is the shop of a world; its processes, and those that come after them, have one provider.
func (c *town) in(w sagatest.World) *open {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.shops[w.Pool]; o != nil {
		return o
	}
	o := &open{}
	hooks := httptest.NewServer(nil)
	ctx, stop := context.WithCancel(context.Background())
	var err error
	o.provider, err = provider.Open(ctx, w.Pool, provider.Config{Webhook: hooks.URL + shop.WebhookPath, Secret: secret, Seed: 1})
	if err != nil {
		c.t.Error(err)
	}
	counter := httptest.NewServer(o.provider.Handler())
	client := provider.NewClient(counter.URL, 10*time.Second)
	o.Shop = shop.New(w.Store, w.Store.Snapshots(), client)
	hooks.Config.Handler = o.Webhooks(secret)
	var running sync.WaitGroup
	running.Go(func() {
		if err := o.provider.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	o.close = sync.OnceFunc(func() {
		stop()
		running.Wait()
		counter.Close()
		hooks.Close()
		client.Close()
	})
	c.shops[w.Pool] = o
	return o
}

func (c *town) bus(w sagatest.World, middleware ...bus.Middleware) *bus.Bus {
	return c.in(w).Bus(slog.New(slog.DiscardHandler), middleware...)
}

// places lets an order be placed, with stock on the shelf.
func (c *town) places(p order.Place) func(context.Context, sagatest.World) error {
	return func(ctx context.Context, w sagatest.World) error {
		o := c.in(w)
		if _, err := o.Items.Handle(ctx, p.SKU, stock.Receive{Quantity: shelf}.Decide); err != nil {
			return err
		}
		_, err := o.Orders.Handle(ctx, number, p.Decide)
		return err
	}
}

// check waits for the last webhook, and then until stock and money add up: what is confirmed is paid and taken out, of what
// is cancelled nothing is left.
func (c *town) check(ctx context.Context, w sagatest.World, ended sagatest.State) error {
	o := c.in(w)
	defer o.close()
	ctx, cancel := context.WithTimeout(ctx, settles)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for last := ""; ; {
		fault, err := o.fault(ctx, w, ended)
		switch {
		case err != nil && ctx.Err() != nil && last != "":
			return errors.New(last)
		case err != nil || fault == "":
			return err
		}
		last = fault
		select {
		case <-look.C:
		case <-ctx.Done():
			return errors.New(fault)
		}
	}
}

// fault is what does not add up, or is under way.
func (o *open) fault(ctx context.Context, w sagatest.World, ended sagatest.State) (string, error) {
	untold, err := o.provider.Untold(ctx)
	if err != nil || untold > 0 {
		return fmt.Sprintf("%d webhooks are still to be sent", untold), err
	}
	bookings, err := o.provider.Bookings(ctx)
	if err != nil {
		return "", err
	}
	books, err := audit.Read(ctx, w.Store)
	if err != nil {
		return "", err
	}
	if ended == "completed" {
		if err := takeOut(books); err != nil {
			return err.Error(), nil
		}
	}
	faults := books.Faults(bookings)
	want := map[sagatest.State]order.Status{"completed": order.StatusConfirmed, "compensated": order.StatusCancelled}[ended]
	if got := books.Orders[number].Status; got != want {
		faults = append(faults, fmt.Sprintf("the order is %s, and the saga %s", got, ended))
	}
	return strings.Join(faults, "\n"), nil
}

// takeOut enters in the books what a reactor would do beside the saga, which does not run here.
func takeOut(books *audit.Books) error {
	item := books.Items["cup"]
	books.Sent[number] += item.Reserved[number]
	events, err := stock.TakeOut{SKU: "cup", Order: number}.Decide(item)
	for _, e := range events {
		item = item.Evolve(e)
	}
	books.Items["cup"] = item
	return err
}

// Whatever happens while an order is brought to its end, it is the same end, and every item and cent is accounted for.
func TestCrashEverywhere(t *testing.T) {
	happy := order.Place{Account: "ann", SKU: "cup", Quantity: 2, Cents: 1790, Card: "visa", Country: "DE"}
	with := func(change func(*order.Place)) order.Place {
		p := happy
		change(&p)
		return p
	}
	// That one does most, and undoes all of it.
	orders := map[string]order.Place{"no carrier": with(func(p *order.Place) { p.Country = shipping.NoCarrier })}
	if testscale.Factor() >= 1 {
		orders["confirmed"] = happy
		orders["declined"] = with(func(p *order.Place) { p.Card = provider.CardDeclined })
		orders["out of stock"] = with(func(p *order.Place) { p.Quantity = shelf + 1 })
	}
	for name, p := range orders {
		t.Run(name, func(t *testing.T) {
			c := newTown(t)
			sagatest.CrashEverywhere(t, checkout.Definition, sagatest.Crashes{Bus: c.bus, Start: c.places(p), Check: c.check})
		})
	}
}
