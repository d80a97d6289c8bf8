package aggregate_test

import (
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/snapshot"
)

// Snapshots and cache on PostgreSQL, with what a database can do to them.
func TestSnapshotsAndCacheOnPostgreSQL(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	w := &watcher{}
	open := func(opts ...aggregate.Option) *aggregate.Repository[count, event] {
		return newCounts(store, append(opts, aggregate.WithSnapshots(store.Snapshots(), quiet(snapshot.Every(100))), aggregate.WithObserver(w))...)
	}
	counts := open(aggregate.WithCache(1 << 20))
	for range 3 {
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(1100)))
		drain(t, counts.Snapshots())
	}
	must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(99)))
	want := func(what string, of *aggregate.Repository[count, event], cached, snapshot bool, events int) {
		t.Helper()
		loaded := must[aggregate.Loaded[count]](t)(of.Load(t.Context(), "a"))
		if l := w.load(t); loaded.State.N != 3399 || loaded.Version != 3399 || l.Cached != cached || l.Snapshot != snapshot || l.Events != events {
			t.Errorf("%s: %+v by %+v", what, loaded, l)
		}
	}
	want("cached", counts, true, false, 0)
	want("newest", open(), false, true, 99)
	spoil := func(sql string) {
		t.Helper()
		if tag, err := pool.Exec(t.Context(), sql); err != nil || tag.RowsAffected() == 0 {
			t.Fatal(tag, err)
		}
	}
	spoil(`UPDATE daybook.stream_snapshots SET data = '\x00' WHERE version = 3300`)
	want("the one before", open(), false, true, 1199)
	spoil(`UPDATE daybook.stream_snapshots SET version = 9000 WHERE version = 3300`)
	want("from the future", open(), false, true, 1199)
	spoil(`UPDATE daybook.stream_snapshots SET position = position - 1 WHERE version = 2200`)
	want("none is of use", open(), false, false, 3399)
	want("still cached", counts, true, false, 0)
	if err := counts.Snapshots().Rebuild(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	want("rebuilt", open(), false, true, 0)
	if err := counts.Snapshots().DropAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("dropped", open(), false, false, 3399)
}
