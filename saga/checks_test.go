package saga_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/saga"
)

type foreign struct{}

type dropped struct {
	Kept int
	Lost int `msgpack:"-"`
}

type unstorable struct{ F func() }

func TestDefinitionsThatCannotRun(t *testing.T) {
	t.Parallel()
	none := saga.Command[shop]{}
	type process = saga.Process[shop]
	for _, test := range []struct {
		step   string
		change func(p *process)
		texts  []string // in the one fault, remedy included
	}{
		{"", func(p *process) { p.Name = "Check out" }, []string{`"Check out" is no name`, "a letter first"}},
		{"", func(p *process) { p.Name = "a-replies" }, []string{"names the replies of another saga"}},
		{"", func(p *process) { p.Version = 0 }, []string{"field Version: 0", "from 1"}},
		{"", func(p *process) { p.Start = saga.Start[shop]{} }, []string{"nothing begins the saga", "StartOn"}},
		{"", func(p *process) { p.Start = saga.StartOn(func(saga.Event[foreign]) shop { return shop{} }) }, []string{"foreign is not in Events", "TypeOf"}},
		{"", func(p *process) { p.Start = saga.StartOn[shop, orderPlaced](nil) }, []string{"Start: saga_test.orderPlaced has no function"}},
		{"", func(p *process) { p.Start = saga.StartOnAny(p.Start, p.Start) }, []string{"begins it twice"}},
		{"", func(p *process) { p.Start = saga.StartOnKey(begin, saga.Key[orderPlaced]{}) }, []string{"nothing says which instance", "KeyOf"}},
		{"", func(p *process) { p.Steps = nil }, []string{"field Steps is empty"}},
		{"", func(p *process) { p.UndoDeadline = -1 }, []string{"field UndoDeadline: -1ns"}},
		{"", func(p *process) { p.UndoRetry.Attempts = -1 }, []string{"field UndoRetry: ", "Attempts: -1"}},
		{"", func(p *process) { p.Completed = saga.Send(func(shop) (string, *foreign) { return "", nil }) }, []string{"Completed", "no named struct"}},
		{"", func(p *process) { p.Compensated = saga.Send[shop, foreign](nil) }, []string{"Compensated: Send has no function"}},

		{"Reserve", func(p *process) { p.Steps[0].Name = "Reserve" }, []string{`"Reserve" is no name`}},
		{"completed", func(p *process) { p.Steps[0].Name = "completed" }, []string{"what the last command is called"}},
		{"hand-over", func(p *process) { p.Steps[0].Name = "hand-over" }, []string{"is there twice"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Send = none }, []string{"field Send is empty", "saga.Send"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Send = saga.Send[shop, foreign](nil) }, []string{"Send has no function"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Undo, p.Steps[0].Deadline = none, 0 }, []string{"neither Undo nor NothingToUndo", "make it the Pivot"}},
		{"reserve-stock", func(p *process) { p.Steps[0].NothingToUndo = "no" }, []string{"both Undo and NothingToUndo"}},
		{"hand-over", func(p *process) { p.Steps[2].Deadline = time.Hour }, []string{"Deadline and no Undo", "set Undo, or leave Deadline out"}},
		{"hand-over", func(p *process) { p.Steps[2].Deadline, p.Steps[2].NothingToUndo = time.Hour, "no" }, []string{"Deadline and no Undo", "in place of NothingToUndo, or leave Deadline out"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Undo, p.Steps[0].NothingToUndo = none, "reads only" }, []string{"Deadline and no Undo", "leave Deadline out"}},
		{"mail", func(p *process) { p.Steps[3].Together[1].Deadline = time.Hour }, []string{"Deadline and no Undo"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Deadline = -1 }, []string{"field Deadline"}},
		{"mail", func(p *process) { p.Steps[3].Together[1].Refused = answers{saga.On(same[noCarrier])} }, []string{"behind the pivot and can be refused", "before the pivot"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Retry.Forever = true }, []string{"Forever before the pivot", "set Attempts"}},
		{"mail", func(p *process) { p.Steps[3].Together[1].Retry.Attempts = 2 }, []string{"both Attempts and Forever"}},
		{"take-payment", func(p *process) { p.Steps[1].Retry = saga.Retry{Base: time.Hour, Cap: time.Second} }, []string{"field Retry: Cap: 1s is below Base"}},
		{"hand-over", func(p *process) { p.Steps[1].Pivot = true; p.Steps[2].Refused = nil }, []string{"there is a pivot before it"}},
		{"invoice", func(p *process) { p.Steps[2].Pivot = false; p.Steps[2].NothingToUndo = "no"; inside(p, true) }, []string{"inside of a group", "after the group tell"}},
		{"tell", func(p *process) { p.Steps[3].Together = steps{} }, []string{"Together is empty"}},
		{"tell", func(p *process) { p.Steps[3].Send = p.Steps[0].Send }, []string{"no other field than Name, If and Together"}},
		{"tell", func(p *process) { p.Steps[3].Pivot, p.Steps[2].Pivot, p.Steps[2].NothingToUndo = true, false, "no" }, []string{"done bit by bit"}},
		{"mail", func(p *process) { p.Steps[3].Together[1] = saga.Step[shop]{Name: "mail", Together: steps{}} }, []string{"group inside of a group"}},

		{"reserve-stock", func(p *process) { p.Steps[0].Succeeded = answers{{}} }, []string{"field Succeeded has a zero value"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Succeeded = answers{saga.On[shop, stockReserved](nil)} }, []string{"has no function"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Succeeded = answers{saga.On(same[foreign])} }, []string{"foreign is not in Events"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Refused = p.Steps[0].Succeeded }, []string{"answers it twice"}},
		{"reserve-stock", func(p *process) { p.Steps[0].Succeeded = nil }, []string{"has Refused or Failed and no Succeeded"}},
		{"take-payment", func(p *process) { p.Steps[1].Succeeded = answers{saga.OnKey(saga.Key[paymentTaken]{}, shop.paid)} }, []string{"nothing says which instance"}},
		{"hand-over", func(p *process) { p.Steps[2].Succeeded = p.Steps[1].Succeeded }, []string{`answers step "take-payment" by key too`, "use On in one"}},
	} {
		d := changed(test.change)
		err := d.Validate()
		fault := (*saga.DefinitionError)(nil)
		if !errors.As(err, &fault) {
			t.Errorf("%v: no fault is found", test.texts)
			continue
		}
		if fault.Step != test.step || fault.Remedy == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: the step is %q: %v", test.texts, fault.Step, err)
		}
		for _, want := range test.texts {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("want %q in %q", want, err)
			}
		}
		if _, err := d.Parts(); err == nil {
			t.Errorf("%v: it can run all the same", test.texts)
		}
	}
}

