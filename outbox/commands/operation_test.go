package commands

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/internal/livetest"
)

// A command that was sent in a transaction has an operation from its end on; before, the error says so, and names it once.
func TestNoOperationBeforeTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := w.bus.Encode(add{"a", 1}, bus.WithID(uuid.New()))
	if err != nil {
		t.Fatal(err)
	}
	w.inTx(func(tx pgx.Tx) error { return Enqueue(t.Context(), tx, c) })
	_, err = w.queue.Operation(t.Context(), "", c.ID)
	var none *bus.NoOperationError
	if !errors.As(err, &none) || none.ID != c.ID {
		t.Fatalf("before its end: %v", err)
	}
	if text := err.Error(); strings.Count(text, c.ID.String()) != 1 || !strings.Contains(text, "has an operation only from its end on") {
		t.Errorf("the error is %q", text)
	}
	w.run(Config{})
	livetest.Eventually(t, "it has an operation", func() bool {
		o, err := w.queue.Operation(t.Context(), "", c.ID)
		return err == nil && o.State == bus.OperationDone
	})
}
