package projection

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/testscale"
)

// TestVisibleSoon measures command to visible on an idle store against the round trip of SELECT 1 in the same run. The
// figure itself is part of the benchmarks; here the bound is wide, because other tests run at the same time.
func TestVisibleSoon(t *testing.T) {
	v := counts("soon")
	w := newWorld(t, v)
	w.start(w.runner(Config{}, v))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	running, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.store.Run(running) }()
	defer func() { stop(); <-ended }()
	rounds := max(testscale.N(200), 50)
	var visible, trip, appended []time.Duration
	for range rounds {
		began := time.Now()
		if _, err := w.pool.Exec(ctx, "SELECT 1 WHERE $1", true); err != nil {
			t.Fatal(err)
		}
		trip = append(trip, time.Since(began))
		began = time.Now()
		token := w.append("a", added{1})
		appended = append(appended, time.Since(began))
		if _, err := v.Get(ctx, w.pool, "a", AtLeast(token)); err != nil {
			t.Fatal(err)
		}
		visible = append(visible, time.Since(began))
	}
	m, one, app := middle(visible), middle(trip), middle(appended)
	t.Logf("visible %v, append %v, SELECT 1 %v: %.1f round trips", m, app, one, float64(m)/float64(one))
	if m > 500*time.Millisecond {
		t.Errorf("median %v from command to visible", m)
	}
}

func middle(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
