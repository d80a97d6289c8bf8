package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// places are where an owner can be lost while something is set aside, tried again, drained, and released.
var places = []string{ProbeTaken, ProbeApplied, ProbeCommitted, ProbeParked, ProbeRetried, ProbeDrained, ProbeReleased}

// trouble is a load with everything that can happen to a sequence: a fails at a1 until it is mended, and once more behind it.
func trouble(w *world) (bad *switches, at eventstore.Position) {
	bad = turned("a1", "a4")
	w.failing(bad)
	for i := range 8 {
		w.append("a", fmt.Sprint("a", i))
		at = w.append("b", fmt.Sprint("b", i))
	}
	return bad, at
}

func (w *world) untroubled() {
	w.t.Helper()
	for _, key := range []string{"a", "b"} {
		var want []string
		for i := range 8 {
			want = append(want, fmt.Sprint(key, i))
		}
		got := slices.DeleteFunc(w.seen(), func(v string) bool { return v[:1] != key })
		if diff := cmp.Diff(want, got); diff != "" {
			w.t.Errorf("key %s: %s", key, diff)
		}
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state <> 'applied' OR attempts <> 1"); n != 0 {
		w.t.Errorf("%d letters have not failed once and then been applied", n)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.redrive_items WHERE state NOT IN ('succeeded', 'skipped')"); n != 0 {
		w.t.Errorf("%d items have no good end", n)
	}
}

// mend redrives until nothing is set aside.
func (w *world) mend(bad *switches) {
	w.t.Helper()
	w.eventually("a1 is parked", func() bool { return w.state("a") == "parked" && bad.count("a1") > 0 })
	bad.off("a1")
	w.plan(0, 0, 1, "true")
	w.eventually("a4 is parked", func() bool { return w.state("a") == "parked" && bad.count("a4") > 0 })
	bad.off("a4")
	w.plan(0, 0, 1, "true")
	w.becomes("a", "")
}

// An owner that stands still at any of these places while another takes over does no harm when it goes on.
func TestFrozenAtEveryPlace(t *testing.T) {
	t.Parallel()
	for _, place := range places {
		for _, visit := range []int64{1, 2} {
			t.Run(fmt.Sprint(place, visit), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				bad, at := trouble(w)
				var visits atomic.Int64
				frozen, thaw := make(chan struct{}), make(chan struct{})
				stop := w.run(w.worker(Config{Classify: permanent, BatchSize: 3, Lease: time.Minute, Probe: func(p string) {
					if p == place && visits.Add(1) == visit {
						close(frozen)
						<-thaw
					}
				}}))
				other := func() {
					w.exec("UPDATE daybook.segments SET expires_at = '-infinity' WHERE owner <> ''")
					w.run(w.worker(Config{Classify: permanent, BatchSize: 3, Lease: time.Minute}))
				}
				mended := make(chan struct{})
				go func() {
					defer close(mended)
					w.mend(bad)
				}()
				select {
				case <-frozen:
					other()
					<-mended
				case <-mended: // the place was never visited so often
				}
				close(thaw)
				w.reaches(at)
				stop()
				w.untroubled()
			})
		}
	}
}

// The same with all connections of the worker ended at that place.
func TestTerminatedAtEveryPlace(t *testing.T) {
	t.Parallel()
	for _, place := range places {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			bad, at := trouble(w)
			cfg := w.pool.Config()
			cfg.ConnConfig.RuntimeParams["application_name"] = "victim"
			victim := &world{t: t, pool: newPool(t, cfg), store: w.store, handle: w.handle}
			var visits atomic.Int64
			victim.run(victim.worker(Config{Classify: permanent, BatchSize: 3, Probe: func(p string) {
				if p == place && visits.Add(1) <= 3 {
					terminate(w.pool)
				}
			}}))
			w.mend(bad)
			w.reaches(at)
			w.untroubled()
			if visits.Load() == 0 {
				t.Error("the place was never visited")
			}
		})
	}
}

func terminate(pool *pgxpool.Pool) {
	rows, err := pool.Query(context.Background(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
	    WHERE datname = current_database() AND application_name = 'victim'`)
	if err == nil {
		rows.Close()
	}
}
