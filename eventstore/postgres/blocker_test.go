package postgres_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// R-OG06, first half: who has nothing to do with the log holds nobody back.
func TestUnrelatedIdleTransactionHoldsNobody(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	mustExec(t, pool, `CREATE TABLE unrelated (i int)`)
	idle := beginTx(t, pool)
	mustExec(t, idle, `INSERT INTO unrelated VALUES (1)`)
	for i := range 10 {
		mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("x")))
		if i == 5 {
			if err := openAppend(t, store, pool, "gone").Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := len(logEvents(t, store, eventstore.Position{})); got != 10 {
		t.Errorf("%d events, want 10", got)
	}
	if b, held, err := store.Blocker(t.Context()); held || err != nil {
		t.Errorf("blocker %v, %v", b, err)
	}
}

// R-OG06, second half: who does hold the head is named, with what an operator needs.
func TestHolderOfTheHeadIsNamed(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = "nightly job"
	}))
	store := openStore(t, pool, postgres.Config{})
	last := mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("x")))
	tx := openAppend(t, store, pool, "slow")
	openAppend(t, store, pool, "younger")
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("y")))
	_ = safeHead(t, store)
	b, held, err := store.Blocker(t.Context())
	if err != nil || !held {
		t.Fatalf("no blocker: %v", err)
	}
	pid := value[int](t, tx, `SELECT pg_backend_pid()`)
	if b.PID != pid || b.Application != "nightly job" || b.State != "idle in transaction" || b.Age <= 0 || b.Above != last.Token.Marks()[0].Position {
		t.Errorf("blocker %+v, want process %d above %s", b, pid, last.Token.Marks()[0].Position)
	}
	for _, want := range []string{"nightly job", "pg_terminate_backend"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q does not say %q", b, want)
		}
	}
	// Health says so when it lasts.
	if h := store.Health(t.Context()); !h.Ready {
		t.Errorf("health of a head that was held for a moment: %+v", h)
	}
	h := store.HealthWithin(t.Context(), b.Age/2)
	if h.State != "head held" || h.Ready || !strings.Contains(h.Reason, "nightly job") || h.Since.IsZero() {
		t.Errorf("health %+v", h)
	}
	mustExec(t, pool, `SELECT pg_terminate_backend($1)`, pid)
}

func TestPreparedTransactionThatHoldsTheHeadIsNamed(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	tx := openAppend(t, store, pool, "prepared")
	gid := "transfer-" + newStream("x").ID
	mustExec(t, tx, `PREPARE TRANSACTION '`+gid+`'`, pgx.QueryExecModeSimpleProtocol)
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("behind")))
	if got := len(logEvents(t, store, eventstore.Position{})); got != 0 {
		t.Errorf("read %d events past a prepared transaction", got)
	}
	var b postgres.Blocker
	await(t, "the age of the prepared transaction", func() bool {
		var held bool
		var err error
		if b, held, err = store.Blocker(context.Background()); err != nil || !held {
			t.Fatalf("no blocker: %v", err)
		}
		return b.Age > 0
	})
	if b.PID != 0 || !strings.Contains(b.String(), gid) || !strings.Contains(b.String(), "ROLLBACK PREPARED") {
		t.Errorf("blocker %+v: %s", b, b)
	}
	mustExec(t, pool, `COMMIT PREPARED '`+gid+`'`)
	if got := dataOf(logEvents(t, store, eventstore.Position{})); len(got) != 2 || got[0] != "prepared" {
		t.Errorf("read %q", got)
	}
}
