package eventstoretest

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

// testSizes stores what is large. R-PG02: nothing about a large append depends on its size but the time it takes.
func testSizes(t *testing.T, open Open) {
	store := open(t)

	t.Run("event of 1 MB", func(t *testing.T) {
		data := make([]byte, 1<<20)
		random := rand.NewChaCha8([32]byte{1})
		_, _ = random.Read(data) // never fails
		id := stream("large")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, eventstore.EventData{Type: "large.happened", Data: data}))
		if got := readStream(t, store, id, eventstore.Range{})[0]; !bytes.Equal(got.Data, data) {
			t.Errorf("%d bytes came back, and other ones", len(got.Data))
		}
	})

	t.Run("500 events in an append", func(t *testing.T) {
		id := stream("long")
		result := mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("long.happened", 500)...))
		wantVersions(t, result, map[eventstore.StreamID]eventstore.Version{id: 500})
		list := readStream(t, store, id, eventstore.Range{})
		if len(list) != 500 || string(list[499].Data) != "500" {
			t.Errorf("%d events came back", len(list))
		}
	})

	t.Run("longest names", func(t *testing.T) {
		id := eventstore.NewStreamID(strings.Repeat("c", 255), strings.Repeat("i", 256))
		e := event(strings.Repeat("t", 128), "")
		e.Metadata.Tenant = strings.Repeat("t", 255)
		mustAppend(t, store, eventstore.Write{Stream: id, Events: []eventstore.EventData{e}, PartitionKey: strings.Repeat("k", 512)})
		mustAppend(t, store, eventstore.To(id, eventstore.AnyVersion, e))
		if n := len(readStream(t, store, id, eventstore.Range{})); n != 2 {
			t.Errorf("%d events came back", n)
		}
		if n := len(readAll(t, store, eventstore.Position{}, eventstore.Filter{Categories: []string{id.Category}, Types: []string{e.Type}})); n != 2 {
			t.Errorf("the log has %d events", n)
		}
	})

	t.Run("a stream longer than any page", func(t *testing.T) {
		id := stream("pages")
		const n = 2500
		for at := 0; at < n; at += 500 {
			mustAppend(t, store, eventstore.To(id, eventstore.Exactly(eventstore.Version(at)), events("pages.happened", 500)...))
		}
		for _, r := range []eventstore.Range{{}, {From: 2}, {Limit: n - 1}, {From: 3, To: n - 3}} {
			want := selected(n, r)
			got := readStream(t, store, id, r)
			if len(got) != len(want) {
				t.Fatalf("range %+v gave %d events, want %d", r, len(got), len(want))
			}
			for i, e := range got {
				if e.Version != want[i] {
					t.Fatalf("range %+v gave version %d at place %d, want %d", r, e.Version, i, want[i])
				}
			}
		}
		if got := len(readAll(t, store, eventstore.Position{}, eventstore.Filter{Categories: []string{"pages"}})); got != n {
			t.Errorf("the log has %d events, want %d", got, n)
		}
	})
}

// selected returns the versions that a range selects of a stream of n events.
func selected(n int, r eventstore.Range) []eventstore.Version {
	var versions []eventstore.Version
	for v := eventstore.Version(1); v <= eventstore.Version(n); v++ {
		if v >= r.From && (r.To == 0 || v <= r.To) && (r.Limit == 0 || len(versions) < r.Limit) {
			versions = append(versions, v)
		}
	}
	return versions
}
