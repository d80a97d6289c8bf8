package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// A role whose transactions are SERIALIZABLE by default must not look for a step with a snapshot from before the wait.
func TestMigrateByManyUnderAnotherDefaultIsolation(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Empty(t, postgrestest.WithMaxConns(8), postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}))
	for _, err := range concurrently(8, func(int) error { return postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}) }) {
		if err != nil {
			t.Error(err)
		}
	}
}

// Texts that the database takes for other characters would be found by no other program, and land in other partitions.
func TestOtherEncodingsAreRefused(t *testing.T) {
	t.Parallel()
	latinClient := postgrestest.WithPoolConfig(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1" })
	pool := postgrestest.Empty(t, latinClient)
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}); err == nil || !strings.Contains(err.Error(), "client_encoding is LATIN1") {
		t.Errorf("Migrate: %v", err)
	}
	if _, err := postgres.New(t.Context(), pool, postgres.Config{}); err == nil || !strings.Contains(err.Error(), "client_encoding is LATIN1") {
		t.Errorf("New: %v", err)
	}
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		admin := postgrestest.Empty(t)
		cfg := admin.Config()
		name := "other_" + strings.ToLower(encoding) + fmt.Sprint(time.Now().UnixNano())
		mustExec(t, admin, "CREATE DATABASE "+name+" ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
		cfg.ConnConfig.Database = name
		other, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := postgres.Migrate(t.Context(), other, postgres.MigrateConfig{}); err == nil || !strings.Contains(err.Error(), "UTF8") {
			t.Errorf("%s: %v", encoding, err)
		}
		other.Close()
		mustExec(t, admin, "DROP DATABASE "+name+" WITH (FORCE)")
	}
}

// The driver wraps such times around to one that looks sound.
func TestClockBeyondWhatTheDatabaseHolds(t *testing.T) {
	t.Parallel()
	for _, now := range []time.Time{time.Unix(1<<61, 0), time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		store, _ := freshStore(t, postgres.Config{Clock: func() time.Time { return now }})
		_, err := store.Append(t.Context(), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
		if !errors.Is(err, eventstore.ErrInvalid) || !strings.Contains(err.Error(), "Clock") {
			t.Errorf("%v: %v", now, err)
		}
	}
}

func TestNilPool(t *testing.T) {
	t.Parallel()
	if _, err := postgres.New(t.Context(), nil, postgres.Config{}); err == nil || !strings.Contains(err.Error(), "pool is nil") {
		t.Errorf("New: %v", err)
	}
	if err := postgres.Migrate(t.Context(), nil, postgres.MigrateConfig{}); err == nil || !strings.Contains(err.Error(), "pool is nil") {
		t.Errorf("Migrate: %v", err)
	}
}

// Settings of the role for how values look as text reach no reader, with few ranges and with many.
func TestHowTheRoleWritesValuesDoesNotMatter(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 100}), postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["bytea_output"] = "escape"
		c.ConnConfig.RuntimeParams["DateStyle"] = "German"
		c.ConnConfig.RuntimeParams["timezone"] = "Asia/Kathmandu"
	}))
	store, stream := openStore(t, pool, postgres.Config{}), newStream("s")
	event := eventstore.EventData{Type: "test.bytes", Data: []byte{0, '\\', 'x', 255}, Metadata: eventstore.Metadata{Headers: map[string]string{"a": "b"}}}
	for round, n := range []int{1, 2000} { // the second fills more than sixteen ranges
		events := make([]eventstore.EventData, n)
		for i := range events {
			events[i] = event
		}
		result := mustAppend(t, store, eventstore.To(stream, eventstore.AnyVersion, events...))
		tx := beginTx(t, pool)
		for _, reader := range []eventstore.StreamReader{store, store.WithTx(tx)} {
			for e, err := range reader.ReadStream(t.Context(), stream, eventstore.Range{From: result.Versions[stream]}) {
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if string(e.Data) != string(event.Data) || e.Metadata.Headers["a"] != "b" || !e.RecordedAt.Equal(result.RecordedAt) {
					t.Errorf("round %d: read %+v", round, e)
				}
			}
		}
		mustCommit(t, tx)
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.ranges`); n <= 16 {
		t.Errorf("there are only %d ranges", n)
	}
}
