package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/testscale"
)

// model is the simplest store that keeps the promises: a list of events in the order in which they were appended.
type model struct {
	store    eventstore.Store
	category string // of this run alone; the store is shared by many runs
	streams  []eventstore.StreamID
	log      []modelEvent
	last     *modelAppend // the last append with own ids and exact claims that was stored
}

type modelEvent struct {
	stream  eventstore.StreamID
	version eventstore.Version
	data    eventstore.EventData
}

type modelAppend struct {
	writes []eventstore.Write
	result eventstore.AppendResult
}

func (m *model) version(id eventstore.StreamID) eventstore.Version {
	n := eventstore.Version(0)
	for _, e := range m.log {
		if e.stream == id {
			n++
		}
	}
	return n
}

// testModel runs random sequences of calls against the store and the model, which must agree on every answer.
func testModel(t *testing.T, open Open) {
	store := open(t)
	most := -1 // no bound: as many as rapid makes
	if testscale.Factor() < 1 {
		most = max(10, testscale.N(200))
	}
	rapid.Check(t, func(t *rapid.T) {
		if most == 0 {
			return
		}
		failed := true
		defer func() {
			if failed {
				most = -1 // what looks for the smallest failure runs on
			}
		}()
		most--
		m := &model{store: store, category: "m" + uuid.NewString()[:8]}
		for i := range 4 {
			m.streams = append(m.streams, eventstore.NewStreamID(m.category, fmt.Sprint(i)))
		}
		t.Repeat(map[string]func(*rapid.T){
			"append":     m.append,
			"repeat":     m.repeat,
			"readStream": m.readStream,
			"readAll":    m.readAll,
		})
		failed = false
	})
}

func (m *model) append(t *rapid.T) {
	order := rapid.Permutation(m.streams).Draw(t, "streams")[:rapid.IntRange(1, len(m.streams)).Draw(t, "how many")]
	ownIDs := rapid.Bool().Draw(t, "own ids")
	exact := true
	var writes []eventstore.Write
	var conflict *eventstore.ConflictError
	want := map[eventstore.StreamID]eventstore.Version{}
	var added []modelEvent
	for _, id := range order {
		actual := m.version(id)
		var claim eventstore.ExpectedVersion
		switch kind := rapid.IntRange(0, 9).Draw(t, "claim"); {
		case kind < 5: // mostly right
			claim = eventstore.Exactly(actual)
		case kind < 7:
			claim, exact = eventstore.AnyVersion, false
		case kind == 7:
			claim, exact = eventstore.StreamExists, false
		case kind == 8:
			claim = eventstore.NoStream
		default:
			claim = eventstore.Exactly(actual + 1)
		}
		var list []eventstore.EventData
		for range rapid.IntRange(0, 3).Draw(t, "events") {
			e := event(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "type"), rapid.StringN(0, 8, 40).Draw(t, "data"))
			if ownIDs {
				e.ID = uuid.New()
			}
			list = append(list, e)
			added = append(added, modelEvent{id, actual + eventstore.Version(len(list)), e})
		}
		writes = append(writes, eventstore.To(id, claim, list...))
		want[id] = actual + eventstore.Version(len(list))
		if conflict == nil && !claim.Holds(actual) {
			conflict = &eventstore.ConflictError{Stream: id, Expected: claim, Actual: actual}
		}
	}
	result, err := m.store.Append(context.Background(), writes...)
	if conflict != nil {
		var got *eventstore.ConflictError
		if !errors.As(err, &got) || *got != *conflict {
			t.Fatalf("append gave %v, want %v", err, conflict)
		}
		return
	}
	if err != nil || result.Repeated {
		t.Fatalf("append gave %+v, %v", result, err)
	}
	for id, v := range want {
		if result.Versions[id] != v {
			t.Fatalf("append gave version %d of %q, want %d", result.Versions[id], id, v)
		}
	}
	m.log = append(m.log, added...)
	if ownIDs && exact && len(added) > 0 {
		m.last = &modelAppend{writes, result}
	}
}

func (m *model) repeat(t *rapid.T) {
	if m.last == nil {
		return // there is nothing to repeat yet
	}
	result, err := m.store.Append(context.Background(), m.last.writes...)
	if err != nil || !result.Repeated || result.Token.String() != m.last.result.Token.String() {
		t.Fatalf("repeated append gave %+v, %v; the first %+v", result, err, m.last.result)
	}
}

func (m *model) readStream(t *rapid.T) {
	id := rapid.SampledFrom(m.streams).Draw(t, "stream")
	r := eventstore.Range{
		From:  eventstore.Version(rapid.IntRange(0, 8).Draw(t, "from")),
		To:    eventstore.Version(rapid.IntRange(0, 8).Draw(t, "to")),
		Limit: rapid.IntRange(0, 5).Draw(t, "limit"),
	}
	var want []modelEvent
	for _, e := range m.log {
		if e.stream == id && e.version >= r.From && (r.To == 0 || e.version <= r.To) && (r.Limit == 0 || len(want) < r.Limit) {
			want = append(want, e)
		}
	}
	var got []eventstore.RecordedEvent
	for e, err := range m.store.ReadStream(context.Background(), id, r) {
		if err != nil {
			t.Fatalf("read stream: %v", err)
		}
		got = append(got, e)
	}
	m.compare(t, got, want)
}

func (m *model) readAll(t *rapid.T) {
	f := eventstore.Filter{
		Categories: []string{m.category},
		Types:      rapid.SampledFrom([][]string{nil, {"x"}, {"y", "x"}}).Draw(t, "types"),
		Limit:      rapid.IntRange(0, 5).Draw(t, "limit"),
	}
	var selected []modelEvent
	for _, e := range m.log {
		if len(f.Types) == 0 || slices.Contains(f.Types, e.data.Type) {
			selected = append(selected, e)
		}
	}
	// The model has no positions: it goes on where a read of the same filter ended.
	after, skip := eventstore.Position{}, rapid.IntRange(0, len(selected)).Draw(t, "skip")
	if skip > 0 {
		for e, err := range m.store.ReadAll(context.Background(), eventstore.Position{}, eventstore.Filter{Categories: f.Categories, Types: f.Types, Limit: skip}) {
			if err != nil {
				t.Fatalf("read log: %v", err)
			}
			after = e.Position
		}
	}
	want := selected[skip:]
	if f.Limit > 0 && f.Limit < len(want) {
		want = want[:f.Limit]
	}
	var got []eventstore.RecordedEvent
	for e, err := range m.store.ReadAll(context.Background(), after, f) {
		if err != nil {
			t.Fatalf("read log: %v", err)
		}
		got = append(got, e)
	}
	m.compare(t, got, want)
}

func (m *model) compare(t *rapid.T, got []eventstore.RecordedEvent, want []modelEvent) {
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Stream != w.stream || g.Version != w.version || g.Type != w.data.Type || string(g.Data) != string(w.data.Data) ||
			w.data.ID != (uuid.UUID{}) && g.ID != w.data.ID {
			t.Fatalf("event %d is %+v, want %+v", i, g, w)
		}
	}
}
