package memory_test

import (
	"context"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// A consumer reads pages and goes on from where each ends, also when a page is empty: the filter may have passed over
// events.
func ExampleLog_ReadPage() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	for _, id := range []string{"1", "2", "3"} {
		for _, category := range []string{"order", "invoice"} {
			event := eventstore.EventData{Type: category + ".opened"}
			if _, err := store.Append(ctx, eventstore.To(eventstore.NewStreamID(category, id), eventstore.NoStream, event)); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	log := store.Log()
	invoices := eventstore.Filter{Types: []string{"invoice.opened"}}
	for after := (eventstore.Position{}); ; {
		page, err := log.ReadPage(ctx, after, invoices, 2)
		if err != nil {
			fmt.Println(err)
			return
		}
		if !page.Through.After(after) {
			break // here a consumer calls log.Wait
		}
		for _, e := range page.Events {
			fmt.Println(e.Stream)
		}
		after = page.Through
	}
	// Output:
	// invoice-1
	// invoice-2
	// invoice-3
}
