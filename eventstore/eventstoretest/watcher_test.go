package eventstoretest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func TestWatcherCounts(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	a, b := eventstore.NewStreamID("a", "1"), eventstore.NewStreamID("a", "2")
	mustAppend(t, store, eventstore.To(a, eventstore.NoStream, events("x", 2)...), eventstore.To(b, eventstore.NoStream, events("y", 1)...))
	mustAppend(t, store, eventstore.To(a, eventstore.AnyVersion, events("y", 2)...))
	truth := readAll(t, store, eventstore.Position{}, eventstore.Filter{})
	foreign := truth[0]
	foreign.ID[0]++
	moved := truth[1]
	moved.Position = eventstore.PositionAt(moved.Position.Ordinal() + 1000)
	everything := func(eventstore.RecordedEvent) bool { return true }
	tests := []struct {
		name    string
		seen    []eventstore.RecordedEvent
		selects func(eventstore.RecordedEvent) bool
		want    Report
	}{
		{"all", truth, everything, Report{Events: 5, Seen: 5}},
		{"filtered", filtered(truth, eventstore.Position{}, eventstore.Filter{Types: []string{"y"}}),
			func(e eventstore.RecordedEvent) bool { return e.Type == "y" }, Report{Events: 3, Seen: 3}},
		{"nothing", nil, everything, Report{Events: 5, Lost: 5}},
		{"first lost", truth[1:], everything, Report{Events: 5, Seen: 4, Lost: 1}},
		{"last lost", truth[:4], everything, Report{Events: 5, Seen: 4, Lost: 1}},
		{"doubled", append(slices.Clone(truth), truth[2]), everything, Report{Events: 5, Seen: 6, Doubled: 1}},
		{"late", append(slices.Clone(truth[1:]), truth[0]), everything, Report{Events: 5, Seen: 5, Reordered: 1}},
		{"unknown", append(slices.Clone(truth), foreign), everything, Report{Events: 5, Seen: 6, Unknown: 1}},
		{"at another place", []eventstore.RecordedEvent{truth[0], moved, truth[2], truth[3], truth[4]}, everything,
			Report{Events: 5, Seen: 5, Unknown: 1}},
		{"not selected", truth, func(e eventstore.RecordedEvent) bool { return e.Type == "x" }, Report{Events: 2, Seen: 5, Unknown: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &reader{name: tt.name, selects: tt.selects}
			for _, e := range tt.seen {
				r.seen = append(r.seen, sightingOf(e))
			}
			got := r.report(truth)
			clean := got.Lost+got.Doubled+got.Reordered+got.Unknown == 0
			if got.Clean() != clean || (got.First == "") != clean {
				t.Errorf("%s: clean is %v", got, got.Clean())
			}
			got.Name, got.First = "", ""
			if got != tt.want {
				t.Errorf("report %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A reader that goes on behind the highest position it saw loses what appears below it: the watcher must say so.
func TestWatcherCatchesAWrongReader(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	mustAppend(t, store, eventstore.To(eventstore.NewStreamID("a", "1"), eventstore.NoStream, events("x", 3)...))
	truth := readAll(t, store, eventstore.Position{}, eventstore.Filter{})
	calls := 0
	hasty := func(_ context.Context, after eventstore.Position) ([]eventstore.RecordedEvent, eventstore.Position, error) {
		switch calls++; calls {
		case 1: // the second event is not visible yet
			return []eventstore.RecordedEvent{truth[0], truth[2]}, truth[2].Position, nil
		default:
			return nil, after, nil
		}
	}
	broken := func(context.Context, eventstore.Position) ([]eventstore.RecordedEvent, eventstore.Position, error) {
		return nil, eventstore.Position{}, errors.New("cannot read")
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	watcher := NewWatcher()
	watcher.Watch(ctx, "hasty", hasty)
	watcher.Watch(ctx, "broken", broken)
	watcher.Watch(ctx, "sound", ReadingPages(store.Log(), eventstore.Filter{}, 2))
	reports := watcher.Finish(ctx, stop, truth)
	if r := reports[0]; r.Lost != 1 || r.Clean() || !strings.Contains(r.String(), "lost 1") {
		t.Errorf("the hasty reader: %s", r)
	}
	if r := reports[1]; r.Err == nil || r.Clean() || r.Lost != 3 {
		t.Errorf("the broken reader: %s", r)
	}
	if r := reports[2]; !r.Clean() || r.Seen != 3 {
		t.Errorf("the sound reader: %s", r)
	}
}
