package eventstoretest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

func testAppend(t *testing.T, open Open) {
	store := open(t)

	t.Run("nothing", func(t *testing.T) {
		result := mustAppend(t, store)
		if len(result.Versions) != 0 || !result.Token.IsZero() || !result.RecordedAt.IsZero() || result.Repeated {
			t.Errorf("an append of nothing gave %+v", result)
		}
	})

	t.Run("one event with defaults", func(t *testing.T) {
		id := stream("plain")
		result := mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("plain.happened", "x")))
		got := readStream(t, store, id, eventstore.Range{})
		if len(got) != 1 {
			t.Fatalf("%d events were stored", len(got))
		}
		e := got[0]
		if e.Stream != id || e.Version != 1 || e.Position.IsZero() || e.PartitionKey != id.String() {
			t.Errorf("place: %+v", e)
		}
		if e.Type != "plain.happened" || string(e.Data) != "x" || e.SchemaVersion != 1 || e.ContentType != "application/octet-stream" ||
			e.Flags != 0 || e.Metadata.Headers != nil {
			t.Errorf("content: %+v", e)
		}
		if e.ID.Version() != 7 {
			t.Errorf("id %s is not of version 7", e.ID)
		}
		wantVersions(t, result, map[eventstore.StreamID]eventstore.Version{id: 1})
	})

	t.Run("everything set comes back", func(t *testing.T) {
		id := stream("full")
		given := eventstore.EventData{
			ID: uuid.New(), Type: "full.happened", SchemaVersion: 3, ContentType: "application/json", Data: []byte("{}\x00\xff"), Flags: 1 << 30,
			Metadata: eventstore.Metadata{
				Tenant: "t", CorrelationID: "co", CausationID: "ca", Actor: "ac",
				Headers: map[string]string{eventstore.HeaderTraceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "": "empty name", "empty": ""},
			},
		}
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, given))
		if err := dataDifference(given, readStream(t, store, id, eventstore.Range{})[0].EventData); err != nil {
			t.Error(err)
		}
	})

	t.Run("unknown and negative flags are kept", func(t *testing.T) {
		id := stream("flags")
		e := event("flags.set", "")
		e.Flags = -1
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, e))
		if got := readStream(t, store, id, eventstore.Range{})[0]; got.Flags != -1 || len(got.Data) != 0 {
			t.Errorf("flags %d, payload %q", got.Flags, got.Data)
		}
	})

	t.Run("an append of several keeps their order", func(t *testing.T) {
		id := stream("several")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("several.happened", 3)...))
		mustAppend(t, store, eventstore.To(id, eventstore.Exactly(3), events("several.happened", 2)...))
		wantPayloads(t, readStream(t, store, id, eventstore.Range{}), "1", "2", "3", "1", "2")
	})

	t.Run("result equals what is loaded", func(t *testing.T) { // R-PG05
		before := time.Now().Add(-time.Hour)
		a, b := stream("times"), stream("times")
		result := mustAppend(t, store,
			eventstore.To(a, eventstore.NoStream, events("times.happened", 2)...), eventstore.To(b, eventstore.NoStream, event("times.happened", "3")))
		if result.RecordedAt.Location() != time.UTC || result.RecordedAt.Before(before) {
			t.Errorf("recorded at %v", result.RecordedAt)
		}
		for _, e := range append(readStream(t, store, a, eventstore.Range{}), readStream(t, store, b, eventstore.Range{})...) {
			if !e.RecordedAt.Equal(result.RecordedAt) {
				t.Errorf("the result says %v, %q says %v", result.RecordedAt, e.Stream, e.RecordedAt)
			}
		}
		wantToken(t, store, result, a, b)
	})

	t.Run("partition key", func(t *testing.T) {
		a, b, key := stream("keyed"), stream("keyed"), "order-"+uuid.NewString()
		result := mustAppend(t, store,
			eventstore.Write{Stream: a, Events: events("keyed.happened", 1), PartitionKey: key},
			eventstore.Write{Stream: b, Events: events("keyed.happened", 1), PartitionKey: key})
		mustAppend(t, store, eventstore.Write{Stream: a, Expected: eventstore.Exactly(1), Events: events("keyed.happened", 1), PartitionKey: "other"})
		mustAppend(t, store, eventstore.To(b, eventstore.AnyVersion, events("keyed.happened", 1)...))
		for _, e := range append(readStream(t, store, a, eventstore.Range{}), readStream(t, store, b, eventstore.Range{})...) {
			if e.PartitionKey != key {
				t.Errorf("%q version %d has partition key %q: the first event fixes it", e.Stream, e.Version, e.PartitionKey)
			}
		}
		if n := len(result.Token.Marks()); n != 1 {
			t.Errorf("two streams of one key gave %d marks", n)
		}
	})

	t.Run("a check does not fix the partition key", func(t *testing.T) {
		id := stream("checked")
		if _, err := store.Append(context.Background(), eventstore.Write{Stream: id, Expected: eventstore.NoStream, PartitionKey: "first"}); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, store, eventstore.Write{Stream: id, Events: events("checked.happened", 1), PartitionKey: "second"})
		if got := readStream(t, store, id, eventstore.Range{})[0].PartitionKey; got != "second" {
			t.Errorf("partition key %q", got)
		}
	})

	t.Run("two appends one after the other", func(t *testing.T) { // R-AC08: reading binds nothing
		id := stream("next")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("next.happened", "1")))
		readStream(t, store, id, eventstore.Range{})
		mustAppend(t, store, eventstore.To(id, eventstore.AnyVersion, event("next.happened", "2")))
		mustAppend(t, store, eventstore.To(stream("next"), eventstore.NoStream, event("next.happened", "unrelated")))
	})
}

func wantVersions(t *testing.T, result eventstore.AppendResult, want map[eventstore.StreamID]eventstore.Version) {
	t.Helper()
	if len(result.Versions) != len(want) {
		t.Errorf("versions %v, want %v", result.Versions, want)
	}
	for id, v := range want {
		if got, ok := result.Versions[id]; !ok || got != v {
			t.Errorf("version of %q is %d, want %d", id, got, v)
		}
	}
}

func wantPayloads(t *testing.T, list []eventstore.RecordedEvent, want ...string) {
	t.Helper()
	got := payloads(list)
	if len(got) != len(want) {
		t.Fatalf("payloads %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("payloads %q, want %q", got, want)
		}
	}
}

// wantToken checks that a result's token names exactly the partitions of the streams and how far each was written.
func wantToken(t *testing.T, store eventstore.Store, result eventstore.AppendResult, streams ...eventstore.StreamID) {
	t.Helper()
	var marks []eventstore.Mark
	for _, id := range streams {
		list := readStream(t, store, id, eventstore.Range{To: result.Versions[id]})
		last := list[len(list)-1]
		marks = append(marks, eventstore.Mark{
			Partition: last.Partition, Position: last.Position, Streams: []uint32{eventstore.StreamHash(id)},
		})
	}
	want := eventstore.MakeToken(result.Token.Epoch(), marks...)
	if result.Token.String() != want.String() {
		t.Errorf("token has marks %v, want %v", result.Token.Marks(), want.Marks())
	}
	if e, ok := store.(interface{ Epoch() uuid.UUID }); ok && e.Epoch() != result.Token.Epoch() {
		t.Errorf("token of epoch %s, store of %s", result.Token.Epoch(), e.Epoch())
	}
}
