package audit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/examples/checkout/audit"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
	"github.com/daybook-go/daybook/examples/checkout/stock"
)

// history is what has happened; a test changes one thing of it.
type history struct {
	orders    map[string][]order.Event
	items     map[string][]stock.Event
	payments  map[string][]payment.Event
	shipments map[string][]shipping.Event
	bookings  []provider.Booking
}

// right is a history in which everything adds up: order 1 was confirmed at the second try to charge, order 2 was cancelled.
func right() history {
	one := order.Placed{Account: "ann", SKU: "cup", Quantity: 2, Cents: 900, Card: "visa", Country: "DE"}
	two := order.Placed{Account: "bob", SKU: "cup", Quantity: 1, Cents: 450, Card: "visa", Country: shipping.NoCarrier}
	return history{
		orders: map[string][]order.Event{
			"1": {one, order.Sent{}, order.Invoiced{Number: "R-1"}, order.CustomerTold{Account: "ann"}, order.Confirmed{}},
			"2": {two, order.Cancelled{Reason: checkout.NoCarrier}},
		},
		items: map[string][]stock.Event{"cup": {
			stock.Received{Quantity: 5}, stock.Reserved{Order: "1", Quantity: 2}, stock.Reserved{Order: "2", Quantity: 1},
			stock.Shipped{Order: "1", Quantity: 2}, stock.Released{Order: "2", Quantity: 1},
		}},
		payments: map[string][]payment.Event{
			"1": {
				payment.Taken{Order: "1", Charge: "a", Cents: 900}, payment.Refunded{Charge: "a", Cents: 900},
				payment.Taken{Order: "1", Charge: "b", Cents: 900},
			},
			"2": {payment.Refunded{Charge: "c", Cents: 450}, payment.Taken{Order: "2", Charge: "c", Cents: 450}},
		},
		shipments: map[string][]shipping.Event{
			"1": {shipping.HandedOver{Order: "1", SKU: "cup", Quantity: 2, Country: "DE"}},
			"2": {shipping.Refused{Order: "2"}},
		},
		bookings: []provider.Booking{
			{Charge: "a", Order: "1", Cents: 900, Refunded: 900}, {Charge: "b", Order: "1", Cents: 900}, {Charge: "c", Order: "2", Cents: 450, Refunded: 450},
		},
	}
}

func (h history) books(t *testing.T) *audit.Books {
	t.Helper()
	store := memory.New(memory.Config{})
	put(t, aggregate.NewRepository(store, order.Type), h.orders)
	put(t, aggregate.NewRepository(store, stock.Type), h.items)
	put(t, aggregate.NewRepository(store, payment.Type), h.payments)
	put(t, aggregate.NewRepository(store, shipping.Type), h.shipments)
	books, err := audit.Read(context.Background(), store)
	if err != nil {
		t.Fatal(err)
	}
	return books
}

func put[S, E any](t *testing.T, r *aggregate.Repository[S, E], streams map[string][]E) {
	t.Helper()
	for id, events := range streams {
		if _, err := r.Handle(t.Context(), id, func(S) ([]E, error) { return events, nil }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRight(t *testing.T) {
	t.Parallel()
	h := right()
	books := h.books(t)
	if faults := append(books.Faults(h.bookings), books.Surprises("")...); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
	want := audit.Totals{Received: 5, Available: 3, Shipped: 2, Taken: 2250, Refunded: 1350, Confirmed: 900}
	if got := books.Totals(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	outcomes := books.Outcomes("")
	if len(outcomes) != 2 || outcomes[""] != (audit.Outcome{Orders: 1, Items: 2, Cents: 900}) || outcomes[checkout.NoCarrier] != (audit.Outcome{Orders: 1, Items: 1, Cents: 450}) {
		t.Errorf("outcomes: %+v", outcomes)
	}
	if outcomes := books.Outcomes("2"); len(outcomes) != 1 || books.Open() != 0 || books.Reserved() != 0 {
		t.Errorf("of order 2: %+v; open %d, reserved %d", outcomes, books.Open(), books.Reserved())
	}
}

// One cent or one item too many or too few, anywhere, is found and named.
func TestWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*history)
		says  string
	}{
		"a cent at the provider":       {func(h *history) { h.bookings[1].Cents++ }, "order 1: charge b: cents taken"},
		"a cent given back":            {func(h *history) { h.bookings[2].Refunded-- }, "order 2: charge c: cents refunded"},
		"a charge that nobody told of": {func(h *history) { h.bookings = append(h.bookings, provider.Booking{Charge: "d", Order: "1", Cents: 1}) }, "order 1: charge d"},
		"a charge that was not":        {func(h *history) { h.bookings = h.bookings[:2] }, "order 2: the provider does not know charge c"},
		"paid twice":                   {func(h *history) { h.payments["1"] = append(h.payments["1"], payment.Taken{Charge: "d", Cents: 900}) }, "order 1: cents held is 1800"},
		"not refunded":                 {func(h *history) { h.payments["2"] = h.payments["2"][1:] }, "order 2: cents held is 450"},
		"shipped one less":             {func(h *history) { h.items["cup"][3] = stock.Shipped{Order: "1", Quantity: 1} }, "order 1: items shipped is 1"},
		"lost one":                     {func(h *history) { h.items["cup"][4] = stock.Released{Order: "2"} }, "item cup: available, reserved and shipped is 4"},
		"still reserved":               {func(h *history) { h.items["cup"] = h.items["cup"][:4] }, "item cup: reserved is 1"},
		"sold more than there is":      {func(h *history) { h.items["cup"][0] = stock.Received{Quantity: 1} }, "item cup: available is -1"},
		"shipped, though cancelled": {func(h *history) {
			h.shipments["2"] = []shipping.Event{shipping.HandedOver{Order: "2", SKU: "cup", Quantity: 1}}
		}, "order 2: parcels is 1"},
		"another parcel": {func(h *history) {
			h.shipments["1"] = []shipping.Event{shipping.HandedOver{Order: "1", SKU: "jar", Quantity: 2}}
		}, "the parcel has 2 jar"},
		"two invoices":               {func(h *history) { h.orders["1"] = append(h.orders["1"], order.Invoiced{}) }, "order 1: invoices is 2"},
		"no mail":                    {func(h *history) { h.orders["1"][3] = order.Invoiced{} }, "order 1: mails is 0"},
		"still open":                 {func(h *history) { h.orders["2"] = h.orders["2"][:1] }, "order 2 is open"},
		"never placed":               {func(h *history) { delete(h.orders, "2") }, "order 2 was never placed, and has a payment"},
		"for another reason":         {func(h *history) { h.orders["2"][1] = order.Cancelled{Reason: checkout.Declined} }, `must be cancelled "no carrier"`},
		"confirmed, and must not be": {func(h *history) { h.orders["2"][1] = order.Confirmed{} }, `order 2 is confirmed ""`},
		"cancelled, and must not be": {func(h *history) { h.orders["1"][4] = order.Cancelled{Reason: checkout.NotPaid} }, `order 1 is cancelled "not paid"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := right()
			c.spoil(&h)
			books := h.books(t)
			faults := strings.Join(append(books.Faults(h.bookings), books.Surprises("")...), "\n")
			if !strings.Contains(faults, c.says) {
				t.Errorf("%q is not among the faults:\n%s", c.says, faults)
			}
		})
	}
}
