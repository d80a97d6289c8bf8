package docs

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// Not even the owner of the tables can change what is stored, whichever table of the log the statement names.
func TestStoredEventsCannotBeChanged(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := postgrestest.New(t)
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	stream := eventstore.NewStreamID("account", "1")
	if _, err := store.Append(ctx, eventstore.To(stream, eventstore.NoStream, eventstore.EventData{Type: "account.opened", Data: []byte("x")})); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`UPDATE daybook.events SET data = ''`, `DELETE FROM daybook.events`, `TRUNCATE daybook.events`,
		`UPDATE daybook.events_1 SET data = ''`, `DELETE FROM daybook.events_1`, `TRUNCATE daybook.events_1`,
	} {
		_, err := pool.Exec(ctx, sql)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "DB004" {
			t.Errorf("%s: %v, want DB004", sql, err)
		}
	}
	n := 0
	for e, err := range store.ReadStream(ctx, stream, eventstore.Range{}) {
		if n++; err != nil || string(e.Data) != "x" {
			t.Errorf("%q, %v", e.Data, err)
		}
	}
	if n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}
