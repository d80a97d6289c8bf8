package basket

import (
	"fmt"
	"math/rand/v2"

	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
)

// SoldOut is an item that the warehouse never receives.
const SoldOut = "sold-out"

// items and what one of each costs, in cents.
var items = []struct {
	sku   string
	cents int64
}{
	{"kettle", 4500}, {"teapot", 3250}, {"cup", 895}, {"saucer", 495}, {"spoon", 299}, {"strainer", 649},
	{"tray", 1990}, {"towel", 720}, {"jar", 1150}, {"scales", 5999}, {"honey", 785}, {"lamp", 8940},
}

var countries = []string{"DE", "FR", "PL", "DK", "NL", "AT"}

// shares are how many of 100 orders end otherwise than confirmed, and what they have in them that makes them.
var shares = []struct {
	percent int
	spoil   func(*order.Place)
}{
	{5, func(p *order.Place) { p.Card = provider.CardDeclined }},
	{3, func(p *order.Place) { p.SKU = SoldOut }},
	{2, func(p *order.Place) { p.Card = provider.CardSilent }},
	{1, func(p *order.Place) { p.Country = shipping.NoCarrier }},
}

// Generate makes up n orders.
func Generate(n int, seed uint64) []order.Place {
	chance := rand.New(rand.NewPCG(seed, 0))
	orders := make([]order.Place, n)
	for i := range orders {
		item, quantity := items[chance.IntN(len(items))], 1+chance.Int64N(4)
		orders[i] = order.Place{
			Account: fmt.Sprintf("customer-%02d", chance.IntN(50)), SKU: item.sku, Quantity: quantity, Cents: quantity * item.cents,
			Card: "visa", Country: countries[chance.IntN(len(countries))],
		}
	}
	places := chance.Perm(n)
	for _, share := range shares {
		many := (n*share.percent + 50) / 100
		for _, i := range places[:many] {
			share.spoil(&orders[i])
		}
		places = places[many:]
	}
	return orders
}

// Expect is why an order is cancelled, or empty when it is confirmed: whatever happens on the way, this is how it ends.
func Expect(p order.Placed) (why string) {
	byCard := map[string]string{provider.CardDeclined: checkout.Declined, provider.CardSilent: checkout.NoAnswer}
	switch {
	case p.SKU == SoldOut:
		return checkout.OutOfStock
	case byCard[p.Card] == "" && p.Country == shipping.NoCarrier:
		return checkout.NoCarrier
	}
	return byCard[p.Card]
}

// Needs are how many of each item the warehouse must have for all orders; what is sold out is not among them.
func Needs(orders []order.Place) map[string]int64 {
	needs := make(map[string]int64)
	for _, p := range orders {
		if p.SKU != SoldOut {
			needs[p.SKU] += p.Quantity
		}
	}
	return needs
}

// ID is the number of an order: that of the run, and its place in it from 0.
func ID(run int64, place int) string { return fmt.Sprintf("%d-%04d", run, place+1) }

// RowError is a row of a file that is no order.
type RowError struct {
	File string
	Row  int // from 1; a header does not count
	Err  error
}

func (e *RowError) Error() string { return fmt.Sprintf("basket: %s: row %d: %v", e.File, e.Row, e.Err) }

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

// checked lets an order be placed as the aggregate would, so that a file is refused before anything of it is.
func checked(p order.Place) error {
	_, err := p.Decide(order.Order{})
	return err
}
