package postgres_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// A store of version 2 with snapshots is brought up while programs of version 2 go on, and are started again.
func TestUpgradeFromVersionTwo(t *testing.T) {
	t.Parallel()
	cfg := postgres.MigrateConfig{Schema: "Day-Book"}
	expanded := func(sql string) string { return strings.ReplaceAll(sql, "{schema}", `"Day-Book"`) }
	pool := postgrestest.Empty(t)
	if err := postgres.MigrateTo(t.Context(), pool, cfg, 2); err != nil {
		t.Fatal(err)
	}
	// What a program of version 2 sends.
	const (
		save = `INSERT INTO {schema}.snapshots AS s (stream_id, fingerprint, version, position, content_type, data, taken_at)
			VALUES ($1, 'f', $2, $2, 'text/plain', $3, now())
			ON CONFLICT (stream_id, fingerprint) DO UPDATE SET version = excluded.version, position = excluded.position,
			content_type = excluded.content_type, data = excluded.data, taken_at = excluded.taken_at WHERE s.version < excluded.version`
		load   = `SELECT version FROM {schema}.snapshots WHERE stream_id = $1 AND fingerprint = 'f'`
		remove = `DELETE FROM {schema}.snapshots WHERE stream_id = $1`
		append = `WITH s AS (INSERT INTO {schema}.streams AS s (stream_id, version, partition) VALUES ($1, 1, {schema}.partition_of($1, 64))
				ON CONFLICT (stream_id) DO UPDATE SET version = s.version + 1 RETURNING version, partition)
			INSERT INTO {schema}.events (version, id, partition, stream_id, type, data) SELECT s.version, gen_random_uuid(), s.partition, $1, 't', 'x' FROM s`
	)
	old, id := "order-1", eventstore.NewStreamID("order", "1")
	mustExec(t, pool, expanded(append), old)
	mustExec(t, pool, expanded(append), old)
	mustExec(t, pool, expanded(save), old, 2, []byte("two"))
	warm := postgrestestPool(t, pool, "old") // its statements are prepared before
	value[int](t, warm, expanded(load), old)
	if err := postgres.Serves(t.Context(), pool, cfg.Schema, 2); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), pool, cfg); err != nil {
		t.Fatal(err)
	}
	for version := 4; version <= postgres.Latest(); version++ { // letters: workers of older programs would not know what is set aside
		if err := postgres.Serves(t.Context(), pool, cfg.Schema, version); err != nil {
			t.Errorf("a program of version %d: %v", version, err)
		}
	}
	if diff := cmp.Diff(catalog(t, postgrestest.New(t, postgrestest.WithMigrate(cfg)), cfg.Schema), catalog(t, pool, cfg.Schema)); diff != "" {
		t.Errorf("another schema than a new installation has:\n%s", diff)
	}
	if n := value[int](t, pool, expanded(`SELECT length(secret) FROM {schema}.store`)); n != 32 {
		t.Errorf("the secret has %d bytes", n)
	}
	// The new program finds the snapshot, and keys work.
	store := openStore(t, pool, postgres.Config{Schema: cfg.Schema})
	snap, events, err := store.Snapshots().Load(t.Context(), id, "f", 0)
	if err != nil || snap.Version != 2 || string(snap.Data) != "two" {
		t.Errorf("snapshot %+v, %v", snap, err)
	}
	for _, err := range events {
		if err != nil {
			t.Error(err)
		}
	}
	c := newKey()
	mustAppendOnce(t, store, c, eventstore.Outcome{}, eventstore.To(id, eventstore.Exactly(2), newEvent("3")))
	// The old one goes on with what it has.
	if v := value[int](t, warm, expanded(load), old); v != 2 {
		t.Errorf("the old program loads version %d", v)
	}
	mustExec(t, warm, expanded(append), old)
	mustExec(t, warm, expanded(save), old, 4, []byte("four"))
	if v := value[int](t, warm, expanded(load), old); v != 4 {
		t.Errorf("the old program loads version %d", v)
	}
	mustExec(t, warm, expanded(remove), old)
	if _, err := postgres.SetEpoch(t.Context(), pool, cfg.Schema, postgres.EpochKeep); err != nil {
		t.Error(err)
	}
	if n := len(streamEvents(t, store, id)); n != 4 {
		t.Errorf("%d events", n)
	}
	if got := mustAppendOnce(t, store, anotherCall(c), eventstore.Outcome{}); !got.Repeated || got.Versions()[id] != 3 {
		t.Errorf("%+v", got)
	}
}
