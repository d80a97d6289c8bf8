package stock_test

import (
	"testing"

	"github.com/daybook-go/daybook/aggregate/aggregatetest"
	"github.com/daybook-go/daybook/examples/checkout/stock"
)

func reserve(order string, quantity int64) stock.Reserve {
	return stock.Reserve{SKU: "kettle", Order: order, Quantity: quantity}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, stock.Type).Given(stock.Received{Quantity: 3}).
		When(reserve("1", 2).Decide).Then(stock.Reserved{Order: "1", Quantity: 2}).
		When(reserve("2", 2).Decide).Then(stock.Rejected{Order: "2", Quantity: 2, Available: 1}).
		When(reserve("2", 1).Decide).Then(stock.Reserved{Order: "2", Quantity: 1}).
		When(reserve("1", 1).Decide).ThenError(stock.ErrReserved).
		When(reserve("3", 0).Decide).ThenError(stock.ErrQuantity).
		When(stock.Receive{}.Decide).ThenError(stock.ErrQuantity).
		When(stock.Receive{Quantity: 1}.Decide).Then(stock.Received{Quantity: 1}).
		ThenState(stock.Item{Received: 4, Available: 1, Reserved: map[string]int64{"1": 2, "2": 1}})
}

func TestRelease(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, stock.Type).
		Given(stock.Received{Quantity: 3}, stock.Reserved{Order: "1", Quantity: 2}, stock.Reserved{Order: "2", Quantity: 1}).
		When(stock.Release{SKU: "kettle", Order: "1"}.Decide).Then(stock.Released{Order: "1", Quantity: 2}).
		When(stock.Release{SKU: "kettle", Order: "1"}.Decide).Then().
		When(stock.TakeOut{SKU: "kettle", Order: "1"}.Decide).ThenError(stock.ErrNotReserved).
		ThenState(stock.Item{Received: 3, Available: 2, Reserved: map[string]int64{"2": 1}})
}

func TestTakeOut(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, stock.Type).
		Given(stock.Received{Quantity: 3}, stock.Reserved{Order: "1", Quantity: 2}, stock.Reserved{Order: "2", Quantity: 1}).
		When(stock.TakeOut{SKU: "kettle", Order: "1"}.Decide).Then(stock.Shipped{Order: "1", Quantity: 2}).
		When(stock.Release{SKU: "kettle", Order: "1"}.Decide).Then().
		ThenState(stock.Item{Received: 3, Shipped: 2, Reserved: map[string]int64{"2": 1}})
}
