package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/snapshot"
)

// loadSnapshot returns the version of the snapshot, 0 for none, and the versions of the events that came with it.
func loadSnapshot(t testing.TB, s *postgres.Snapshots, id eventstore.StreamID, fingerprint string) (snapshot.Snapshot, []eventstore.Version) {
	t.Helper()
	snap, list, err := s.Load(t.Context(), id, fingerprint, 0)
	if err != nil {
		t.Fatal(err)
	}
	var versions []eventstore.Version
	for e, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, e.Version)
	}
	return snap, versions
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	trips := &roundTrips{}
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) { c.ConnConfig.Tracer = trips }))
	store := openStore(t, pool, postgres.Config{})
	snapshots := store.Snapshots()
	id := newStream("s")
	if snap, versions := loadSnapshot(t, snapshots, id, "f"); !snap.IsZero() || len(versions) != 0 {
		t.Errorf("of nothing: %+v and %v", snap, versions)
	}
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, manyEvents(10)...))
	list := streamEvents(t, store, id)
	at := func(v int) snapshot.Snapshot {
		return snapshot.Snapshot{Stream: id, Fingerprint: "f", Version: eventstore.Version(v), Position: list[v-1].Position,
			ContentType: "c", Data: fmt.Append(nil, v), TakenAt: time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC)}
	}
	save := func(s snapshot.Snapshot) {
		t.Helper()
		if err := snapshots.Save(t.Context(), s, 2); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, fingerprint string, version, events int) {
		t.Helper()
		var snap snapshot.Snapshot
		var versions []eventstore.Version
		n := trips.during(func() { snap, versions = loadSnapshot(t, snapshots, id, fingerprint) })
		first := max(version, 1)
		if snap.Version != eventstore.Version(version) || len(versions) != events || events > 0 && versions[0] != eventstore.Version(first) {
			t.Errorf("%s: snapshot at %d with events %v, want %d and %d events", what, snap.Version, versions, version, events)
		}
		if n != 1 {
			t.Errorf("%s: %d round trips", what, n)
		}
	}
	check("no snapshot", "f", 0, 10)
	save(at(4))
	check("at 4", "f", 4, 7)
	save(at(8))
	save(at(6)) // a racing save that comes late
	check("at 8", "f", 8, 3)
	check("another fingerprint", "g", 0, 10)
	if snap, _ := loadSnapshot(t, snapshots, id, "f"); string(snap.Data) != "8" || snap.ContentType != "c" || snap.Position != list[7].Position ||
		!snap.TakenAt.Equal(at(8).TakenAt) || snap.TakenAt.Location() != time.UTC || snap.Stream != id || snap.Fingerprint != "f" {
		t.Errorf("loaded %+v", snap)
	}
	for _, err := range concurrently(8, func(i int) error { return snapshots.Save(t.Context(), at(i+3), 2) }) {
		if err != nil {
			t.Error(err)
		}
	}
	check("after racing saves", "f", 10, 1)
	if err := snapshots.Delete(t.Context(), id); err != nil {
		t.Error(err)
	}
	check("deleted", "f", 0, 10)
	if err := snapshots.Delete(t.Context(), newStream("none")); err != nil {
		t.Error(err)
	}

	// A snapshot that is not of this stream as it stands comes with events that show it: none when it is newer than the
	// stream, else one at another position.
	newer := at(10)
	newer.Version, newer.Position = 12, eventstore.PositionAt(list[9].Position.Ordinal()+2)
	save(at(8))
	save(newer)
	if snap, versions := loadSnapshot(t, snapshots, id, "f"); len(versions) != 0 || snap.Version != 12 {
		t.Errorf("newer than the stream: %+v with %d events", snap, len(versions))
	}
	mustAppend(t, store, eventstore.To(newStream("other"), eventstore.NoStream, manyEvents(5)...))
	mustAppend(t, store, eventstore.To(id, eventstore.Exactly(10), manyEvents(5)...))
	if snap, versions := loadSnapshot(t, snapshots, id, "f"); snap.Version != 12 || len(versions) != 4 || versions[0] != 12 {
		t.Errorf("at another position: %+v with versions %v", snap, versions)
	}
	if got := streamEvents(t, store, id)[11].Position; got == newer.Position {
		t.Errorf("the test's position %s is right by chance", got)
	}
	var older snapshot.Snapshot
	if n := trips.during(func() {
		var err error
		if older, _, err = snapshots.Load(t.Context(), id, "f", 12); err != nil {
			t.Fatal(err)
		}
	}); n != 1 || older.Version != 8 {
		t.Errorf("the one before it: %+v in %d round trips", older, n)
	}
	if n := trips.during(func() { save(at(10)) }); n != 1 {
		t.Errorf("saving takes %d round trips", n)
	}
}

// What programs of earlier versions keep is removed with the rest.
func TestDeletedSnapshotsIncludeThoseOfEarlierVersions(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	for i := range 3 {
		mustExec(t, pool, `INSERT INTO daybook.snapshots (stream_id, fingerprint, version, position, content_type, data)
			VALUES ('old-' || $1::int, 'f', 1, 1, '', '')`, i)
	}
	left := func(want int) {
		t.Helper()
		if n := value[int](t, pool, `SELECT count(*) FROM daybook.snapshots`); n != want {
			t.Errorf("%d are left, want %d", n, want)
		}
	}
	if err := store.Snapshots().Delete(t.Context(), eventstore.NewStreamID("old", "1")); err != nil {
		t.Fatal(err)
	}
	left(2)
	if n, err := store.Snapshots().DeleteCategory(t.Context(), "old"); err != nil || n != 0 {
		t.Errorf("removed %d, %v", n, err)
	}
	left(0)
}

func TestSnapshotOfALongStream(t *testing.T) {
	t.Parallel()
	store, _ := freshStore(t, postgres.Config{})
	id := newStream("long")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, manyEvents(3500)...))
	if _, versions := loadSnapshot(t, store.Snapshots(), id, "f"); len(versions) != 3500 || versions[3499] != 3500 {
		t.Errorf("%d events", len(versions))
	}
	at := streamEvents(t, store, id)[999]
	if err := store.Snapshots().Save(t.Context(), snapshot.Snapshot{Stream: id, Fingerprint: "f", Version: 1000, Position: at.Position}, 2); err != nil {
		t.Fatal(err)
	}
	snap, versions := loadSnapshot(t, store.Snapshots(), id, "f")
	if snap.Version != 1000 || len(versions) != 2501 || versions[0] != 1000 || versions[2500] != 3500 {
		t.Errorf("snapshot at %d, %d events", snap.Version, len(versions))
	}
}
