package commands

import (
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// fillSQL makes operations that ended an hour ago, and some that have not ended.
const fillSQL = `
INSERT INTO daybook.operations (id, type, state, finished_at)
SELECT gen_random_uuid(), 't', CASE WHEN i % 10 = 0 THEN 'running' ELSE 'done' END, CASE WHEN i % 10 = 0 THEN NULL ELSE clock_timestamp() - interval '1 hour' END
  FROM generate_series(1, $1::int) i`

// R-LB03: old operations go in small batches, from one process, while commands flow; what has not ended stays.
func TestOldOperationsGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := testscale.N(100_000)
	w.exec(fillSQL, n)
	w.exec("ANALYZE daybook.operations")
	cfg := Config{KeepOperations: 30 * time.Minute, CleanEvery: 10 * time.Millisecond}
	w.run(cfg)
	w.run(cfg)
	fresh := w.send(add{"a", 1})
	w.ends(fresh, bus.OperationDone)
	livetest.Eventually(t, "the old ones are gone", func() bool {
		return ask[int](w, "SELECT count(*) FROM daybook.operations WHERE finished_at < clock_timestamp() - interval '30 minutes'") == 0
	})
	if got, want := ask[int](w, "SELECT count(*) FROM daybook.operations"), n/10+1; got != want {
		t.Errorf("%d operations are left, want %d", got, want)
	}
	w.ends(fresh, bus.OperationDone)
}

// The plan of the cleaning reads no more than it removes, however many operations there are.
func TestCleaningReadsByIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(fillSQL, 20_000)
	w.exec("ANALYZE daybook.operations")
	rows, err := w.pool.Query(t.Context(), "EXPLAIN "+inSchema(cleanSQL, "daybook"), time.Minute, (*time.Time)(nil), cleanBatch)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	indexed := false
	for _, line := range plan {
		if strings.Contains(line, "Seq Scan") {
			t.Errorf("it scans the table: %s", line)
		}
		indexed = indexed || strings.Contains(line, "operations_finished")
	}
	if !indexed {
		t.Errorf("it does not use the index: %q", plan)
	}
}

// A clock says what is old.
func TestCleaningByTheClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ahead atomic.Int64
	w.run(Config{CleanEvery: 10 * time.Millisecond, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	w.ends(w.send(add{"a", 1}), bus.OperationDone)
	w.ends(w.send(add{"a", 2}), bus.OperationDone)
	if n := ask[int](w, "SELECT count(*) FROM daybook.operations"); n != 2 {
		t.Errorf("%d operations are left, want 2", n)
	}
	ahead.Store(int64(25 * time.Hour))
	livetest.Eventually(t, "they go", func() bool { return ask[int](w, "SELECT count(*) FROM daybook.operations") == 0 })
}

// Where no relay runs, commands that were carried out are removed by the dispatcher.
func TestCarriedOutCommandsGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(Config{CleanEvery: 10 * time.Millisecond})
	for n := range 50 {
		w.send(add{"a", int64(n + 1)})
	}
	// The last row of the outbox stays: the end of the log is read from it.
	livetest.Eventually(t, "the outbox is empty", func() bool { return ask[int](w, "SELECT count(*) FROM daybook.outbox") <= 1 })
	w.wantNumbers("a", 50)
	w.ends(w.send(add{"a", 51}), bus.OperationDone)
}

// A program with nothing but the rights of the grants can do it all.
func TestTheRightsOfAProgramAreEnough(t *testing.T) {
	t.Parallel()
	owner := newWorld(t)
	role, password := "App-"+uuid.NewString()[:8], uuid.NewString()
	grants, err := postgres.GrantsScript("daybook", role)
	if err != nil {
		t.Fatal(err)
	}
	quoted := pgx.Identifier{role}.Sanitize()
	owner.exec("CREATE ROLE " + quoted + " LOGIN PASSWORD '" + password + "'")
	if _, err := owner.pool.Exec(t.Context(), grants, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(owner.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	pool, err := pgxpool.New(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		owner.exec("DROP OWNED BY " + quoted)
		owner.exec("DROP ROLE " + quoted)
	})
	w, err := openWorld(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.store.Close)
	w.t = t
	w.run(Config{CleanEvery: 10 * time.Millisecond, KeepOperations: 2 * time.Second})
	id := w.send(add{"a", 1}, bus.ReplyTo("replies"))
	w.ends(id, bus.OperationDone)
	if n := len(w.replies("replies")); n != 1 {
		t.Errorf("%d ends were told", n)
	}
	livetest.Eventually(t, "it is cleaned", func() bool {
		return ask[int](w, "SELECT count(*) FROM daybook.operations") == 0
	})
}
