package eventstoretest

import (
	"fmt"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

func testSeveralStreams(t *testing.T, open Open) {
	store := open(t)

	t.Run("positions follow the order given", func(t *testing.T) {
		// The ids are in an order that no engine would take by itself.
		z, a, m := stream("z"), stream("a"), stream("m")
		result := mustAppend(t, store,
			eventstore.To(z, eventstore.NoStream, event("x", "1"), event("x", "2")),
			eventstore.Check(stream("none"), eventstore.NoStream),
			eventstore.To(a, eventstore.NoStream, event("x", "3")),
			eventstore.To(m, eventstore.AnyVersion, event("x", "4"), event("x", "5")))
		got := readAll(t, store, eventstore.Position{}, eventstore.Filter{Categories: []string{"z", "a", "m"}})
		wantPayloads(t, got, "1", "2", "3", "4", "5")
		wantToken(t, store, result, z, a, m)
	})

	t.Run("all claims kinds at once", func(t *testing.T) {
		streams := make([]eventstore.StreamID, 5)
		for i := range streams {
			streams[i] = stream("mixed")
			if i > 0 {
				mustAppend(t, store, eventstore.To(streams[i], eventstore.NoStream, events("mixed.before", i)...))
			}
		}
		result := mustAppend(t, store,
			eventstore.To(streams[4], eventstore.AnyVersion, events("mixed.after", 2)...),
			eventstore.Check(streams[3], eventstore.StreamExists),
			eventstore.To(streams[0], eventstore.NoStream, events("mixed.after", 1)...),
			eventstore.To(streams[2], eventstore.StreamExists, events("mixed.after", 1)...),
			eventstore.To(streams[1], eventstore.Exactly(1), events("mixed.after", 3)...))
		wantVersions(t, result, map[eventstore.StreamID]eventstore.Version{
			streams[0]: 1, streams[1]: 4, streams[2]: 3, streams[3]: 3, streams[4]: 6,
		})
		wantToken(t, store, result, streams[0], streams[1], streams[2], streams[4])
	})

	t.Run("one wrong claim refuses all", func(t *testing.T) {
		for wrong := range 3 {
			t.Run(fmt.Sprint("at ", wrong), func(t *testing.T) {
				writes := make([]eventstore.Write, 3)
				for i := range writes {
					writes[i] = eventstore.To(stream("refused"), eventstore.NoStream, events("refused.happened", 2)...)
				}
				writes[wrong].Expected = eventstore.Exactly(7)
				wantConflict(t, store, writes[wrong].Stream, eventstore.Exactly(7), 0, writes...)
				for _, w := range writes {
					if n := len(readStream(t, store, w.Stream, eventstore.Range{})); n != 0 {
						t.Errorf("stream %q got %d events of a refused append", w.Stream, n)
					}
				}
			})
		}
	})

	t.Run("fifty streams", func(t *testing.T) {
		var writes []eventstore.Write
		want := map[eventstore.StreamID]eventstore.Version{}
		var ids []eventstore.StreamID
		for i := range 50 {
			id := stream("many")
			ids = append(ids, id)
			want[id] = eventstore.Version(i%3 + 1)
			writes = append(writes, eventstore.To(id, eventstore.NoStream, events("many.happened", i%3+1)...))
		}
		result := mustAppend(t, store, writes...)
		wantVersions(t, result, want)
		wantToken(t, store, result, ids...)
	})
}
