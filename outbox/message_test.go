package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

func mail(key string, n int) Message {
	return Message{Topic: "mail", Key: key, Type: "mail.send", Data: fmt.Append(nil, n)}
}

func begin(t *testing.T, pool *pgxpool.Pool, opts pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func askFor[T any](t *testing.T, q querier, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := q.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// stored returns the payloads of the outbox in order of position.
func stored(t *testing.T, q querier, schema string) []string {
	t.Helper()
	return askFor[[]string](t, q, `SELECT coalesce(array_agg(convert_from(data, 'UTF8') ORDER BY first_position), '{}') FROM `+
		pgx.Identifier{schema, "outbox"}.Sanitize()+` WHERE first_position = last_position AND stream_id IS NULL`)
}

func TestEnqueueStoresEveryField(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	ctx := eventstore.WithMetadata(t.Context(), eventstore.Metadata{
		Tenant: "acme", Actor: "nobody", Headers: map[string]string{"a": "ctx", "b": "ctx"},
	})
	full := Message{
		Topic: "mail 😀", Key: "k\nö", ID: testID, Type: "mail.send", SchemaVersion: 3, ContentType: "text/plain", Data: []byte{0, 1, 255}, Flags: -9,
		Metadata: eventstore.Metadata{CorrelationID: "c", CausationID: "p", Actor: "ada", Headers: map[string]string{"a": "own"}},
	}
	tx := begin(t, pool, pgx.TxOptions{})
	if err := Enqueue(ctx, tx, full, Message{Topic: "t", Key: "k", Type: "x"}); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)

	type row struct {
		first, last                                                  int64
		partition, schemaVersion, flags                              int
		topic, key, typ, contentType, tenant, corr, caus, actor, sql string
		id                                                           uuid.UUID
		headers, data                                                []byte
	}
	rows, err := pool.Query(t.Context(), `SELECT first_position, last_position, partition, schema_version, flags, topic, key, type, content_type,
		tenant, correlation_id, causation_id, actor, concat(stream_id, from_version, to_version), id, headers, data
		FROM daybook.outbox WHERE recorded_at BETWEEN now() - interval '1 hour' AND now() + interval '1 hour' ORDER BY first_position`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (v row, err error) {
		return v, r.Scan(&v.first, &v.last, &v.partition, &v.schemaVersion, &v.flags, &v.topic, &v.key, &v.typ, &v.contentType,
			&v.tenant, &v.corr, &v.caus, &v.actor, &v.sql, &v.id, &v.headers, &v.data)
	})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d rows, %v", len(got), err)
	}
	headers, err := eventstore.DecodeHeaders(got[0].headers)
	if err != nil || headers["a"] != "own" || headers["b"] != "ctx" || len(headers) != 2 {
		t.Errorf("headers %q, %v", headers, err)
	}
	if !bytes.Equal(got[0].data, full.Data) {
		t.Errorf("data %v", got[0].data)
	}
	a, b := got[0], got[1]
	a.headers, a.data, b.headers, b.data = nil, nil, nil, nil
	want := row{
		first: a.first, last: a.first, partition: eventstore.PartitionOf(full.Key, eventstore.DefaultPartitions), schemaVersion: 3, flags: -9,
		topic: full.Topic, key: full.Key, typ: full.Type, contentType: "text/plain", tenant: "acme", corr: "c", caus: "p", actor: "ada", id: testID,
	}
	if fmt.Sprint(a) != fmt.Sprint(want) {
		t.Errorf("row\n%+v\nwant\n%+v", a, want)
	}
	want = row{
		first: b.first, last: b.first, partition: eventstore.PartitionOf("k", eventstore.DefaultPartitions), schemaVersion: 1,
		topic: "t", key: "k", typ: "x", contentType: "application/octet-stream", tenant: "acme", actor: "nobody", id: b.id,
	}
	if fmt.Sprint(b) != fmt.Sprint(want) || b.id.Version() != 7 || got[1].data == nil || b.first <= a.first {
		t.Errorf("row\n%+v\nwant\n%+v", b, want)
	}
}

