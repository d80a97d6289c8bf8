package eventstoretest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// Check reads the whole log and reports every invariant that it breaks: positions rise strictly, versions of each
// stream rise from 1 without gaps, all events of a stream have one partition key and its partition, ids are unique,
// times are in UTC with microseconds, and ReadStream gives the same events as ReadAll. Of a log with more than 2,000
// streams it reads the longest half of that number and spreads the rest over all others. Nobody may write meanwhile. It
// assumes that no test appended one id twice on purpose.
func Check(t testing.TB, store eventstore.Store) {
	t.Helper()
	faults := invariants(store)
	const shown = 10
	for i, fault := range faults {
		if i == shown {
			t.Errorf("invariant: … and %d more", len(faults)-shown)
			return
		}
		t.Errorf("invariant: %v", fault)
	}
}

func invariants(store eventstore.Store) []error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	partitions := eventstore.DefaultPartitions
	if p, ok := store.(interface{ Partitions() int }); ok {
		partitions = p.Partitions()
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	byStream := make(map[eventstore.StreamID][]eventstore.RecordedEvent)
	ids := make(map[uuid.UUID]eventstore.Position)
	var last eventstore.Position
	for e, err := range store.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			fault("read the log after %s: %w", last, err)
			return faults
		}
		if !e.Position.After(last) {
			fault("position %s comes after %s", e.Position, last)
		}
		last = e.Position
		if earlier, twice := ids[e.ID]; twice {
			fault("positions %s and %s have the same id %s", earlier, e.Position, e.ID)
		}
		ids[e.ID] = e.Position
		if want := eventstore.PartitionOf(e.PartitionKey, partitions); e.Partition != want {
			fault("position %s: partition %d, but its key %q belongs to %d", e.Position, e.Partition, e.PartitionKey, want)
		}
		if e.RecordedAt.Location() != time.UTC || e.RecordedAt.Nanosecond()%1000 != 0 || e.RecordedAt.IsZero() {
			fault("position %s: time %v is not in UTC with microseconds", e.Position, e.RecordedAt)
		}
		mine := byStream[e.Stream]
		if want := eventstore.Version(len(mine) + 1); e.Version != want {
			fault("stream %q: version %d at position %s, want %d", e.Stream, e.Version, e.Position, want)
		}
		if len(mine) > 0 && mine[0].PartitionKey != e.PartitionKey {
			fault("stream %q: partition key %q became %q", e.Stream, mine[0].PartitionKey, e.PartitionKey)
		}
		byStream[e.Stream] = append(mine, e)
	}
	for _, id := range sampled(byStream) {
		want := byStream[id]
		n := 0
		for e, err := range store.ReadStream(ctx, id, eventstore.Range{}) {
			if err != nil {
				fault("read stream %q: %w", id, err)
				break
			}
			if n < len(want) {
				if err := difference(want[n], e); err != nil {
					fault("stream %q version %d differs from the log: %w", id, n+1, err)
				}
			}
			n++
		}
		if n != len(want) {
			fault("stream %q has %d events, the log has %d of it", id, n, len(want))
		}
	}
	return faults
}

// sampled returns the streams to be read one by one, the longest first.
func sampled(byStream map[eventstore.StreamID][]eventstore.RecordedEvent) []eventstore.StreamID {
	const most = 2_000
	ids := slices.SortedFunc(maps.Keys(byStream), func(a, b eventstore.StreamID) int {
		return cmp.Or(cmp.Compare(len(byStream[b]), len(byStream[a])), cmp.Compare(a.String(), b.String()))
	})
	if len(ids) <= most {
		return ids
	}
	chosen, rest := ids[:most/2:most/2], ids[most/2:]
	for i := range most / 2 {
		chosen = append(chosen, rest[i*len(rest)/(most/2)])
	}
	return chosen
}

// difference says in what two events differ, or nil.
func difference(want, got eventstore.RecordedEvent) error {
	if want.Stream != got.Stream || want.Version != got.Version || want.Position != got.Position {
		return fmt.Errorf("%q version %d at %s, want %q version %d at %s",
			got.Stream, got.Version, got.Position, want.Stream, want.Version, want.Position)
	}
	if want.Partition != got.Partition || want.PartitionKey != got.PartitionKey {
		return fmt.Errorf("partition %d of %q, want %d of %q", got.Partition, got.PartitionKey, want.Partition, want.PartitionKey)
	}
	if !want.RecordedAt.Equal(got.RecordedAt) {
		return fmt.Errorf("recorded at %v, want %v", got.RecordedAt, want.RecordedAt)
	}
	return dataDifference(want.EventData, got.EventData)
}

func dataDifference(want, got eventstore.EventData) error {
	switch {
	case want.ID != got.ID:
		return fmt.Errorf("id %s, want %s", got.ID, want.ID)
	case want.Type != got.Type || want.SchemaVersion != got.SchemaVersion || want.ContentType != got.ContentType:
		return fmt.Errorf("type %q %d %q, want %q %d %q", got.Type, got.SchemaVersion, got.ContentType,
			want.Type, want.SchemaVersion, want.ContentType)
	case want.Flags != got.Flags:
		return fmt.Errorf("flags %b, want %b", got.Flags, want.Flags)
	case !bytes.Equal(want.Data, got.Data):
		return errors.New("other payload")
	}
	a, b := want.Metadata, got.Metadata
	if a.Tenant != b.Tenant || a.CorrelationID != b.CorrelationID || a.CausationID != b.CausationID || a.Actor != b.Actor ||
		!maps.Equal(a.Headers, b.Headers) {
		return fmt.Errorf("metadata %+v, want %+v", b, a)
	}
	return nil
}
