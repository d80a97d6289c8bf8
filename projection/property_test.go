package projection

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
)

// mixed has everything in it that could depend on where a batch ends: times, documents, rows that go and come back.
type mixed struct {
	Sum    int64
	At     time.Time
	Trail  []int64
	Nested map[string]time.Time
}

func mixedView(name string) View[string, mixed] {
	step := func(s mixed, n int64, at time.Time) mixed {
		at = at.Add(time.Duration(n) * time.Nanosecond) // finer than the table
		if !s.At.IsZero() && at.Sub(s.At) < 0 {
			n = -n
		}
		s.Sum += n + s.At.UnixNano()%1000
		s.At = at
		s.Trail = append(s.Trail, s.Sum)
		if len(s.Trail) > 3 {
			s.Trail = s.Trail[1:]
		}
		if s.Nested == nil {
			s.Nested = map[string]time.Time{}
		}
		s.Nested[fmt.Sprint(n%2)] = at.In(time.FixedZone("", 3600))
		return s
	}
	return View[string, mixed]{
		Name: name, Version: 1, Events: testEvents,
		Folds: []Fold[string, mixed]{
			On(ByStream, func(s mixed, e Event[added]) mixed { return step(s, e.Payload.N, e.RecordedAt) }),
			On(func(Event[added]) string { return "all" }, func(s mixed, e Event[added]) mixed { return step(s, e.Payload.N, e.RecordedAt) }),
			OnEach(func(e Event[listed]) []string { return e.Payload.Keys },
				func(_ string, s mixed, e Event[listed]) mixed { return step(s, int64(e.Version), e.RecordedAt) }),
		},
		Gone: func(s mixed) bool { return s.Sum%7 == 3 },
	}
}

// Rows are the same as those of a fold in memory, for any history and however it is cut into batches.
func TestRowsDoNotDependOnBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		v := mixedView(fmt.Sprint("mixed_", round))
		w.install(v)
		n := rapid.IntRange(1, 6).Draw(rt, "appends")
		var token eventstore.Token
		for range n {
			var events []any
			for range rapid.IntRange(1, 5).Draw(rt, "events") {
				switch rapid.IntRange(0, 2).Draw(rt, "type") {
				case 0:
					events = append(events, added{rapid.Int64Range(-20, 20).Draw(rt, "n")})
				case 1:
					events = append(events, listed{rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "all"}), 0, 4).Draw(rt, "keys")})
				default:
					events = append(events, other{"x"})
				}
			}
			token = w.append(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "stream"), events...)
		}
		stop := w.start(w.runner(Config{BatchSize: rapid.IntRange(1, 9).Draw(rt, "batch")}, v))
		w.wait(token, v)
		stop()
		want, err := v.Replay(w.store.ReadAll(t.Context(), eventstore.Position{}, eventstore.Filter{}))
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, rowsOf(w, v)); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// Replay itself is checked against a fold written by hand.
func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	want := map[string]count{}
	for range 300 {
		id, n := fmt.Sprint(random.IntN(4)), random.Int64N(100)
		w.append(id, added{n}, other{"x"}, removed{1})
		c := want[id]
		want[id] = count{c.Sum + n - 1, c.Events + 2, c.Last + 3}
	}
	got, err := counts("replayed").Replay(w.store.ReadAll(t.Context(), eventstore.Position{}, eventstore.Filter{}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
