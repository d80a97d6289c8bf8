package projection_test

import (
	"context"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/projection"
)

type (
	Arrived struct{ Pieces int64 }
	Shipped struct{ Pieces int64 }
)

var stockEvents = eventstore.NewCatalog(
	eventstore.TypeOf[Arrived]("stock.arrived"), eventstore.TypeOf[Shipped]("stock.shipped"))

// Stock is one row: what is there of an article.
type Stock struct{ Pieces int64 }

func (s Stock) arrived(e projection.Event[Arrived]) Stock { s.Pieces += e.Payload.Pieces; return s }
func (s Stock) shipped(e projection.Event[Shipped]) Stock { s.Pieces -= e.Payload.Pieces; return s }
func (s Stock) empty() bool                               { return s.Pieces == 0 }

// Stocks has a row for each article that is there. As a table it is readmodels.stocks_v1.
var Stocks = projection.View[string, Stock]{
	Name: "stocks", Version: 1, Events: stockEvents,
	Folds: []projection.Fold[string, Stock]{
		projection.On(projection.ByStream, Stock.arrived),
		projection.On(projection.ByStream, Stock.shipped),
	},
	Gone: Stock.empty,
}

// The folds of a view also work without a table: here on the events of one moment, in memory.
func ExampleView_Replay() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	for _, w := range []struct {
		id    string
		event any
	}{{"tea", Arrived{10}}, {"milk", Arrived{3}}, {"tea", Shipped{4}}, {"milk", Shipped{3}}} {
		data, err := stockEvents.Encode(w.event)
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := store.Append(ctx, eventstore.To(eventstore.NewStreamID("stock", w.id), eventstore.AnyVersion, data)); err != nil {
			fmt.Println(err)
			return
		}
	}
	rows, err := Stocks.Replay(store.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{}))
	fmt.Println(rows, err)
	// Output:
	// map[tea:{6}] <nil>
}
