package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/testscale"
)

// testLog holds the pages of a log to the definition of [eventstore.Page].
func testLog(t *testing.T, open Open, logOf func(eventstore.Store) Log) {
	store := open(t)
	log := logOf(store)

	t.Run("empty", func(t *testing.T) {
		page, err := log.ReadPage(context.Background(), eventstore.Position{}, eventstore.Filter{}, 10)
		if err != nil || len(page.Events) != 0 || !page.Through.IsZero() {
			t.Errorf("an empty log gave %+v, %v", page, err)
		}
	})

	a, b := stream("ant"), stream("bee")
	for i := range 6 {
		mustAppend(t, store,
			eventstore.To(a, eventstore.AnyVersion, event("x", fmt.Sprint(i, "a")), event("y", fmt.Sprint(i, "b"))),
			eventstore.To(b, eventstore.AnyVersion, event("x", fmt.Sprint(i, "c"))))
	}
	all := readAll(t, store, eventstore.Position{}, eventstore.Filter{})
	end := all[len(all)-1].Position

	t.Run("every page from everywhere", func(t *testing.T) {
		places := []eventstore.Position{{}}
		for _, e := range all {
			places = append(places, e.Position)
		}
		for _, f := range []eventstore.Filter{
			{}, {Types: []string{"x"}}, {Categories: []string{"bee"}}, {Categories: []string{"ant"}, Types: []string{"y"}}, {Types: []string{"none"}},
			{Limit: 1}, // plays no part
		} {
			for _, after := range places {
				for _, limit := range []int{1, 2, 3, 5, 100} {
					onePage(t, log, all, after, f, limit)
				}
			}
		}
	})

	t.Run("paging comes to the end", func(t *testing.T) {
		for _, f := range []eventstore.Filter{{}, {Types: []string{"y"}}, {Types: []string{"none"}}} {
			for _, limit := range []int{1, 2, 5} {
				got, after := []eventstore.RecordedEvent(nil), eventstore.Position{}
				for calls := 0; ; calls++ {
					page, err := log.ReadPage(context.Background(), after, f, limit)
					if err != nil || calls > 100 {
						t.Fatalf("call %d: %v", calls, err)
					}
					if !page.Through.After(after) {
						break
					}
					got, after = append(got, page.Events...), page.Through
				}
				if want := payloads(filtered(all, eventstore.Position{}, eventstore.Filter{Types: f.Types})); !slices.Equal(payloads(got), want) {
					t.Errorf("filter %+v in pages of %d: %q, want %q", f, limit, payloads(got), want)
				}
				if after.Before(end) {
					t.Errorf("filter %+v in pages of %d ends at %s, before the end at %s", f, limit, after, end)
				}
			}
		}
	})

	t.Run("refused", func(t *testing.T) {
		for _, limit := range []int{0, -1} {
			if _, err := log.ReadPage(context.Background(), eventstore.Position{}, eventstore.Filter{}, limit); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("limit %d: %v, want ErrInvalid", limit, err)
			}
		}
		for _, f := range []eventstore.Filter{{Types: []string{"a\x00"}}, {Categories: []string{"\xff"}}} {
			page, err := log.ReadPage(context.Background(), eventstore.Position{}, f, 1)
			if !errors.Is(err, eventstore.ErrInvalid) || len(page.Events) != 0 {
				t.Errorf("filter %+v: %+v, %v; want ErrInvalid", f, page, err)
			}
		}
		beyond := eventstore.PositionAt(end.Ordinal() + 1_000_000)
		if _, err := log.ReadPage(context.Background(), beyond, eventstore.Filter{}, 1); !errors.Is(err, eventstore.ErrHistory) {
			t.Errorf("a position beyond the log: %v, want ErrHistory", err)
		}
		done, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := log.ReadPage(done, eventstore.Position{}, eventstore.Filter{}, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled read: %v", err)
		}
		if err := log.Wait(done, end); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled wait: %v", err)
		}
	})

	t.Run("pages are copies", func(t *testing.T) {
		page, err := log.ReadPage(context.Background(), eventstore.Position{}, eventstore.Filter{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		page.Events[0].Data[0] = 'X'
		if got := readAll(t, store, eventstore.Position{}, eventstore.Filter{Limit: 1})[0]; string(got.Data) != string(all[0].Data) {
			t.Errorf("the log now has %q", got.Data)
		}
	})

	t.Run("waiting", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := log.Wait(ctx, eventstore.Position{}); err != nil {
			t.Errorf("waiting behind the start: %v", err)
		}
		waiting, arrived := make(chan struct{}), make(chan error, 1)
		go func() {
			close(waiting)
			arrived <- nextBeyond(ctx, log, end)
		}()
		<-waiting
		mustAppend(t, store, eventstore.To(a, eventstore.AnyVersion, event("x", "new")))
		if err := <-arrived; err != nil {
			t.Errorf("waiting for an append: %v", err)
		}
	})
}

