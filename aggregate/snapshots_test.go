package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
)

type counted struct{ Price int }

func (counted) shelfEvent() {}

var countedCatalog = eventstore.NewCatalog(eventstore.TypeOf[counted]("count.counted"))

type count struct{ N int }

type countAndSum struct{ N, Sum int }

// counter makes repositories of a counter as new programs would, and counts the events that they fold.
type counter struct {
	store *memory.Store
	log   bytes.Buffer
	folds int
	last  *aggregate.SnapshotKeeper
}

func (c *counter) policy(every int) snapshot.Policy {
	return snapshot.Policy{
		When: snapshot.Every(every).When, Logger: slog.New(slog.NewTextHandler(&c.log, nil)),
		Clock: func() time.Time { return time.Unix(1700000000, 0) },
	}
}

func (c *counter) repository(policy snapshot.Policy, factor int) *aggregate.Repository[count, event] {
	c.folds = 0
	evolve := func(s count, _ event) count { c.folds++; s.N += factor; return s }
	repository := aggregate.NewRepository(c.store, aggregate.Define("count", evolve, countedCatalog),
		aggregate.WithSnapshots(c.store.Snapshots(), policy))
	c.last = repository.Snapshots()
	return repository
}

func (c *counter) handle(t *testing.T, policy snapshot.Policy, n int) aggregate.Result[count] {
	t.Helper()
	result := must[aggregate.Result[count]](t)(c.repository(policy, 1).Handle(t.Context(), "a", up(n)))
	drain(t, c.last)
	return result
}

func drain(t testing.TB, k *aggregate.SnapshotKeeper) {
	t.Helper()
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := k.Drain(within); err != nil {
		t.Fatal(err)
	}
}

func up(n int) func(count) ([]event, error) {
	return func(count) (events []event, _ error) {
		for range n {
			events = append(events, counted{Price: 2})
		}
		return events, nil
	}
}

var countStream = eventstore.NewStreamID("count", "a")

func (*counter) fingerprint() string {
	return snapshot.Fingerprint(reflect.TypeFor[count](), eventstore.Msgpack.ContentType(), 0)
}

