package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

// Whatever operators decide while events come, fail, and are taken over by another owner: each event of a key takes effect
// once and in order, unless it stays discarded, and nothing is left behind.
func TestOperatorsAgainstOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	people, err := deadletter.New(w.pool, deadletter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var mended atomic.Bool
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		if !mended.Load() && rand.IntN(4) == 0 {
			return errBad
		}
		return nil
	}
	cfg := Config{Lease: time.Second, BatchSize: 7, Attempts: 2, RetryBase: time.Millisecond, RetryCap: 10 * time.Millisecond, Classify: func(error) eventstore.FailureKind {
		return eventstore.FailureKind(rand.IntN(2)) // transient or permanent
	}}
	w.run(w.worker(cfg))
	w.run(w.worker(cfg))
	ctx, by := context.Background(), deadletter.Options{Actor: "test", Reason: "chance"}
	var done [3]atomic.Int64
	end := make(chan struct{})
	var operators sync.WaitGroup
	letterOf := func(open bool) (id uuid.UUID) {
		state := "state = 'discarded'"
		if open {
			state = "state IN ('retrying', 'parked')"
		}
		_ = w.pool.QueryRow(ctx, "SELECT letter FROM daybook.letters WHERE "+state+" ORDER BY closed_at DESC, random() LIMIT 1").Scan(&id)
		return id
	}
	for range 2 {
		operators.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				var err error
				what := rand.IntN(3)
				switch what {
				case 0:
					_, err = people.Discard(ctx, deadletter.One(letterOf(true)), by)
				case 1:
					err = people.Undo(ctx, letterOf(false), by)
				case 2:
					_, err = people.Redrive(ctx, deadletter.One(letterOf(true)), by)
				}
				switch {
				case err == nil:
					done[what].Add(1)
				case !errors.Is(err, deadletter.ErrRefused) && !errors.Is(err, deadletter.ErrNotFound) && !errors.Is(err, eventstore.ErrInvalid):
					t.Error(err)
					return
				}
			}
		})
	}
	n, keys := 0, map[string][]int{}
	for i := range max(testscale.N(400), 100) {
		key := fmt.Sprint("k", rand.IntN(6))
		for range 1 + rand.IntN(3) {
			n++
			keys["s-"+key] = append(keys["s-"+key], n)
			w.append(key, strconv.Itoa(n))
		}
		if i%20 == 0 {
			w.exec("UPDATE daybook.segments SET expires_at = '-infinity', owner = '' WHERE consumer = $1", testConsumer)
		}
	}
	w.reaches(w.append("last", "0"))
	close(end)
	operators.Wait()
	mended.Store(true)
	w.eventually("nothing is set aside", func() bool {
		if id := letterOf(true); id != uuid.Nil {
			_, _ = people.Redrive(ctx, deadletter.One(id), by)
		}
		return ask[int](w, "SELECT count(*)::int FROM daybook.parked") == 0
	})
	if open := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE closed_at IS NULL"); open != 0 {
		t.Errorf("%d letters are open, and nothing is set aside", open)
	}
	t.Logf("discarded %d, undone %d, redriven %d; %d letters", done[0].Load(), done[1].Load(), done[2].Load(), ask[int](w, "SELECT count(*)::int FROM daybook.letters"))
	for key, want := range keys {
		discarded := map[string]bool{}
		rows, _ := w.pool.Query(ctx, "SELECT convert_from(data, 'UTF8') FROM daybook.letters WHERE sequence = $1 AND state = 'discarded'", key)
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range texts {
			discarded[v] = true
		}
		rows, _ = w.pool.Query(ctx, "SELECT value FROM seen WHERE key = $1 ORDER BY n", key)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, v := range want {
			if v := strconv.Itoa(v); !discarded[v] {
				all = append(all, v)
			}
		}
		if fmt.Sprint(all) != fmt.Sprint(got) {
			t.Errorf("%s:\nwant %v\n got %v", key, all, got)
		}
	}
}
