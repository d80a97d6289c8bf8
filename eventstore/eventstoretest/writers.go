package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/testscale"
)

// newSeed prints the seed of a test that draws numbers.
func newSeed(t testing.TB) uint64 {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return seed
}

// ledger is what writers were told, to be compared with what is stored.
type ledger struct {
	mu     sync.Mutex
	stored map[uuid.UUID]place // of every event acknowledged
}

type place struct {
	stream  eventstore.StreamID
	version eventstore.Version
}

func (l *ledger) acknowledge(writes []eventstore.Write, result eventstore.AppendResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range writes {
		first := result.Versions[w.Stream] - eventstore.Version(len(w.Events))
		for i, e := range w.Events {
			l.stored[e.ID] = place{w.Stream, first + eventstore.Version(i+1)}
		}
	}
}

// compare reports every event that was acknowledged and is not in the log where it was said to be, and every event of
// the log that nobody was told of.
func (l *ledger) compare(t *testing.T, log []eventstore.RecordedEvent) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(log) != len(l.stored) {
		t.Errorf("%d events are stored, %d were acknowledged", len(log), len(l.stored))
	}
	for _, e := range log {
		if want, known := l.stored[e.ID]; !known || want != (place{e.Stream, e.Version}) {
			t.Errorf("stream %q version %d at %s was acknowledged as %q version %d", e.Stream, e.Version, e.Position, want.stream, want.version)
			return
		}
	}
}

// randomAppend makes an append to some of the streams in random order: written or only read, with any of the claims. It
// follows what the writer last knew of the versions, so that many exact claims hold and many do not.
func randomAppend(r *rand.Rand, streams []eventstore.StreamID, known map[eventstore.StreamID]eventstore.Version) []eventstore.Write {
	var writes []eventstore.Write
	for _, i := range r.Perm(len(streams))[:1+r.IntN(min(4, len(streams)))] {
		id := streams[i]
		claim := eventstore.AnyVersion
		switch r.IntN(4) {
		case 0:
			claim = eventstore.Exactly(known[id])
		case 1:
			if known[id] > 0 {
				claim = eventstore.StreamExists
			}
		}
		n := r.IntN(4) // 0: only read
		list := events("many.happened", n)
		for k := range list {
			list[k].ID = uuid.New()
		}
		writes = append(writes, eventstore.To(id, claim, list...))
	}
	return writes
}

// testManyWriters lets 64 writers append to 8 streams, several at a time and in random order. No deadlock, time-out or
// other error of the engine may reach a caller; conflicts may.
func testManyWriters(t *testing.T, open Open) {
	store := open(t)
	seed := newSeed(t)
	streams := make([]eventstore.StreamID, 8)
	for i := range streams {
		streams[i] = stream("many")
	}
	truth := &ledger{stored: map[uuid.UUID]place{}}
	// Thirty seconds at full size; an engine that is much faster stops at a number that Check can still read.
	most, until := fewer(2_000), time.Now().Add(testscale.Duration(30*time.Second))
	var wg sync.WaitGroup
	var conflicts, successes [64]int
	for w := range 64 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			known := map[eventstore.StreamID]eventstore.Version{}
			for i := 0; i < most && time.Now().Before(until); i++ {
				writes := randomAppend(r, streams, known)
				result, err := store.Append(context.Background(), writes...)
				var conflict *eventstore.ConflictError
				switch {
				case err == nil:
					successes[w]++
					truth.acknowledge(writes, result)
					for id, v := range result.Versions {
						known[id] = v
					}
				case errors.As(err, &conflict):
					conflicts[w]++
					known[conflict.Stream] = conflict.Actual
				default:
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	wg.Wait()
	sum := func(list [64]int) (n int) {
		for _, v := range list {
			n += v
		}
		return n
	}
	if sum(successes) == 0 {
		t.Error("no append succeeded")
	}
	t.Logf("%d appends stored, %d refused by conflicts", sum(successes), sum(conflicts))
	truth.compare(t, readAll(t, store, eventstore.Position{}, eventstore.Filter{}))
}

// testWatched reads the log while others write, from the start and from where readers are, and compares what each
// reader saw with the log afterwards.
func testWatched(t *testing.T, open Open) {
	store := open(t)
	seed := newSeed(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	watcher := NewWatcher()
	watcher.Watch(ctx, "whole", ReadingAll(store, eventstore.Filter{}))
	watcher.Watch(ctx, "small pages", ReadingAll(store, eventstore.Filter{Limit: 3}))
	watcher.WatchFiltered(ctx, "filtered", ReadingAll(store, eventstore.Filter{Types: []string{"watched.even"}, Limit: 7}), func(e eventstore.RecordedEvent) bool {
		return e.Type == "watched.even"
	})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range fewer(200) {
				list := make([]eventstore.EventData, 1+r.IntN(4))
				for k := range list {
					list[k] = event([]string{"watched.even", "watched.odd"}[k%2], fmt.Sprint(i))
				}
				if _, err := store.Append(ctx,
					eventstore.To(stream("watched"), eventstore.NoStream, list[0]),
					eventstore.To(eventstore.NewStreamID("watched", fmt.Sprint(w%4)), eventstore.AnyVersion, list[1:]...)); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	finished, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, report := range watcher.Finish(finished, stop, readAll(t, store, eventstore.Position{}, eventstore.Filter{})) {
		if !report.Clean() {
			t.Error(report)
		}
		t.Log(report)
	}
}
