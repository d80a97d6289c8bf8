package eventstoretest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

// testPages pages through streams, categories and the log with stops after every page.
func testPages(t *testing.T, open Open) {
	t.Run("three interleaved streams", func(t *testing.T) { testInterleaved(t, open(t)) })

	t.Run("stopped in the middle of an append", func(t *testing.T) { // R-OG08
		store := open(t)
		id := stream("og")
		var list []eventstore.EventData
		for i, name := range []string{"x", "y", "x", "y", "x"} {
			list = append(list, event(name, fmt.Sprint(i+1)))
		}
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, list...))
		wantPayloads(t, paged(t, store, eventstore.Position{}, eventstore.Filter{Types: []string{"x"}, Limit: 2}), "1", "3", "5")
	})
}

// testInterleaved is R-OG10: what is read is written down here, so that engines cannot agree with themselves only.
func testInterleaved(t *testing.T, store eventstore.Store) {
	streams := map[byte]eventstore.StreamID{'a': stream("left"), 'b': stream("right"), 'c': stream("left")}
	const script = "abcabbcaccba" // which stream gets the next event
	for i := range script {
		mustAppend(t, store, eventstore.To(streams[script[i]], eventstore.AnyVersion, event("page.happened", fmt.Sprint(i))))
	}
	wantOf := func(from int, which string) []string {
		var want []string
		for i := from; i < len(script); i++ {
			if slices.Contains([]byte(which), script[i]) {
				want = append(want, fmt.Sprint(i))
			}
		}
		return want
	}
	all := readAll(t, store, eventstore.Position{}, eventstore.Filter{})
	if len(all) != len(script) {
		t.Fatalf("the log has %d events, want %d", len(all), len(script))
	}
	starts := []int{0, len(script) / 2, len(script)}
	for _, size := range []int{1, 2, 5} {
		for _, start := range starts {
			after := eventstore.Position{}
			if start > 0 {
				after = all[start-1].Position
			}
			for name, c := range map[string]struct {
				categories []string
				which      string
			}{"all": {nil, "abc"}, "left": {[]string{"left"}, "ac"}, "right": {[]string{"right"}, "b"}} {
				got := payloads(paged(t, store, after, eventstore.Filter{Categories: c.categories, Limit: size}))
				if want := wantOf(start, c.which); !slices.Equal(got, want) {
					t.Errorf("%s in pages of %d from %d: %q, want %q", name, size, start, got, want)
				}
			}
		}
		for letter, id := range streams {
			whole := wantOf(0, string(letter))
			for _, start := range []int{0, len(whole) / 2, len(whole)} {
				got := payloads(pagedStream(t, store, id, eventstore.Version(start), size))
				if want := whole[start:]; !slices.Equal(got, want) {
					t.Errorf("stream %c in pages of %d from %d: %q, want %q", letter, size, start, got, want)
				}
			}
		}
	}
}

// paged reads the log as a consumer does that stops after every page and keeps only its position.
func paged(t *testing.T, store eventstore.AllReader, after eventstore.Position, f eventstore.Filter) []eventstore.RecordedEvent {
	t.Helper()
	var list []eventstore.RecordedEvent
	for {
		page := readAll(t, store, after, f)
		if len(page) == 0 {
			return list
		}
		if len(page) > f.Limit {
			t.Fatalf("a page of %d has %d events", f.Limit, len(page))
		}
		if list = append(list, page...); len(list) > 1_000 {
			t.Fatal("paging does not come to an end")
		}
		after = page[len(page)-1].Position
	}
}

// pagedStream reads a stream in pages, beginning behind a version.
func pagedStream(
	t *testing.T, store eventstore.StreamReader, id eventstore.StreamID, after eventstore.Version, size int,
) []eventstore.RecordedEvent {
	t.Helper()
	var list []eventstore.RecordedEvent
	for {
		page := readStream(t, store, id, eventstore.Range{From: after + 1, Limit: size})
		if len(page) == 0 {
			return list
		}
		if len(page) > size {
			t.Fatalf("a page of %d has %d events", size, len(page))
		}
		if list = append(list, page...); len(list) > 1_000 {
			t.Fatal("paging does not come to an end")
		}
		after = page[len(page)-1].Version
	}
}