func TestEnqueueKeepsOrderAndFollowsTheTransaction(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	ctx := t.Context()
	tx := begin(t, pool, pgx.TxOptions{})
	var want []string
	var batch []Message
	for i := range 500 {
		batch = append(batch, mail(fmt.Sprint("key", i%7), i))
		want = append(want, fmt.Sprint(i))
	}
	if err := Enqueue(ctx, tx, batch...); err != nil {
		t.Fatal(err)
	}
	undone, err := tx.Begin(ctx) // a savepoint
	if err != nil {
		t.Fatal(err)
	}
	if err := Enqueue(ctx, undone, mail("key", 1000)); err != nil {
		t.Fatal(err)
	}
	if err := undone.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	kept, err := tx.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := Enqueue(ctx, kept, mail("key", 500)); err != nil {
		t.Fatal(err)
	}
	commit(t, kept)
	if err := Enqueue(ctx, tx); err != nil {
		t.Errorf("no messages: %v", err)
	}
	commit(t, tx)
	if got := stored(t, pool, "daybook"); !slices.Equal(got, append(want, "500")) {
		t.Errorf("stored %v", got)
	}

	lost := begin(t, pool, pgx.TxOptions{})
	if err := Enqueue(ctx, lost, mail("key", 9999)); err != nil {
		t.Fatal(err)
	}
	if err := lost.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, pool, "daybook"); len(got) != 501 {
		t.Errorf("%d stored after a rollback", len(got))
	}
}

