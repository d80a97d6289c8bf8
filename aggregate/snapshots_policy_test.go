package aggregate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
)

// A stream of 32,850 events, written by commands of all sizes: whenever the queue is drained, a load folds fewer events
// than the policy says.
func TestLongStreamsAreReadFromTheirSnapshots(t *testing.T) {
	t.Parallel()
	for _, every := range []int{100, 1000} {
		store, w := memory.New(memory.Config{}), &watcher{}
		open := func() *aggregate.Repository[count, event] { // as a new program would
			return newCounts(store, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(every)), aggregate.WithObserver(w))
		}
		total := 0
		add := func(n int) {
			t.Helper()
			counts := open()
			result := must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(n)))
			if l := w.load(t); l.Events >= every || l.Overshoot != 0 || l.Snapshot != (total >= every) {
				t.Errorf("every %d, at %d: %+v", every, total, l)
			}
			if total += n; result.State.N != total || int(result.Version) != total {
				t.Fatalf("after %d events: %+v", total, result)
			}
			drain(t, counts.Snapshots())
		}
		for _, n := range []int{1, 98, 1, 99, 1, every, every - 1, 1, 2*every + 1} {
			add(n)
		}
		for total < 32_500 {
			add(min(1700, 32_500-total))
		}
		for total < 32_849 {
			add(1)
		}
		add(1)
		if total != 32_850 {
			t.Fatal(total)
		}
		loaded := must[aggregate.Loaded[count]](t)(open().Load(t.Context(), "a"))
		if l := w.load(t); loaded.State.N != total || l.Events >= every || !l.Snapshot {
			t.Errorf("every %d: %+v by %+v", every, loaded, l)
		}
	}
}

func TestOvershootIsObserved(t *testing.T) {
	t.Parallel()
	store, w := memory.New(memory.Config{}), &watcher{}
	must[aggregate.Result[count]](t)(newCounts(store).Handle(t.Context(), "a", up(25))) // a program without snapshots
	for name, test := range map[string]struct {
		policy snapshot.Policy
		want   int
	}{
		"every":   {snapshot.Every(10), 16},
		"enough":  {snapshot.Every(26), 0},
		"or":      {snapshot.Or(snapshot.WhenReplayed(5), snapshot.Every(20)), 6},
		"nothing": {snapshot.WhenReplayed(5), 0},
		"never":   {snapshot.Never, 0},
	} {
		counts := newCounts(store, aggregate.WithSnapshots(store.Snapshots(), test.policy), aggregate.WithObserver(w))
		must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a"))
		if l := w.load(t); l.Events != 25 || l.Overshoot != test.want || l.Snapshot {
			t.Errorf("%s: %+v, want an overshoot of %d", name, l, test.want)
		}
		// Who asks for more events has not met late snapshots.
		must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a", aggregate.FromEvents()))
		if l := w.load(t); l.Overshoot != 0 {
			t.Errorf("%s from events: %+v", name, l)
		}
	}
}

// saved is what the watcher has seen stored.
func saved(t *testing.T, w *watcher) (n int) {
	t.Helper()
	for _, s := range w.snapshots() {
		if s.Err != nil || s.Dropped || s.Bytes == 0 || s.Category != "count" || s.Duration <= 0 {
			t.Errorf("snapshot %+v", s)
		}
		n++
	}
	return n
}

type yearEnd struct{}

func (yearEnd) shelfEvent() {}

var yearEnded = eventstore.TypeOf[yearEnd]("count.year-ended")

// Each policy, as repositories see it: with and without a cache, and in new programs each time.
func TestPoliciesDecideWhatIsTaken(t *testing.T) {
	t.Parallel()
	start := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	catalog := eventstore.NewCatalog(eventstore.TypeOf[counted]("count.counted"), yearEnded)
	type step struct {
		events int
		end    bool
		later  time.Duration
		taken  int
	}
	for name, test := range map[string]struct {
		policy snapshot.Policy
		steps  []step
	}{
		"every": {snapshot.Every(3), []step{{1, false, 0, 0}, {1, false, 0, 0}, {1, false, 0, 1}, {2, false, 0, 0}, {7, false, 0, 1}}},
		"after": {snapshot.After(time.Hour), []step{
			{1, false, 0, 0}, {1, false, 59 * time.Minute, 0}, {1, false, time.Minute, 1},
			{1, false, 59 * time.Minute, 0}, {1, false, time.Minute, 1}, {1, false, 0, 0}, {1, false, 3 * time.Hour, 1}}},
		"when replayed": {snapshot.WhenReplayed(4), []step{{4, false, 0, 0}, {1, false, 0, 1}, {1, false, 0, 0}, {1, false, 0, 0}, {9, false, 0, 0}, {1, false, 0, 1}}},
		"on event":      {snapshot.OnEvent(yearEnded), []step{{9, false, 0, 0}, {0, true, 0, 1}, {2, false, 0, 0}, {1, true, 0, 1}, {1, false, 0, 0}}},
		"or":            {snapshot.Or(snapshot.Every(5), snapshot.OnEvent(yearEnded)), []step{{4, false, 0, 0}, {1, false, 0, 1}, {0, true, 0, 1}, {4, false, 0, 0}, {1, false, 0, 1}}},
		"and":           {snapshot.And(snapshot.Every(2), snapshot.After(time.Hour)), []step{{5, false, 0, 0}, {1, false, time.Hour, 1}, {1, false, time.Hour, 0}, {1, false, 0, 1}}},
		"never":         {snapshot.Never, []step{{1000, false, 0, 0}, {1, true, 9 * time.Hour, 0}}},
	} {
		for _, cacheBytes := range []int{0, 1 << 20} {
			now := start
			clock := func() time.Time { return now }
			store, w := memory.New(memory.Config{Clock: clock}), &watcher{}
			policy := test.policy
			policy.Clock = clock
			open := func() *aggregate.Repository[count, event] {
				return aggregate.NewRepository(store, aggregate.Define("count", func(s count, _ event) count { s.N++; return s }, catalog),
					aggregate.WithSnapshots(store.Snapshots(), policy), aggregate.WithObserver(w), aggregate.WithCache(cacheBytes))
			}
			counts := open()
			for i, step := range test.steps {
				now = now.Add(step.later)
				if cacheBytes == 0 {
					counts = open()
				}
				must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", func(count) (events []event, _ error) {
					for range step.events {
						events = append(events, counted{})
					}
					if step.end {
						events = append(events, yearEnd{})
					}
					return events, nil
				}))
				drain(t, counts.Snapshots())
				// Who keeps states in memory has less to replay.
				if got := saved(t, w); got != step.taken && !(cacheBytes > 0 && name == "when replayed") {
					t.Errorf("%s, cache of %d, step %d: %d taken, want %d", name, cacheBytes, i, got, step.taken)
				}
			}
		}
	}
}

