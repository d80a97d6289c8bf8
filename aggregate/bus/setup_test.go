package bus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

type (
	withInterface struct{ Any any }
	withHidden    struct{ hidden int }
	withFloat     struct{ Wait chan int }
	withPath      struct {
		ID    string `json:"-"`
		Cents int
	}
	withSecret struct {
		Note string `msgpack:"-"`
	}
	withNested struct{ Lines []map[string]*withPath }
	withEmbed  struct {
		inner `json:"-"`
		Cents int
	}
	inner    struct{ ID string }
	withMemo struct {
		At    time.Time `msgpack:"-" json:"at"`
		cache int       `json:"-"`
		next  *withMemo `json:"-"`
		Own   ownJSON
	}
	ownJSON struct {
		ID string `json:"-"`
	}
)

func (o ownJSON) MarshalJSON() ([]byte, error) { return json.Marshal(o.ID) }

func (o *ownJSON) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &o.ID) }

// What the codec of the type carries is all of a command; the tags of others do not matter.
func TestFieldsLeftOut(t *testing.T) {
	_ = withMemo{cache: 1, next: nil}
	bus.TypeOf[withMemo]("x", bus.EncodedAs(eventstore.JSON))
	bus.TypeOf[withPath]("x")
	bus.TypeOf[withNested]("x")
	bus.TypeOf[withSecret]("x", bus.EncodedAs(eventstore.JSON))
}

func handler[C any](context.Context, C) (bus.Reply, error) { return bus.Reply{}, nil }

func tillID(c payIn) string { return c.Till }

