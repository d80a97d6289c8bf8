package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

// R-DL10: everything that workers, relays, inboxes and operators do about what failed is done by a role without DDL rights,
// on a store that was only migrated.
func TestRoleWithoutDDLRightsHandlesLetters(t *testing.T) {
	t.Parallel()
	const schema = "Day-Book"
	owner := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{Schema: schema}))
	pool := rolePool(t, owner, schema)
	x := func(sql string) string { return postgres.Expand(sql, schema) }
	store := openStore(t, pool, postgres.Config{Schema: schema, Routes: []eventstore.Route{{Topic: "all"}}})
	mustAppend(t, store, eventstore.To(eventstore.NewStreamID("order", "1"), eventstore.NoStream, manyEvents(5)...))
	mustExec(t, pool, x(`INSERT INTO {schema}.consumers (consumer, version, kind) VALUES ('view', 1, 'projection'), ('outbox-relay', 2, 'relay'), ('in', 1, 'inbox')`))
	mustExec(t, pool, x(`INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition, floor, epoch)
		VALUES ('view', 1, 0, 0, 63, 5, 1), ('outbox-relay', 2, 0, 0, 63, 5, 1), ('in', 1, 0, 0, 63, 5, 1)`))
	mustExec(t, pool, x(`INSERT INTO {schema}.members (consumer, version, member, expires_at) VALUES ('outbox-relay', 2, 'a', clock_timestamp())`))
	mustExec(t, pool, x(`UPDATE {schema}.members SET expires_at = clock_timestamp()`))
	mustExec(t, pool, x(`DELETE FROM {schema}.members`))
	mustExec(t, pool, x(`INSERT INTO {schema}.inbox_versions (consumer, version, key, last) VALUES ('in', 1, 'k', 3)
		ON CONFLICT (consumer, version, key) DO UPDATE SET last = excluded.last`))
	mustExec(t, pool, x(`INSERT INTO {schema}.held (consumer, version, topic, sequence, position, partition) VALUES ('in', 1, 't', 'k', 3, 0)`))
	mustExec(t, pool, x(`DELETE FROM {schema}.held`))

	// Two messages are set aside, in the transaction of the checkpoint; what they need is queued behind them.
	for i, key := range []string{"order-1", "order-2", "order-3"} {
		tx := beginTx(t, pool)
		mustExec(t, tx, x(`INSERT INTO {schema}.letters (letter, consumer, version, sequence, partition, position, state, kind, attempts, round, fingerprint, errors, first_errors,
			  first_failed_at, last_failed_at, handler, program, id, type, schema_version, flags, content_type, tenant, correlation_id, causation_id, actor, headers, data, recorded_at)
			VALUES (gen_random_uuid(), 'view', 1, $1::text, $2::int, $3, 'parked', 'permanent', 1, 1, 'f', '{no}', '{no}', now(), now(), 'h', 'p', gen_random_uuid(), 't', 1, 0, '', '', '', '', '', '', '', now())`),
			key, eventstore.PartitionOf(key, 64), i+1)
		mustExec(t, tx, x(`INSERT INTO {schema}.parked (consumer, version, sequence, partition, state, first_position, last_position) VALUES ('view', 1, $1, $2, 'parked', $3, $3)`),
			key, eventstore.PartitionOf(key, 64), i+1)
		mustExec(t, tx, x(`SELECT {schema}.commit_batch('view', 1, 0, 1, $1, 5, 5, '{}', '{}', '{}', '{}', true)`), i)
		mustCommit(t, tx)
	}
	if _, err := store.Log().ReadSequence(t.Context(), eventstore.PartitionOf("order-1", 64), "order-1", eventstore.Position{}, eventstore.PositionAt(5), eventstore.Filter{}, 10); err != nil {
		t.Error(err)
	}

	letters, err := deadletter.New(pool, deadletter.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	page, err := letters.List(t.Context(), deadletter.Filter{Consumer: "view"})
	if err != nil || len(page.Letters) != 3 {
		t.Fatalf("%d letters, %v", len(page.Letters), err)
	}
	ann := deadletter.Options{Actor: "ann", Reason: "fixed"}
	first, second := page.Letters[0].ID, page.Letters[1].ID
	plan, err := letters.Redrive(t.Context(), deadletter.One(first), ann)
	if err != nil {
		t.Fatalf("redrive: %v", err)
	}
	for what, do := range map[string]func() error{
		"groups": func() error { _, err := letters.Groups(t.Context(), deadletter.Filter{}); return err },
		"show":   func() error { _, err := letters.Show(t.Context(), first); return err },
		"plans":  func() error { _, err := letters.Plans(t.Context(), "view", true); return err },
		"status": func() error { _, err := letters.Status(t.Context()); return err },
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	mustExec(t, pool, x(`UPDATE {schema}.redrive_items SET state = 'running'`))
	mustExec(t, pool, x(`UPDATE {schema}.redrive_items SET state = 'waiting'`))
	if err := letters.Cancel(t.Context(), plan.ID, ann); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if _, err := letters.Discard(t.Context(), deadletter.One(second), ann); err != nil {
		t.Errorf("discard: %v", err)
	}
	if err := letters.Undo(t.Context(), second, ann); err != nil {
		t.Errorf("undo: %v", err)
	}
	if _, err := letters.Discard(t.Context(), deadletter.One(second), ann); err != nil {
		t.Errorf("discard again: %v", err)
	}
	mustExec(t, owner, x(`UPDATE {schema}.letters SET closed_at = clock_timestamp() - interval '1 year' WHERE closed_at IS NOT NULL`))
	if n, err := letters.Prune(t.Context(), time.Hour); err != nil || n != 1 {
		t.Errorf("prune: %d, %v", n, err)
	}
	if _, err := store.Outbox().Clean(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	if _, err := store.Status(t.Context()); err != nil {
		t.Error(err)
	}
	// Who has done what cannot be changed afterwards, and nothing can be made.
	if n := value[int](t, pool, x(`SELECT count(*) FROM {schema}.letter_actions`)); n < 4 {
		t.Errorf("%d actions are noted", n)
	}
	for _, sql := range []string{
		`UPDATE {schema}.letter_actions SET actor = 'bob'`, `DELETE FROM {schema}.letter_actions`, `TRUNCATE {schema}.letters`,
		`DROP TABLE {schema}.parked`, `CREATE INDEX ON {schema}.letters (type)`, `ALTER TABLE {schema}.held ADD COLUMN mine int`,
	} {
		_, err := pool.Exec(t.Context(), x(sql))
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
			t.Errorf("%s: got %v, want no permission", sql, err)
		}
	}
}

// A table that a later migration adds is not forgotten by the grants.
func TestEveryTableIsGranted(t *testing.T) {
	t.Parallel()
	owner := postgrestest.New(t)
	pool := rolePool(t, owner, "daybook")
	role := value[string](t, pool, `SELECT current_user::text`)
	var missing []string
	rows, err := owner.Query(t.Context(), `SELECT c.relname::text FROM pg_class c
		 WHERE c.relnamespace = 'daybook'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		   AND NOT has_table_privilege($1::text, c.oid, 'SELECT')`, role)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		missing = append(missing, name)
	}
	if rows.Err() != nil || len(missing) > 0 {
		t.Errorf("%v cannot be read: %v", missing, rows.Err())
	}
	if n := value[int](t, owner, `SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'daybook'::regnamespace AND p.prosecdef
		AND has_function_privilege('public', p.oid, 'execute') AND p.proname <> 'ensure_ranges'`); n != 0 {
		t.Errorf("anybody may run %d functions that have the rights of their owner", n)
	}
}