// inside makes the first member of the group the pivot.
func inside(p *saga.Process[shop], pivot bool) {
	g := saga.Step[shop]{Name: "tell", Together: append(steps{}, p.Steps[3].Together...)}
	for n := range g.Together {
		g.Together[n].Retry, g.Together[n].NothingToUndo = saga.Retry{}, "no"
	}
	g.Together[0].Pivot = pivot
	p.Steps[3] = g
}

func TestEveryFaultIsFound(t *testing.T) {
	t.Parallel()
	err := changed(func(p *saga.Process[shop]) { p.Name, p.Version, p.Steps[0].Name = "", 0, "" }).Validate()
	if got := strings.Count(err.Error(), "saga: define"); got != 3 {
		t.Errorf("%d faults: %v", got, err)
	}
}

func TestStatesThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for text, d := range map[string]saga.Definition{
		"dropped.Lost":     stateOf[dropped](),
		"cannot be stored": stateOf[unstorable](),
		"is no struct":     stateOf[int](),
	} {
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
	}
	if err := stateOf[struct {
		At   time.Time
		List map[string][]dropAfter
	}]().Validate(); err != nil {
		t.Error(err)
	}
}

// dropAfter keeps a field to itself.
type dropAfter struct {
	X     int
	cache int `msgpack:"-"`
}

var _ = dropAfter{}.cache

