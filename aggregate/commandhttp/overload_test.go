package commandhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/internal/testscale"
)

// Ten times as many requests as can be served, for a minute at full size, over real HTTP: memory and goroutines stay
// bounded, what is served is served soon, health is always answered, nothing that was sent away ran, and two seconds
// after the end everything is as it was before.
func TestTenfoldOverload(t *testing.T) {
	const (
		service  = 10 * time.Millisecond
		capacity = 100 // a second, one at a time
		waiting  = 20
		patience = time.Second
	)
	gate, err := admission.New(admission.Config{MinConcurrency: 1, MaxConcurrency: 1, InitialConcurrency: 1, Queue: waiting})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(_ *world, c *commandhttp.Config) { c.Gate = gate })
	var ran atomic.Int64
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		ran.Add(1)
		select { // the work that a command is
		case <-time.After(service):
		case <-ctx.Done():
		}
		return bus.Reply{}, nil
	}
	commandhttp.Command(w.api, "POST /work", commandhttp.Endpoint[anything]{Key: commandhttp.KeyOptional})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: patience}
	defer client.CloseIdleConnections()

	// load offers requests at a rate, whatever becomes of them, and tells how they ended.
	load := func(rate int, d time.Duration) (served []time.Duration, shed, late int64) {
		var mu sync.Mutex
		var shedding, lost atomic.Int64
		var group sync.WaitGroup
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for n, end := 0, time.Now().Add(d); time.Now().Before(end); n++ {
			<-tick.C
			group.Go(func() {
				start := time.Now()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+"/work", strings.NewReader(`{}`))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("X-Tenant", fmt.Sprint("tenant-", n%10))
				response, err := client.Do(r)
				if err != nil {
					lost.Add(1)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				switch response.StatusCode {
				case http.StatusServiceUnavailable, http.StatusTooManyRequests:
					if response.Header.Get("Retry-After") == "" {
						t.Error("sent away without Retry-After")
					}
					shedding.Add(1)
				case http.StatusOK, http.StatusNoContent:
					mu.Lock()
					served = append(served, time.Since(start))
					mu.Unlock()
				default:
					t.Errorf("status %d", response.StatusCode)
				}
			})
		}
		group.Wait()
		return served, shedding.Load(), lost.Load()
	}
	middle := func(d []time.Duration) time.Duration {
		if len(d) == 0 {
			return patience
		}
		slices.Sort(d)
		return d[len(d)/2]
	}

	before, _, _ := load(capacity/5, 2*time.Second)
	runtime.GC()
	var atRest runtime.MemStats
	runtime.ReadMemStats(&atRest)

	// Meanwhile somebody looks after it.
	looking, stop := context.WithCancel(t.Context())
	var look sync.WaitGroup
	var most atomic.Int64 // goroutines
	var heap atomic.Uint64
	look.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-looking.Done():
				return
			case <-tick.C:
			}
			response, err := w.server.Client().Get(w.server.URL + "/healthz")
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("health is answered with %d", response.StatusCode)
			}
			if s := gate.Stats(); s.Waiting() > waiting || s.Running > 1 {
				t.Errorf("%d wait and %d run", s.Waiting(), s.Running)
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heap.Store(max(heap.Load(), m.HeapInuse))
			most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
		}
	})
	length := testscale.Duration(time.Minute)
	ran.Store(0)
	served, shed, late := load(10*capacity, length)
	stop()
	look.Wait()

	done := ran.Load()
	if got := int64(len(served)); got > done || done > got+late {
		t.Errorf("%d ran, %d were served and %d clients gave up: what was sent away must not run", done, got, late)
	}
	if least := int64(float64(capacity) * length.Seconds() / 4); done < least {
		t.Errorf("%d of %d were done in %s", done, int64(float64(capacity)*length.Seconds()), length)
	}
	// Client and server are in this process: for each request that is under way a few goroutines, and at ten times the
	// load no more of them than can be under way in the patience of a client.
	if most.Load() > 4*10*capacity {
		t.Errorf("%d goroutines", most.Load())
	}
	if limit := atRest.HeapInuse + 128<<20; heap.Load() > limit {
		t.Errorf("%d MiB in use", heap.Load()>>20)
	}

	// Two seconds later it is as if nothing had been.
	pause := time.NewTimer(2 * time.Second)
	<-pause.C
	after, shedAfter, lateAfter := load(capacity/5, 2*time.Second)
	if shedAfter+lateAfter > 0 || middle(after) > 3*middle(before)+20*time.Millisecond {
		t.Errorf("two seconds later: median %s (before: %s), %d sent away, %d late", middle(after), middle(before), shedAfter, lateAfter)
	}
	t.Logf("%d served at a median of %s, %d sent away, %d late; at most %d goroutines, %d MiB; median before %s, after %s",
		len(served), middle(served), shed, late, most.Load(), heap.Load()>>20, middle(before), middle(after))
}