// onePage reads a page and checks that everything that matches up to Through is in it, and nothing else.
func onePage(t *testing.T, log Log, all []eventstore.RecordedEvent, after eventstore.Position, f eventstore.Filter, limit int) {
	t.Helper()
	page, err := log.ReadPage(context.Background(), after, f, limit)
	if err != nil {
		t.Fatalf("page after %s: %v", after, err)
	}
	if page.Through.Before(after) || len(page.Events) > limit {
		t.Fatalf("page of %d after %s has %d events and goes to %s", limit, after, len(page.Events), page.Through)
	}
	var want []eventstore.RecordedEvent
	for _, e := range filtered(all, after, eventstore.Filter{Categories: f.Categories, Types: f.Types}) {
		if !e.Position.After(page.Through) {
			want = append(want, e)
		}
	}
	if len(want) != len(page.Events) {
		t.Fatalf("page of %d after %s, filter %+v, through %s: %q, want %q", limit, after, f, page.Through, payloads(page.Events), payloads(want))
	}
	for i := range want {
		if err := difference(want[i], page.Events[i]); err != nil {
			t.Fatalf("page of %d after %s: %v", limit, after, err)
		}
	}
}

// nextBeyond waits, as consumers do, until the log goes beyond a position.
func nextBeyond(ctx context.Context, log Log, after eventstore.Position) error {
	for {
		page, err := log.ReadPage(ctx, after, eventstore.Filter{}, 10)
		if err != nil || page.Through.After(after) {
			return err
		}
		if err := log.Wait(ctx, after); err != nil {
			return err
		}
	}
}

// testLogConcurrent follows the log by pages and waits while others write.
func testLogConcurrent(t *testing.T, open Open, logOf func(eventstore.Store) Log) {
	store := open(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	watcher := NewWatcher()
	for _, limit := range []int{1, 7, 1000} {
		watcher.Watch(ctx, fmt.Sprintf("pages of %d", limit), ReadingPages(logOf(store), eventstore.Filter{}, limit))
	}
	watcher.WatchFiltered(ctx, "pages of 2, filtered", ReadingPages(logOf(store), eventstore.Filter{Types: []string{"rare"}}, 2),
		func(e eventstore.RecordedEvent) bool { return e.Type == "rare" })
	for w, o := range together(8, func(w int) (eventstore.AppendResult, error) {
		var result eventstore.AppendResult
		for i := range testscale.N(300) {
			name := "usual"
			if i%10 == 0 {
				name = "rare"
			}
			var err error
			result, err = store.Append(ctx, eventstore.To(eventstore.NewStreamID("log", fmt.Sprint(w%3)), eventstore.AnyVersion, events(name, 1+i%3)...))
			if err != nil {
				return result, err
			}
		}
		return result, nil
	}) {
		if o.err != nil {
			t.Errorf("writer %d: %v", w, o.err)
		}
	}
	finished, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, report := range watcher.Finish(finished, stop, readAll(t, store, eventstore.Position{}, eventstore.Filter{})) {
		t.Log(report)
		if !report.Clean() {
			t.Error(report)
		}
	}
}
