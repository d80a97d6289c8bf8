package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// places are where an owner can be lost while something is set aside, tried again, drained, and released.
var places = []string{ProbeTaken, ProbeApplied, ProbeCommitted, ProbeParked, ProbeRetried, ProbeDrained, ProbeReleased}

// trouble is a load with everything that can happen to a sequence: one of its two keys fails at an event until it is mended,
// and once more behind it. A world has one after the other.
type trouble struct {
	*world
	bad          *switches
	a, b         string
	first, again string // what fails
	at           eventstore.Position
}

// troubles are those of a world, one for each place.
func troubles(w *world) (all []*trouble) {
	bad := turned()
	for i := range places {
		tr := &trouble{world: w, bad: bad, a: fmt.Sprint("a", i), b: fmt.Sprint("b", i)}
		tr.first, tr.again = tr.value(tr.a, 1), tr.value(tr.a, 4)
		bad.on[tr.first], bad.on[tr.again] = true, true
		all = append(all, tr)
	}
	w.failing(bad)
	return all
}

func (*trouble) value(key string, i int) string { return fmt.Sprint(key, ".", i) }

// comes appends the load.
func (tr *trouble) comes() {
	tr.t.Helper()
	for i := range 8 {
		tr.append(tr.a, tr.value(tr.a, i))
		tr.at = tr.append(tr.b, tr.value(tr.b, i))
	}
}

// isOver waits for the end, and checks it.
func (tr *trouble) isOver(place string) {
	tr.t.Helper()
	tr.reaches(tr.at)
	for _, key := range []string{tr.a, tr.b} {
		var want []string
		for i := range 8 {
			want = append(want, tr.value(key, i))
		}
		got := slices.DeleteFunc(tr.seen(), func(v string) bool { return !strings.HasPrefix(v, key+".") })
		if diff := cmp.Diff(want, got); diff != "" {
			tr.t.Errorf("%s, key %s: %s", place, key, diff)
		}
	}
	if n := ask[int](tr.world, "SELECT count(*)::int FROM daybook.letters WHERE state <> 'applied' OR attempts <> 1"); n != 0 {
		tr.t.Errorf("%s: %d letters have not failed once and then been applied", place, n)
	}
	if n := ask[int](tr.world, "SELECT count(*)::int FROM daybook.redrive_items WHERE state NOT IN ('succeeded', 'skipped')"); n != 0 {
		tr.t.Errorf("%s: %d items have no good end", place, n)
	}
}

// mend redrives until nothing is set aside.
func (tr *trouble) mend() {
	tr.t.Helper()
	for _, v := range []string{tr.first, tr.again} {
		tr.eventually(v+" is parked", func() bool { return tr.state(tr.a) == "parked" && tr.bad.count(v) > 0 })
		tr.bad.off(v)
		tr.plan(0, 0, 1, "true")
	}
	tr.becomes(tr.a, "")
}

// An owner that stands still at any of these places while another takes over does no harm when it goes on.
func TestFrozenAtEveryPlace(t *testing.T) {
	t.Parallel()
	for _, visit := range []int64{1, 2} {
		t.Run(fmt.Sprint("visit ", visit), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for i, tr := range troubles(w) {
				place := places[i]
				t.Log(place)
				tr.comes()
				var visits atomic.Int64
				frozen, thaw := make(chan struct{}), make(chan struct{})
				stop := w.run(w.worker(Config{Classify: permanent, BatchSize: 3, Lease: time.Minute, Probe: func(p string) {
					if p == place && visits.Add(1) == visit {
						close(frozen)
						<-thaw
					}
				}}))
				stopOther := func() {}
				mended := make(chan struct{})
				go func() {
					defer close(mended)
					tr.mend()
				}()
				select {
				case <-frozen:
					w.exec("UPDATE daybook.segments SET expires_at = '-infinity' WHERE owner <> ''")
					stopOther = w.run(w.worker(Config{Classify: permanent, BatchSize: 3, Lease: time.Minute}))
					<-mended
				case <-mended: // the place was never visited so often
				}
				close(thaw)
				w.reaches(tr.at)
				stop()
				tr.isOver(place)
				stopOther()
			}
		})
	}
}

// The same with all connections of the worker ended at that place.
func TestTerminatedAtEveryPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := troubles(w)
	cfg := w.pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = "victim"
	victim := &world{t: t, pool: newPool(t, cfg), store: w.store, handle: w.handle}
	for i, tr := range all {
		place := places[i]
		t.Log(place)
		tr.comes()
		var visits atomic.Int64
		stop := victim.run(victim.worker(Config{Classify: permanent, BatchSize: 3, Probe: func(p string) {
			if p == place && visits.Add(1) <= 3 {
				terminate(w.pool)
			}
		}}))
		tr.mend()
		tr.isOver(place)
		stop()
		if visits.Load() == 0 {
			t.Errorf("%s was never visited", place)
		}
	}
}

func terminate(pool *pgxpool.Pool) {
	rows, err := pool.Query(context.Background(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
	    WHERE datname = current_database() AND application_name = 'victim'`)
	if err == nil {
		rows.Close()
	}
}