func (c *counter) kept(t *testing.T) snapshot.Snapshot {
	t.Helper()
	if c.last != nil {
		drain(t, c.last)
	}
	kept, _, err := c.store.Snapshots().Load(t.Context(), countStream, c.fingerprint(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func newCounter() *counter { return &counter{store: memory.New(memory.Config{})} }

// R-SN01
func TestSnapshotAloneGivesTheVersion(t *testing.T) {
	t.Parallel()
	c := newCounter()
	c.handle(t, c.policy(2), 2)
	kept := c.kept(t)
	if kept.Version != 2 || kept.TakenAt != time.Unix(1700000000, 0).UTC() || kept.ContentType != "application/msgpack" {
		t.Fatalf("snapshot %+v, want one at version 2", kept)
	}
	shelves := c.repository(c.policy(2), 1)
	if loaded := must[aggregate.Loaded[count]](t)(shelves.Load(t.Context(), "a")); loaded.Version != 2 || loaded.State.N != 2 || c.folds != 0 {
		t.Fatalf("loaded %+v after %d folds", loaded, c.folds)
	}
	if result := c.handle(t, c.policy(2), 1); result.Version != 3 || result.Attempts != 1 || result.State.N != 3 {
		t.Fatalf("next command: %+v, want version 3 without a conflict", result)
	}
}

// R-SN02
func TestSnapshotsAreUsed(t *testing.T) {
	t.Parallel()
	c := newCounter()
	for range 25 {
		c.handle(t, c.policy(100), 10)
	}
	loaded := must[aggregate.Loaded[count]](t)(c.repository(c.policy(100), 1).Load(t.Context(), "a"))
	if loaded.Version != 250 || loaded.State.N != 250 || c.folds > 50 {
		t.Fatalf("loaded %+v after folding %d events, want at most 50", loaded, c.folds)
	}
	all := must[aggregate.Loaded[count]](t)(c.repository(c.policy(100), 1).Load(t.Context(), "a", aggregate.FromEvents()))
	if all != loaded || c.folds != 250 {
		t.Fatalf("a full replay gives %+v after %d folds", all, c.folds)
	}
}

// R-SN03
func TestSnapshotsOfOtherCodeAreIgnored(t *testing.T) {
	t.Parallel()
	c := newCounter()
	c.handle(t, c.policy(2), 4)
	summed := aggregate.Define("count", func(s countAndSum, e event) countAndSum {
		s.N++
		s.Sum += e.(counted).Price
		return s
	}, countedCatalog)
	repository := aggregate.NewRepository(c.store, summed, aggregate.WithSnapshots(c.store.Snapshots(), c.policy(2)))
	if loaded := must[aggregate.Loaded[countAndSum]](t)(repository.Load(t.Context(), "a")); loaded.State != (countAndSum{4, 8}) {
		t.Errorf("another shape: %+v", loaded)
	}
	// Evolve now counts in tens, and its author raised the revision.
	policy := c.policy(2)
	policy.Revision = 1
	if loaded := must[aggregate.Loaded[count]](t)(c.repository(policy, 10).Load(t.Context(), "a")); loaded.State.N != 40 {
		t.Errorf("another revision: %+v", loaded)
	}
	if c.log.Len() != 0 {
		t.Errorf("warnings for what is normal: %s", &c.log)
	}
}

// R-SN04
func TestSnapshotVersionIsThatOfItsLastEvent(t *testing.T) {
	t.Parallel()
	c := newCounter()
	total := 0
	for _, step := range []struct{ events, snapshot int }{{1, 0}, {2, 3}, {5, 8}, {1, 8}, {1, 8}, {1, 11}, {7, 18}} {
		c.handle(t, c.policy(3), step.events)
		total += step.events
		loaded := must[aggregate.Loaded[count]](t)(c.repository(c.policy(3), 1).Load(t.Context(), "a"))
		if loaded.State.N != total || int(loaded.Version) != total || c.folds >= 3 {
			t.Errorf("after %d events: %+v, %d folds", total, loaded, c.folds)
		}
		if kept := c.kept(t); int(kept.Version) != step.snapshot {
			t.Errorf("after %d events: snapshot at %d, want %d", total, kept.Version, step.snapshot)
		}
	}
}

type moody struct{ Bad bool }

func (m moody) MarshalText() ([]byte, error) {
	if m.Bad {
		return nil, errors.New("not today")
	}
	return []byte("ok"), nil
}

func (m *moody) UnmarshalText([]byte) error { return nil }

type moodyState struct {
	N     int
	Inner struct{ Mood moody }
}

// R-SN05
func TestSnapshotThatCannotBeTakenFailsNothing(t *testing.T) {
	t.Parallel()
	c, w := newCounter(), &watcher{}
	typ := aggregate.Define("count", func(s moodyState, _ event) moodyState { s.N++; s.Inner.Mood.Bad = true; return s }, countedCatalog)
	repository := aggregate.NewRepository(c.store, typ, aggregate.WithSnapshots(c.store.Snapshots(), c.policy(1)), aggregate.WithObserver(w))
	result, err := repository.Handle(t.Context(), "a", func(moodyState) ([]event, error) { return []event{counted{}}, nil })
	if err != nil || result.Version != 1 {
		t.Fatalf("result %+v, %v", result, err)
	}
	for _, want := range []string{"level=WARN", "aggregate=count-a", "version=1", "Inner.Mood", "not today"} {
		if !strings.Contains(c.log.String(), want) {
			t.Errorf("log %q does not say %q", &c.log, want)
		}
	}
	if seen := w.snapshots(); len(seen) != 1 || seen[0].Err == nil || seen[0].Dropped {
		t.Errorf("observed %+v", seen)
	}
	if loaded := must[aggregate.Loaded[moodyState]](t)(repository.Load(t.Context(), "a")); loaded.State.N != 1 {
		t.Errorf("loaded %+v", loaded)
	}
}

func TestUnusableSnapshotsCostAReplayAndAreReplaced(t *testing.T) {
	t.Parallel()
	lie, err := eventstore.Msgpack.Marshal(count{N: 99})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		damage func(s *snapshot.Snapshot)
		text   string
	}{
		{"newer than the stream", func(s *snapshot.Snapshot) { s.Version, s.Data = 50, lie }, "newer than the stream"},
		{"of another history", func(s *snapshot.Snapshot) { s.Position, s.Data = eventstore.PositionAt(1<<40), lie }, "position"},
		{"cut off", func(s *snapshot.Snapshot) { s.Data = s.Data[:1] }, "decode"},
	} {
		c := newCounter()
		c.handle(t, c.policy(3), 3)
		kept := c.kept(t)
		test.damage(&kept)
		if err := errors.Join(c.store.Snapshots().Delete(t.Context(), countStream), c.store.Snapshots().Save(t.Context(), kept, 1)); err != nil {
			t.Fatal(err)
		}
		if loaded := must[aggregate.Loaded[count]](t)(c.repository(c.policy(3), 1).Load(t.Context(), "a")); loaded.State.N != 3 || loaded.Version != 3 {
			t.Errorf("%s: %+v", test.name, loaded)
		}
		if log := c.log.String(); !strings.Contains(log, test.text) || !strings.Contains(log, "aggregate=count-a") {
			t.Errorf("%s: log %q does not say %q", test.name, log, test.text)
		}
		if result := c.handle(t, c.policy(3), 1); result.State.N != 4 {
			t.Errorf("%s: command %+v", test.name, result)
		}
		if kept := c.kept(t); kept.Version != 4 {
			t.Errorf("%s: the snapshot is at %d, want it replaced by one at 4", test.name, kept.Version)
		}
	}
}

func TestSnapshotsAreTakenByTransactions(t *testing.T) {
	t.Parallel()
	c := newCounter()
	counters := c.repository(c.policy(2), 1)
	_, err := aggregate.Transact(t.Context(), c.store, func(w *aggregate.Work) error {
		return errors.Join(counters.In(w, "b").Decide(up(1)), counters.In(w, "a").Decide(up(3)), counters.In(w, "c").Decide(up(1)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if kept := c.kept(t); kept.Version != 3 {
		t.Errorf("snapshot at %d, want 3", kept.Version)
	}
	if loaded := must[aggregate.Loaded[count]](t)(c.repository(c.policy(2), 1).Load(t.Context(), "a")); loaded.State.N != 3 || c.folds != 0 {
		t.Errorf("loaded %+v after %d folds", loaded, c.folds)
	}
}

func TestNeverUsesWhatOthersTook(t *testing.T) {
	t.Parallel()
	c := newCounter()
	c.handle(t, c.policy(2), 4)
	result := must[aggregate.Result[count]](t)(c.repository(snapshot.Never, 1).Handle(t.Context(), "a", up(5)))
	if result.State.N != 9 || c.folds != 5 {
		t.Errorf("result %+v after %d folds, want only its own events folded", result, c.folds)
	}
	if kept := c.kept(t); kept.Version != 4 {
		t.Errorf("snapshot at %d, want the old one at 4", kept.Version)
	}
}

type hidden struct {
	Shown int
	inner struct{ secret int }
}

func TestStatesThatCannotBeKeptAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	for name, make := range map[string]func(){
		"inner": func() {
			typ := aggregate.Define("count", func(s hidden, _ event) hidden { s.inner.secret++; return s }, countedCatalog)
			aggregate.NewRepository(store, typ, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(1)))
		},
		"[].inner": func() {
			typ := aggregate.Define("count", func(s []hidden, _ event) []hidden { return s }, countedCatalog)
			aggregate.NewRepository(store, typ, aggregate.WithSnapshots(store.Snapshots(), snapshot.Policy{Codec: eventstore.JSON}))
		},
	} {
		text := panicOf(make)
		for _, want := range []string{`aggregate: new repository "count"`, "field ", name, "hidden"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: panic %q does not say %q", name, text, want)
			}
		}
	}
	// Without snapshots nothing is stored, so anything may be a state.
	typ := aggregate.Define("count", func(s hidden, _ event) hidden { s.inner.secret++; return s }, countedCatalog)
	aggregate.NewRepository(store, typ)
}