// The first statement of a transaction, within a savepoint that is undone: the next one must register again, or a reader
// could pass over its position.
func TestEnqueueRegistersWhateverSavepointsDo(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	ctx := t.Context()
	locks := func(tx pgx.Tx) int {
		return askFor[int](t, tx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`)
	}
	tx := begin(t, pool, pgx.TxOptions{})
	point, err := tx.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := Enqueue(ctx, point, mail("a", 1)); err != nil {
		t.Fatal(err)
	}
	if n := locks(tx); n != 1 {
		t.Errorf("%d registrations within the savepoint", n)
	}
	if err := point.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n := locks(tx); n != 0 {
		t.Errorf("%d registrations after it", n)
	}
	for i := range 2 {
		if err := Enqueue(ctx, tx, mail("a", 2+i)); err != nil {
			t.Fatal(err)
		}
		if n := locks(tx); n != 1 {
			t.Errorf("%d registrations of one transaction", n)
		}
	}
}

func TestEnqueueRefuses(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	good := mail("key", 1)
	with := func(change func(*Message)) Message {
		m := good
		change(&m)
		return m
	}
	tx := begin(t, pool, pgx.TxOptions{})
	for name, c := range map[string]struct {
		m     Message
		field string
	}{
		"no topic":         {with(func(m *Message) { m.Topic = "" }), "messages[1].Topic"},
		"a long topic":     {with(func(m *Message) { m.Topic = strings.Repeat("x", 201) }), "messages[1].Topic"},
		"a topic's tab":    {with(func(m *Message) { m.Topic = "a\tb" }), "messages[1].Topic"},
		"no key":           {with(func(m *Message) { m.Key = "" }), "messages[1].Key"},
		"a long key":       {with(func(m *Message) { m.Key = strings.Repeat("x", 513) }), "messages[1].Key"},
		"a key's zero":     {with(func(m *Message) { m.Key = "a\x00" }), "messages[1].Key"},
		"a key's bytes":    {with(func(m *Message) { m.Key = "\xff" }), "messages[1].Key"},
		"no type":          {with(func(m *Message) { m.Type = "" }), "messages[1].Type"},
		"a type's bytes":   {with(func(m *Message) { m.Type = "\xff" }), "messages[1].Type"},
		"a content type":   {with(func(m *Message) { m.ContentType = "\x00" }), "messages[1].ContentType"},
		"a schema version": {with(func(m *Message) { m.SchemaVersion = -1 }), "messages[1].SchemaVersion"},
		"a tenant":         {with(func(m *Message) { m.Metadata.Tenant = "\xff" }), "messages[1].Metadata.Tenant"},
		"a header":         {with(func(m *Message) { m.Metadata.Headers = map[string]string{"h": "\x00"} }), "messages[1].Metadata.Headers[h]"},
		"large data":       {with(func(m *Message) { m.Data = make([]byte, 64<<20+1) }), "messages[1].Data"},
	} {
		err := Enqueue(t.Context(), tx, good, c.m)
		var invalid *eventstore.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != c.field || invalid.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := eventstore.WithMetadata(t.Context(), eventstore.Metadata{Tenant: "\xff"})
	var invalid *eventstore.InvalidError
	if err := Enqueue(bad, tx, good); !errors.As(err, &invalid) || invalid.Field != "context.Metadata.Tenant" {
		t.Errorf("metadata of the context: %v", err)
	}
	if err := Enqueue(t.Context(), tx, make([]Message, 10_001)...); !errors.As(err, &invalid) || invalid.Field != "messages" {
		t.Errorf("too many: %v", err)
	}
	if err := Enqueue(t.Context(), nil, good); !errors.As(err, &invalid) || invalid.Field != "tx" {
		t.Errorf("no transaction: %v", err)
	}
	if err := Schema("a\x00b").Enqueue(t.Context(), tx, good); !errors.As(err, &invalid) || invalid.Field != "Schema" {
		t.Errorf("a schema's name: %v", err)
	}
	// The transaction has seen nothing of all this.
	if err := Enqueue(t.Context(), tx, good); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	if got := stored(t, pool, "daybook"); len(got) != 1 {
		t.Errorf("stored %v", got)
	}
}

func TestEnqueueIntoAnotherSchema(t *testing.T) {
	t.Parallel()
	const schema = "Other-Store"
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{Schema: schema, Partitions: 3}))
	tx := begin(t, pool, pgx.TxOptions{})
	if err := Schema(schema).Enqueue(t.Context(), tx, mail("key", 1)); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	if got := stored(t, pool, schema); len(got) != 1 {
		t.Errorf("stored %v", got)
	}
	if got, want := askFor[int](t, pool, `SELECT partition FROM "Other-Store".outbox`), eventstore.PartitionOf("key", 3); got != want {
		t.Errorf("partition %d, want %d", got, want)
	}
	tx = begin(t, pool, pgx.TxOptions{})
	if err := Enqueue(t.Context(), tx, mail("key", 1)); err == nil || !strings.Contains(err.Error(), `no store here: migrate it, or name its schema`) {
		t.Errorf("no store in the default schema: %v", err)
	}
}

// Whatever the transaction is like, its settings stay, and its commit waits for the disk.
func TestEnqueueLeavesSettings(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	const settings = `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
		WHERE name NOT LIKE 'daybook%' AND name <> 'synchronous_commit'`
	for _, opts := range []pgx.TxOptions{{}, {IsoLevel: pgx.RepeatableRead}, {IsoLevel: pgx.Serializable}} {
		for _, mode := range []string{"off", "local", "on"} {
			tx := begin(t, pool, opts)
			if _, err := tx.Exec(t.Context(), `SET LOCAL synchronous_commit = `+mode); err != nil {
				t.Fatal(err)
			}
			before := askFor[string](t, tx, settings)
			if err := Enqueue(t.Context(), tx, mail("key", 1)); err != nil {
				t.Fatal(err)
			}
			if after := askFor[string](t, tx, settings); after != before {
				t.Errorf("%v: settings were\n%s\nand are\n%s", opts, before, after)
			}
			want := mode
			if mode == "off" {
				want = "on"
			}
			if got := askFor[string](t, tx, `SELECT current_setting('synchronous_commit')`); got != want {
				t.Errorf("synchronous_commit was %s and is %s, want %s", mode, got, want)
			}
			commit(t, tx)
		}
	}
	if got := stored(t, pool, "daybook"); len(got) != 9 {
		t.Errorf("stored %v", got)
	}
}

// With a driver that prepares nothing, as behind a pooler, texts and bytes arrive as they are.
func TestEnqueueInEveryQueryMode(t *testing.T) {
	t.Parallel()
	shared := postgrestest.New(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		cfg := shared.Config()
		cfg.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		tx := begin(t, pool, pgx.TxOptions{})
		m := Message{Topic: "t", Key: `k'"\` + mode.String(), Type: `a,{}"`, Data: []byte{0, '\\', '"', 255}}
		if err := Enqueue(t.Context(), tx, m, Message{Topic: "t", Key: "k", Type: "x"}); err != nil {
			t.Errorf("%v: %v", mode, err)
			continue
		}
		commit(t, tx)
		if n := askFor[int](t, pool, `SELECT count(*) FROM daybook.outbox WHERE key = $1 AND type = $2 AND data = $3`, m.Key, m.Type, m.Data); n != 1 {
			t.Errorf("%v: %d rows as they were given", mode, n)
		}
	}
}

func TestEnqueueSaysWhatToDo(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	if _, err := pool.Exec(t.Context(), `SELECT setval('daybook.log_position', (SELECT max(next_position) FROM daybook.ranges))`); err != nil {
		t.Fatal(err)
	}
	err := Enqueue(t.Context(), begin(t, pool, pgx.TxOptions{}), mail("key", 1))
	if err == nil || !strings.Contains(err.Error(), "no range for the next position: keep Run of a store running") {
		t.Errorf("beyond the last range: %v", err)
	}
	holder := begin(t, pool, pgx.TxOptions{})
	if _, err := holder.Exec(t.Context(), `LOCK TABLE daybook.outbox`); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool, pgx.TxOptions{})
	if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '10ms'`); err != nil {
		t.Fatal(err)
	}
	if err := Enqueue(t.Context(), tx, mail("key", 1)); !errors.Is(err, eventstore.ErrBusy) || !eventstore.IsRetryable(err) {
		t.Errorf("behind a lock: %v", err)
	}
}
