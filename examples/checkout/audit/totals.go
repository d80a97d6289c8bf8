package audit

import (
	"strings"

	"github.com/daybook-go/daybook/examples/checkout/order"
)

// Totals are the sums over orders, items and payments.
type Totals struct {
	Received, Available, Reserved, Shipped int64 // items
	Taken, Refunded                        int64 // cents
	Confirmed                              int64 // cents of confirmed orders
}

// Totals adds everything up.
func (b *Books) Totals() (t Totals) {
	for _, i := range b.Items {
		t.Received += i.Received
		t.Available += i.Available
		t.Shipped += i.Shipped
	}
	t.Reserved = b.Reserved()
	for _, p := range b.Payments {
		for _, c := range p.Charges {
			t.Taken += c.Taken
			t.Refunded += c.Refunded
		}
	}
	for _, o := range b.Orders {
		if o.Status == order.StatusConfirmed {
			t.Confirmed += o.Cents
		}
	}
	return t
}

// Outcome is how many orders ended in the same way.
type Outcome struct {
	Orders, Items int
	Cents         int64
}

// Outcomes are those of the orders whose ids begin with a prefix, by the reason for which they were cancelled; "" are those
// that were confirmed.
func (b *Books) Outcomes(prefix string) map[string]Outcome {
	outcomes := map[string]Outcome{}
	for id, o := range b.Orders {
		if !strings.HasPrefix(id, prefix) || o.Status != order.StatusConfirmed && o.Status != order.StatusCancelled {
			continue
		}
		sum := outcomes[o.Reason]
		sum.Orders++
		sum.Items += int(o.Quantity)
		sum.Cents += o.Cents
		outcomes[o.Reason] = sum
	}
	return outcomes
}
