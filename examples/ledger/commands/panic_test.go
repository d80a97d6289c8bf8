package commands_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/commands"
)

// fragile panics with what was posted.
type fragile struct{ engine }

func (fragile) AppendOnce(context.Context, eventstore.Claim, eventstore.Outcome, ...eventstore.Write) (eventstore.Outcome, error) {
	panic("Lunch for 4.00")
}

func TestPanicsAreDiscreet(t *testing.T) {
	t.Parallel()
	store := fragile{engine{memory.New(memory.Config{})}}
	var log bytes.Buffer
	b := commands.NewBus(store, book.New(store, store.Snapshots(), nil), commands.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_, err := b.Send(t.Context(), lunch("4.00"))
	var panicked *bus.PanicError
	if !errors.As(err, &panicked) || strings.Contains(err.Error(), "Lunch") {
		t.Errorf("the error is %v", err)
	}
	if text := log.String(); !strings.Contains(text, "AppendOnce") || strings.Contains(text, "Lunch") || strings.Contains(text, "4.00") {
		t.Errorf("the log has no stack, or more than that:\n%s", text)
	}
}