// Mistakes stop a program before it takes commands, and say what to do.
func TestMistakesAtSetUp(t *testing.T) {
	_ = withHidden{hidden: 1}
	fresh := func() *bus.Bus { return bus.New(bus.Config{}) }
	tills := newWorld(t, bus.Config{}, bare).tills
	for name, tc := range map[string]struct {
		do   func()
		want string
	}{
		"empty name":           {func() { bus.TypeOf[payIn]("") }, "is empty"},
		"name in capitals":     {func() { bus.TypeOf[payIn]("Till.PayIn") }, "lower-case"},
		"name ending in a dot": {func() { bus.TypeOf[payIn]("till.") }, "lower-case"},
		"long name":            {func() { bus.TypeOf[payIn](strings.Repeat("x", 129)) }, "129 bytes"},
		"pointer":              {func() { bus.TypeOf[*payIn]("x") }, "name the struct itself"},
		"no struct":            {func() { bus.TypeOf[int]("x") }, "declare one"},
		"unnamed struct":       {func() { bus.TypeOf[struct{}]("x") }, "declare one"},
		"interface":            {func() { bus.TypeOf[event]("x") }, "declare one"},
		"field of any type":    {func() { bus.TypeOf[withInterface]("x") }, "field Any"},
		"unexported field":     {func() { bus.TypeOf[withHidden]("x", bus.EncodedAs(eventstore.JSON)) }, "hidden"},
		"channel":              {func() { bus.TypeOf[withFloat]("x") }, "field Wait"},
		"field left out": {func() { bus.TypeOf[withPath]("x", bus.EncodedAs(eventstore.JSON)) },
			"field withPath.ID: its tag `json:\"-\"` keeps it from being stored, sent and compared when a key comes again: give it a name in the tag, or leave EncodedAs away"},
		"field left out by msgpack": {func() { bus.TypeOf[withSecret]("x") }, "field withSecret.Note: its tag `msgpack:\"-\"`"},
		"nested field left out":     {func() { bus.TypeOf[withNested]("x", bus.EncodedAs(eventstore.JSON)) }, "field withNested.Lines[][].ID"},
		"embedded fields left out":  {func() { bus.TypeOf[withEmbed]("x", bus.EncodedAs(eventstore.JSON)) }, "field withEmbed.inner"},
		"nil codec":                 {func() { bus.TypeOf[payIn]("x", bus.EncodedAs(nil)) }, "codec is nil"},
		"nil target":                {func() { bus.TypeOf[payIn]("x", bus.Target[payIn](nil)) }, "Target has no function"},
		"target of another":         {func() { bus.TypeOf[payIn]("x", bus.Target(func(payOut) string { return "" })) }, "bus_test.payOut"},
		"nil middleware":            {func() { bus.New(bus.Config{}, nil) }, "middleware 1 is nil"},
		"middleware that returns nil": {func() {
			bus.New(bus.Config{}, func(bus.Handler) bus.Handler { return nil })
		}, "returned a nil handler"},
		"nil handler": {func() { bus.Handle[payIn](fresh(), payInType, nil) }, "handler is nil"},
		"nil bus":     {func() { bus.Handle(nil, payInType, handler) }, "bus is nil"},
		"no type":     {func() { bus.Handle(fresh(), bus.CommandType[payIn]{}, handler) }, "bus.TypeOf"},
		"one name twice": {func() {
			b := fresh()
			bus.Handle(b, payInType, handler)
			bus.Handle(b, bus.TypeOf[payOut]("till.pay-in"), handler)
		}, "name has a handler already, for bus_test.payIn"},
		"one Go type twice": {func() {
			b := fresh()
			bus.Handle(b, payInType, handler)
			bus.Handle(b, bus.TypeOf[payIn]("till.other"), handler)
		}, `Go type has a handler already, as "till.pay-in"`},
		"nil repository": {func() {
			bus.HandleAggregate(fresh(), payInType, (*aggregate.Repository[till, event])(nil), tillID, payIn.Decide)
		}, "repository is nil"},
		"nil id":      {func() { bus.HandleAggregate(fresh(), payInType, tills, nil, payIn.Decide) }, "id is nil"},
		"nil decide":  {func() { bus.HandleAggregate(fresh(), payInType, tills, tillID, nil) }, "payIn.Decide"},
		"nil store":   {func() { bus.Idempotent(nil) }, "store is nil"},
		"nil gate":    {func() { bus.Admit(nil) }, "gate is nil"},
		"nil check":   {func() { bus.Authorize(nil) }, "check is nil"},
		"nil trace":   {func() { bus.Trace(nil) }, "begin is nil"},
		"nil refusal": {func() { bus.Log(nil, nil) }, "refusals is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				text := fmt.Sprint(recover())
				if !strings.HasPrefix(text, "bus: ") || !strings.Contains(text, tc.want) {
					t.Fatalf("panicked with %q, want a text about the bus with %q", text, tc.want)
				}
			}()
			tc.do()
		})
	}
}

func TestTargetOfTheTypeWins(t *testing.T) {
	w := newWorld(t, bus.Config{}, bare)
	type move struct{ From, To string }
	bus.HandleAggregate(w.Bus, bus.TypeOf[move]("till.move", bus.Target(func(c move) string { return "all-moves" })), w.tills,
		func(c move) string { return c.From }, func(move, till) ([]event, error) { return nil, nil })
	c, err := w.Encode(move{"1", "2"})
	if err != nil || c.Target != "all-moves" {
		t.Fatalf("target %q, %v", c.Target, err)
	}
	if c, err = w.Encode(anything{}); err != nil || c.Target != "" {
		t.Fatalf("target %q, %v", c.Target, err)
	}
}

// Handlers may be added while commands are sent.
func TestHandleWhileSending(t *testing.T) {
	w := newWorld(t, bus.Config{}, bare)
	done := make(chan struct{})
	go func() {
		defer close(done)
		bus.Handle(w.Bus, bus.TypeOf[probe]("test.probe"), handler)
	}()
	for range 100 {
		if _, err := w.Send(t.Context(), payIn{"1", 1}); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	if _, err := w.Send(t.Context(), probe{}); err != nil {
		t.Fatal(err)
	}
}
