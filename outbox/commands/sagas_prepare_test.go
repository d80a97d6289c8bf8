package commands

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// A definition's fault is found before anything is written: what the outbox would refuse is refused when it is prepared.
func TestSagaSenderRefusesWhatTheOutboxWould(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	type free struct{ A []byte }
	bus.Handle(w.bus, bus.TypeOf[free]("till.free"), func(context.Context, free) (bus.Reply, error) { return bus.Reply{}, nil })
	for name, test := range map[string]struct {
		to            string
		payload       any
		field, reason string
	}{
		"long":                {strings.Repeat("x", 600), free{}, "Command.Target", "600 bytes, more than 512"},
		"zero byte":           {"a\x00b", free{}, "Command.Target", "zero byte"},
		"no text":             {"a\xffb", free{}, "Command.Target", "UTF-8"},
		"long by its payload": {"", add{strings.Repeat("x", 600), 1}, "Command.Target", "605 bytes"},
		"large":               {"a", free{make([]byte, 64<<20)}, "Command.Data", "64 MiB"},
	} {
		var invalid *eventstore.InvalidError
		_, err := w.sender.Prepare(t.Context(), test.to, test.payload)
		if !errors.As(err, &invalid) || invalid.Field != test.field || !strings.Contains(invalid.Reason, test.reason) || invalid.Value == "" ||
			invalid.Remedy == "" || strings.Contains(invalid.Remedy, "event") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, to := range []string{"", strings.Repeat("x", 512)} {
		c, err := w.sender.Prepare(t.Context(), to, free{})
		if err != nil {
			t.Fatal(err)
		}
		c.ID = uuid.New()
		w.delivers(c)
	}
}

// A manager is told which commands nobody has registered, without making any.
func TestSagaSenderKnowsItsCommands(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	if err := w.sender.Knows(reflect.TypeFor[add]()); err != nil {
		t.Error(err)
	}
	type late struct{ N int }
	if err := w.sender.Knows(reflect.TypeFor[late]()); !errors.Is(err, bus.ErrUnknownCommand) || !strings.Contains(err.Error(), "commands.late: register one with bus.Handle") {
		t.Errorf("got %v", err)
	}
	if err := w.sender.Knows(reflect.TypeFor[*add]()); !errors.Is(err, bus.ErrUnknownCommand) || !strings.Contains(err.Error(), "not a pointer") {
		t.Errorf("got %v", err)
	}
	bus.Handle(w.bus, bus.TypeOf[late]("till.late"), func(context.Context, late) (bus.Reply, error) { return bus.Reply{}, nil })
	if err := w.sender.Knows(reflect.TypeFor[late]()); err != nil {
		t.Error(err)
	}
}
