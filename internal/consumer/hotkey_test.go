package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/testscale"
)

// hot is a load of which most is one key: its events fail now and then, and somebody redrives them again and again while
// others come.
type hot struct {
	w       *world
	calm    atomic.Bool // nothing fails any more
	expires bool        // leases run out in the middle of a batch
	still   int         // then one of so many events takes long
	seq     map[string]int
}

func (h *hot) handle(_ context.Context, tx pgx.Tx, e eventstore.RecordedEvent) error {
	if h.calm.Load() {
		return nil
	}
	if h.expires && rand.IntN(h.still) == 0 { // as if the owner stood still
		<-time.After(rand.N(200 * time.Millisecond))
	}
	switch n := rand.IntN(60); {
	case n < 4:
		return fmt.Errorf("transient: %w", errBad)
	case n < 6:
		return errBad
	case n == 6:
		_, err := tx.Exec(context.Background(), "SELECT 1/0")
		return err
	}
	return nil
}

func (h *hot) classify(err error) eventstore.FailureKind {
	if strings.HasPrefix(err.Error(), "transient") {
		return eventstore.Transient
	}
	return eventstore.Permanent
}

// append stores n events more, most of them of the hot key.
func (h *hot) append(n int) (at eventstore.Position) {
	for n > 0 {
		key := "hot"
		if rand.IntN(10) < 3 {
			key = fmt.Sprint("cool", rand.IntN(20))
		}
		var values []string
		for range min(n, 1+rand.IntN(20)) {
			h.seq[key]++
			values = append(values, fmt.Sprint(key, ":", h.seq[key]))
		}
		n -= len(values)
		at = h.w.append(key, values...)
	}
	return at
}

// wrong counts what is out of order or doubled, and what never took effect.
func (h *hot) wrong() (outOfOrder, stranded int) {
	last := map[string]int{}
	for _, v := range h.w.seen() {
		key, number, _ := strings.Cut(v, ":")
		n, _ := strconv.Atoi(number)
		if n != last[key]+1 {
			outOfOrder++
		}
		last[key] = max(last[key], n)
	}
	for key, n := range h.seq {
		stranded += n - last[key]
	}
	return outOfOrder, stranded
}

// replace ends leases that have not run out, again and again, so that somebody else takes over.
func (h *hot) replace(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(rand.N(100 * time.Millisecond)):
			h.w.exec("UPDATE daybook.segments SET expires_at = '-infinity' WHERE owner <> ''")
		}
	}
}

func (h *hot) epoch() int { return ask[int](h.w, "SELECT epoch::int FROM daybook.segments") }

// run applies total events with workers, and returns when nothing is set aside any more, or, unfenced, at some time.
func (h *hot) run(workers, total int, unfenced bool) {
	h.w.handle = h.handle
	var stops []func()
	for range workers {
		worker := h.w.worker(Config{
			BatchSize: 50, Classify: h.classify, RetryBase: 10 * time.Millisecond, RetryCap: 50 * time.Millisecond, Lease: time.Second, unfenced: unfenced,
		})
		stops = append(stops, h.w.run(worker))
	}
	done := make(chan struct{})
	var redriver sync.WaitGroup
	redriver.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
				h.w.plan(0, 0, 0, "state = 'parked'")
			}
		}
	})
	if h.expires {
		redriver.Go(func() { h.replace(done) })
	}
	var at eventstore.Position
	for left := total; left > 0; left -= 100 {
		at = h.append(min(left, 100))
		if unfenced {
			continue
		}
		h.w.eventually("the workers keep up", func() bool { return h.w.floor() >= at.Ordinal()-1000 })
		if h.expires {
			h.w.eventually("another owner takes over", func() bool { return h.epoch() > total/100-left/100 })
		}
	}
	h.w.reaches(at)
	h.calm.Store(true)
	if !unfenced {
		h.w.eventually("all is released", func() bool { return ask[int](h.w, "SELECT count(*)::int FROM daybook.parked") == 0 })
	}
	close(done)
	redriver.Wait()
	for _, stop := range stops {
		stop()
	}
}

// A hot key whose events fail again and again, and are redriven while others come: nothing is out of order, nothing is left
// behind; also when owners are replaced in the middle.
func TestHotKey(t *testing.T) {
	t.Parallel()
	for name, workers := range map[string]int{"one owner": 1, "owners that are replaced": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &hot{w: newWorld(t), seq: map[string]int{}, expires: workers > 1, still: 100}
			h.run(workers, testscale.N(9000), false)
			if outOfOrder, stranded := h.wrong(); outOfOrder != 0 || stranded != 0 {
				t.Errorf("%d out of order, %d stranded", outOfOrder, stranded)
			}
			letters := ask[int](h.w, "SELECT count(*)::int FROM daybook.letters")
			t.Logf("%d letters, %d owners", letters, h.epoch())
			if letters == 0 {
				t.Error("nothing has failed")
			}
		})
	}
}

// The same without the fence goes wrong: this is what the test above can see.
func TestHotKeyWithoutTheFence(t *testing.T) {
	t.Parallel()
	for range 20 {
		h := &hot{w: newWorld(t), seq: map[string]int{}, expires: true, still: 15}
		h.run(2, 600, true)
		outOfOrder, stranded := h.wrong()
		t.Logf("%d out of order, %d stranded", outOfOrder, stranded)
		if outOfOrder > 0 {
			return
		}
	}
	t.Error("owners that were replaced did no harm without the fence")
}