func stateOf[S any]() saga.Definition {
	return saga.Define(saga.Process[S]{
		Name: "s", Version: 1, Events: shopEvents,
		Start: saga.StartOn(func(saga.Event[orderPlaced]) S { var s S; return s }),
		Steps: []saga.Step[S]{{
			Name: "a", NothingToUndo: "no", Send: saga.Send(func(S) (string, tell) { return "", tell{} }),
		}},
	})
}

func TestOtherDefinitionsThatCannotRun(t *testing.T) {
	t.Parallel()
	when := saga.When(func(saga.Event[orderPlaced]) (string, tell) { return "", tell{} })
	react := func(r ...saga.Reaction[parcel]) saga.Definition {
		f := parcelFlow()
		f.Reactions = r
		return saga.Define(f)
	}
	for text, d := range map[string]saga.Definition{
		"Define was given nil":               saga.Define(nil),
		"field Events is nil":                saga.After("a", time.Second, nil, when, saga.Unless()),
		"there is no delay: 0s":              saga.After("a", 0, shopEvents, when, saga.Unless()),
		"field Spread: -1ns is negative":     saga.After("a", 1, shopEvents, when, saga.Unless(), saga.Spread(-1)),
		"one command":                        saga.After("a", 1, shopEvents, saga.WhenEach(func(saga.Event[orderPlaced], func(string, any)) {}), saga.Unless()),
		"Unless has a nil key":               saga.After("a", 1, shopEvents, when, saga.Unless(nil)),
		"begins it and cancels it":           saga.After("a", 1, shopEvents, when, saga.Unless(saga.KeyOf(func(saga.Event[orderPlaced]) string { return "" }))),
		"foreign is not in Events":           saga.After("a", 1, shopEvents, when, saga.Unless(saga.KeyOf(func(saga.Event[foreign]) string { return "" }))),
		"nothing makes it send":              saga.NewReactor("r", shopEvents),
		"field when has a zero value":        saga.NewReactor("r", shopEvents, saga.Trigger{}),
		"field when: the trigger":            saga.NewReactor("r", shopEvents, saga.When[orderPlaced, tell](nil)),
		"no named struct":                    saga.NewReactor("r", shopEvents, saga.When(func(saga.Event[orderPlaced]) (string, int) { return "", 1 })),
		"field Reactions is empty":           react(),
		"field Reactions has a zero value":   react(saga.Reaction[parcel]{}),
		"a reaction has no function":         react(saga.ReactReply[parcel](nil)),
		`"" is no name of a timer`:           react(saga.ReactTimer("", parcel.remind)),
		"nothing says which instance saga_t": react(saga.ReactKey(saga.Key[paymentTaken]{}, parcel.paidBack)),
	} {
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
		d.Diagram() // draws what it understands
	}
	for _, d := range []saga.Definition{checkoutDefinition, parcelDefinition, cancelUnpaid, three()} {
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
	}
	if checkoutDefinition.Name() != "checkout" || checkoutDefinition.Version() != 1 {
		t.Error("the definition has another name")
	}
}

func TestDefinitionsOfOneName(t *testing.T) {
	t.Parallel()
	f := parcelFlow()
	f.Name, f.Version = "checkout", 2
	other := saga.Process[parcel]{
		Name: "checkout", Version: 2, Events: shopEvents, Start: saga.StartOn(startParcel),
		Steps: []saga.Step[parcel]{{Name: "a", NothingToUndo: "no", Send: saga.Send(func(parcel) (string, tell) { return "", tell{} })}},
	}
	for text, d := range map[string]saga.Definition{
		`define "checkout" version 2: it is of kind "flow", and version 1 of kind "process": give one of them another name`: saga.Define(f),
		"another definition here has its name and version":                                                                  checkoutDefinition,
		"": saga.Define(other), // only the state is of another type
	} {
		_, err := saga.NewManager(nil, nil, nil, saga.Config{}, checkoutDefinition, d)
		fault := (*saga.DefinitionError)(nil)
		if found := errors.As(err, &fault); found != (text != "") || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
	}
}