// A long way that was folded once is paid for by the next command, also when the state was cached in between.
func TestWhenReplayedRemembersTheWay(t *testing.T) {
	t.Parallel()
	store, w := memory.New(memory.Config{}), &watcher{}
	must[aggregate.Result[count]](t)(newCounts(store).Handle(t.Context(), "a", up(50)))
	counts := newCounts(store, aggregate.WithSnapshots(store.Snapshots(), snapshot.WhenReplayed(50)), aggregate.WithCache(1<<20), aggregate.WithObserver(w))
	must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a"))
	for i, want := range []int{1, 0, 0} {
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(1)))
		drain(t, counts.Snapshots())
		if got := saved(t, w); got != want {
			t.Errorf("command %d: %d taken, want %d", i, got, want)
		}
	}
}

// When the newest cannot be used, the one before it is, and only then the events.
func TestOlderSnapshotsAreTriedBeforeTheEvents(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		keep   int
		damage []eventstore.Version // of those at 10, 20, 30
		folded int
		text   string
	}{
		{"none", 3, nil, 2, ""},
		{"the newest", 3, []eventstore.Version{30}, 12, "version=30"},
		{"two", 3, []eventstore.Version{30, 20}, 22, "version=30"},
		{"all", 3, []eventstore.Version{30, 20, 10}, 32, "version=30"},
		{"an old one", 3, []eventstore.Version{20}, 2, ""},
		{"two are kept", 2, []eventstore.Version{30}, 12, "version=30"},
		{"both that are kept", 2, []eventstore.Version{30, 20}, 32, "version=30"},
		{"one is kept", 1, []eventstore.Version{30}, 32, "version=30"},
	} {
		for _, damage := range []string{"cut", "panic", "elsewhere"} {
			c := newCounter()
			policy := c.policy(10)
			policy.Keep = test.keep
			for range 3 {
				c.handle(t, policy, 10)
			}
			c.handle(t, policy, 2)
			c.spoil(t, test.keep, damage, test.damage)
			codec := &moodyCodec{Codec: eventstore.Msgpack}
			policy.Codec = codec
			counts := c.repository(policy, 1)
			loaded := must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a"))
			if loaded.State.N != 32 || loaded.Version != 32 || c.folds != test.folded {
				t.Errorf("%s, %s: %+v after %d folds, want %d", test.name, damage, loaded, c.folds, test.folded)
			}
			if lines := c.lines(); test.text == "" && len(lines) > 0 || test.text != "" && (len(lines) != 1 || !strings.Contains(lines[0], test.text)) {
				t.Errorf("%s, %s: log %q, want one line with %q", test.name, damage, lines, test.text)
			}
		}
	}
}

// moodyCodec panics on bytes that say so.
type moodyCodec struct {
	eventstore.Codec
	marshal bool
}

func (c *moodyCodec) Marshal(v any) ([]byte, error) {
	if c.marshal {
		panic("cannot write today")
	}
	return c.Codec.Marshal(v)
}

func (c *moodyCodec) Unmarshal(data []byte, v any) error {
	if string(data) == "panic" {
		panic("cannot read today")
	}
	return c.Codec.Unmarshal(data, v)
}

// spoil damages the snapshots of the stream at the versions.
func (c *counter) spoil(t *testing.T, keep int, damage string, versions []eventstore.Version) {
	t.Helper()
	snapshots, all, before := c.store.Snapshots(), []snapshot.Snapshot{}, eventstore.Version(0)
	for {
		kept, _, err := snapshots.Load(t.Context(), countStream, c.kept(t).Fingerprint, before)
		if err != nil {
			t.Fatal(err)
		}
		if kept.IsZero() {
			break
		}
		all, before = append([]snapshot.Snapshot{kept}, all...), kept.Version
	}
	if len(all) != keep {
		t.Fatalf("%d snapshots are kept, want %d", len(all), keep)
	}
	if err := snapshots.Delete(t.Context(), countStream); err != nil {
		t.Fatal(err)
	}
	for _, kept := range all {
		for _, v := range versions {
			if kept.Version != v {
				continue
			}
			switch damage {
			case "cut":
				kept.Data = kept.Data[:1]
			case "panic":
				kept.Data = []byte("panic")
			case "elsewhere":
				kept.Position = eventstore.PositionAt(1 << 40)
			default:
				t.Fatal(fmt.Errorf("unknown damage %q", damage))
			}
		}
		if err := snapshots.Save(t.Context(), kept, keep); err != nil {
			t.Fatal(err)
		}
	}
}
