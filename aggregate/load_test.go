package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	store := newStub()
	shelves := newShelves(store)
	ctx := t.Context()
	missing := must[aggregate.Loaded[shelf]](t)(shelves.Load(ctx, "a"))
	if missing.Exists() || missing.Version != 0 || missing.State.Seen != 0 {
		t.Errorf("missing: %+v", missing)
	}
	must[aggregate.Result[shelf]](t)(shelves.Handle(ctx, "a", stock("pen", "pen", "ink")))
	for version, pens := range []int{0, 1, 2, 2} {
		got := must[aggregate.Loaded[shelf]](t)(shelves.Load(ctx, "a", aggregate.AtVersion(eventstore.Version(version))))
		if int(got.Version) != version || got.State.Seen != version || got.State.Stock["pen"] != pens {
			t.Errorf("at %d: %+v", version, got)
		}
	}
	for _, bad := range []eventstore.Version{-1, 4} {
		_, err := shelves.Load(ctx, "a", aggregate.AtVersion(bad))
		var invalid *eventstore.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "AtVersion" || invalid.Remedy == "" {
			t.Errorf("at %d: %v", bad, err)
		}
	}
	for _, opts := range [][]aggregate.LoadOption{nil, {aggregate.AtVersion(0)}, {aggregate.FromEvents()}} {
		if _, err := shelves.Load(ctx, "", opts...); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("empty id: %v", err)
		}
	}
	other, err := shelfCatalog.Encode(stocked{"pen"})
	if err != nil {
		t.Fatal(err)
	}
	other.Type = "shelf.future"
	if _, err := store.Store.Append(ctx, eventstore.To(shelfType.Stream("a"), eventstore.Exactly(3), other)); err != nil {
		t.Fatal(err)
	}
	var unknown *eventstore.UnknownTypeError
	if _, err := shelves.Load(ctx, "a"); !errors.As(err, &unknown) || unknown.Version != 4 {
		t.Errorf("unknown type: %v", err)
	}
	if got, err := shelves.Load(ctx, "a", aggregate.AtVersion(3)); err != nil || got.Version != 3 {
		t.Errorf("before the unknown type: %+v, %v", got, err)
	}
}

// holed leaves out the second event of every stream.
type holed struct{ *stub }

func (h holed) ReadStream(ctx context.Context, id eventstore.StreamID, r eventstore.Range) iter.Seq2[eventstore.RecordedEvent, error] {
	return func(yield func(eventstore.RecordedEvent, error) bool) {
		for e, err := range h.stub.ReadStream(ctx, id, r) {
			if e.Version != 2 && !yield(e, err) {
				return
			}
		}
	}
}

func TestLoadRefusesAHistoryWithAHole(t *testing.T) {
	t.Parallel()
	store := newStub()
	must[aggregate.Result[shelf]](t)(newShelves(store).Handle(t.Context(), "a", stock("pen", "pen", "ink")))
	shelves := newShelves(holed{store})
	if _, err := shelves.Load(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "has version 3 where 2 must follow") {
		t.Errorf("got %v", err)
	}
	if _, err := shelves.Handle(t.Context(), "a", stock("pen")); err == nil {
		t.Error("a decision was made on an incomplete history")
	}
}

// odd is a store that cannot be compared.
type odd struct {
	*stub
	_ []int
}

type foreign struct{ N int }

type pointed struct{ N int }

func (*pointed) shelfEvent() {}

func TestDefineRefusesMistakes(t *testing.T) {
	t.Parallel()
	evolve := shelf.Evolve
	single := func(s int, _ foreign) int { return s + 1 }
	for _, test := range []struct {
		name   string
		define func()
		texts  []string
	}{
		{"dash", func() { aggregate.Define("book-shelf", evolve, shelfCatalog) }, []string{`"book-shelf"`, "dash", "another character"}},
		{"empty", func() { aggregate.Define("", evolve, shelfCatalog) }, []string{"is empty"}},
		{"no evolve", func() { aggregate.Define[shelf, event]("shelf", nil, shelfCatalog) }, []string{"evolve is nil", "pass"}},
		{"no catalog", func() { aggregate.Define("shelf", evolve, nil) }, []string{"catalog is nil", "NewCatalog"}},
		{"foreign", func() {
			aggregate.Define("shelf", evolve, eventstore.NewCatalog(eventstore.TypeOf[foreign]("order.placed")))
		}, []string{"order.placed", "aggregate_test.foreign", "does not implement"}},
		{"pointer", func() {
			aggregate.Define("shelf", evolve, eventstore.NewCatalog(eventstore.TypeOf[pointed]("shelf.pointed")))
		}, []string{"shelf.pointed", "pointer receiver"}},
		{"one struct", func() { aggregate.Define("count", single, shelfCatalog) }, []string{"shelf.reserved", "aggregate_test.foreign"}},
		{"no type", func() { aggregate.NewRepository[shelf, event](newStub(), nil) }, []string{"typ is nil"}},
		{"odd store", func() { aggregate.NewRepository(odd{}, shelfType) }, []string{"aggregate_test.odd cannot be compared", "pointer"}},
		{"no store", func() { aggregate.NewRepository(nil, shelfType) }, []string{"store is nil", `"shelf"`}},
	} {
		text := panicOf(test.define)
		for _, want := range append(test.texts, "aggregate: ") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: panic %q does not say %q", test.name, text, want)
			}
		}
	}
	counts := aggregate.Define("count", single, eventstore.NewCatalog(eventstore.TypeOf[foreign]("count.up")))
	if got := counts.Fold(1, foreign{}, foreign{}); got != 3 {
		t.Errorf("folded to %d", got)
	}
	if counts.Category() != "count" || counts.Stream("7").String() != "count-7" || counts.Catalog() == nil {
		t.Errorf("type %+v", counts)
	}
}

func panicOf(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return ""
}
