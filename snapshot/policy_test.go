package snapshot_test

import (
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

type (
	opened struct{ Year int }
	closed struct{ Year int }
)

var (
	yearOpened = eventstore.TypeOf[opened]("year.opened")
	yearClosed = eventstore.TypeOf[closed]("year.closed")
)

func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	events := func(last, version eventstore.Version) snapshot.Facts {
		return snapshot.Facts{Last: last, Version: version, Now: now}
	}
	aged := func(d time.Duration) snapshot.Facts {
		return snapshot.Facts{Version: 1, Now: now, LastAt: now.Add(-d)}
	}
	replayed := func(n int) snapshot.Facts { return snapshot.Facts{Version: 1, Now: now, Replayed: n} }
	happened := func(names ...string) snapshot.Facts { return snapshot.Facts{Version: 1, Now: now, Events: names} }
	three, hour := snapshot.Every(3), snapshot.After(time.Hour)
	both, either := snapshot.And(three, hour), snapshot.Or(three, hour)
	with := func(f snapshot.Facts, age time.Duration) snapshot.Facts {
		f.LastAt = now.Add(-age)
		return f
	}
	for i, test := range []struct {
		policy snapshot.Policy
		facts  snapshot.Facts
		want   bool
	}{
		{snapshot.Never, events(0, 1_000_000), false},
		{snapshot.Policy{}, events(0, 1_000_000), false},

		{snapshot.Every(-1), events(0, 5), false},
		{snapshot.Every(0), events(0, 5), false},
		{three, events(0, 2), false},
		{three, events(0, 3), true},
		{three, events(3, 5), false},
		{three, events(3, 11), true},
		{snapshot.Every(1), events(7, 8), true},
		{snapshot.Every(1), events(8, 8), false},

		{hour, aged(time.Hour - 1), false},
		{hour, aged(time.Hour), true},
		{hour, aged(-time.Hour), false}, // clocks differ
		{hour, snapshot.Facts{Version: 1, Now: now}, false},
		{hour, snapshot.Facts{Last: 4, Version: 4, Now: now, LastAt: now.Add(-2 * time.Hour)}, false},
		{snapshot.After(0), aged(time.Hour), false},
		{snapshot.After(-1), aged(time.Hour), false},

		{snapshot.WhenReplayed(10), replayed(9), false},
		{snapshot.WhenReplayed(10), replayed(10), true},
		{snapshot.WhenReplayed(0), replayed(10), false},

		{snapshot.OnEvent(yearClosed), happened("year.opened"), false},
		{snapshot.OnEvent(yearClosed), happened("year.opened", "year.closed"), true},
		{snapshot.OnEvent(yearClosed, yearOpened), happened("year.opened"), true},
		{snapshot.OnEvent(yearClosed), happened(), false},
		{snapshot.OnEvent(), happened("year.closed"), false},

		{either, with(events(0, 2), time.Minute), false},
		{either, with(events(0, 3), time.Minute), true},
		{either, with(events(0, 2), time.Hour), true},
		{both, with(events(0, 2), time.Hour), false},
		{both, with(events(0, 3), time.Minute), false},
		{both, with(events(0, 3), time.Hour), true},
		{snapshot.Or(), events(0, 9), false},
		{snapshot.And(), events(0, 9), false},
		{snapshot.Or(snapshot.Never, three), events(0, 3), true},
		{snapshot.And(snapshot.Never, three), events(0, 3), false},

		// Nested: closing the year, or ten events together with an hour or a long load.
		{nested, with(events(0, 9), time.Hour), false},
		{nested, with(events(0, 10), time.Minute), false},
		{nested, with(events(0, 10), time.Hour), true},
		{nested, snapshot.Facts{Version: 10, Replayed: 500, Now: now}, true},
		{nested, snapshot.Facts{Version: 9, Replayed: 500, Now: now}, false},
		{nested, happened("year.closed"), true},
	} {
		if got := test.policy.Due(test.facts); got != test.want {
			t.Errorf("%d: due %v at %+v", i, got, test.facts)
		}
	}
}

var nested = snapshot.Or(
	snapshot.OnEvent(yearClosed),
	snapshot.And(snapshot.Every(10), snapshot.Or(snapshot.After(time.Hour), snapshot.WhenReplayed(500))))

func TestBound(t *testing.T) {
	t.Parallel()
	hour := snapshot.After(time.Hour)
	for i, test := range []struct {
		policy   snapshot.Policy
		events   int
		promised bool
	}{
		{snapshot.Never, 0, false},
		{snapshot.Every(0), 0, false},
		{snapshot.Every(1), 0, true},
		{snapshot.Every(100), 99, true},
		{hour, 0, false},
		{snapshot.WhenReplayed(5), 0, false},
		{snapshot.OnEvent(yearClosed), 0, false},
		{snapshot.Or(snapshot.Every(100), hour, snapshot.Every(10)), 9, true},
		{snapshot.Or(hour, snapshot.Every(100)), 99, true},
		{snapshot.Or(hour, snapshot.Never), 0, false},
		{snapshot.And(snapshot.Every(100), snapshot.Every(10)), 99, true},
		{snapshot.And(snapshot.Every(100), hour), 0, false},
		{snapshot.And(snapshot.Every(100), snapshot.Every(0)), 0, false},
		{snapshot.And(snapshot.Or(hour, snapshot.Every(7)), snapshot.Every(3)), 6, true},
		{nested, 0, false},
		{snapshot.Policy{When: mine{}}, 0, false},
	} {
		if events, promised := test.policy.Bound(); events != test.events || promised != test.promised {
			t.Errorf("%d: bound %d, %v, want %d, %v", i, events, promised, test.events, test.promised)
		}
	}
}

// mine is a condition of a program's own.
type mine struct{}

func (mine) Due(f snapshot.Facts) bool { return f.Version%2 == 0 }

func TestConditionsOfAProgramsOwn(t *testing.T) {
	t.Parallel()
	even := snapshot.Policy{When: mine{}}
	for policy, want := range map[*snapshot.Policy][2]bool{&even: {false, true}} {
		or, and := snapshot.Or(*policy, snapshot.Never), snapshot.And(*policy, snapshot.Every(1))
		for i, version := range []eventstore.Version{3, 4} {
			f := snapshot.Facts{Version: version}
			if policy.Due(f) != want[i] || or.Due(f) != want[i] || and.Due(f) != want[i] {
				t.Errorf("at %d: %v, %v, %v", version, policy.Due(f), or.Due(f), and.Due(f))
			}
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	p := snapshot.Every(5).WithDefaults()
	if p.When == nil || p.Codec != eventstore.Msgpack || p.Logger == nil || p.Clock == nil || p.Keep != 2 || p.Queue != 128 {
		t.Errorf("policy %+v", p)
	}
	p.Keep, p.Queue, p.Codec, p.Revision = 7, 3, eventstore.JSON, 4
	if again := snapshot.Or(p, snapshot.Every(9)).WithDefaults(); again.Keep != 7 || again.Queue != 3 || again.Codec != eventstore.JSON || again.Revision != 4 {
		t.Errorf("policy %+v, want the settings of the first", again)
	}
}
