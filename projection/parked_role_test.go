package projection

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

// granted is the same world for a role that has what the script of the grants gives, and may write to a table.
func (w *world) granted(table string) *world {
	w.t.Helper()
	role, password := "app-"+uuid.NewString()[:8], uuid.NewString()
	quoted := pgx.Identifier{role}.Sanitize()
	grants, err := postgres.GrantsScript("daybook", role)
	if err != nil {
		w.t.Fatal(err)
	}
	owner := func(sql string) {
		w.t.Helper()
		if _, err := w.pool.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			w.t.Fatalf("%s: %v", sql, err)
		}
	}
	owner("CREATE ROLE " + quoted + " LOGIN PASSWORD '" + password + "'")
	owner(grants)
	owner("GRANT USAGE ON SCHEMA readmodels TO " + quoted)
	owner("GRANT SELECT, INSERT ON " + table + " TO " + quoted)
	cfg, err := pgxpool.ParseConfig(postgrestest.URL(w.pool))
	if err != nil {
		w.t.Fatal(err)
	}
	cfg.ConnConfig.User, cfg.ConnConfig.Password, cfg.MaxConns = role, password, w.pool.Config().MaxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		pool.Close()
		owner("DROP OWNED BY " + quoted) // roles belong to the server, which may live longer than the test
		owner("DROP ROLE " + quoted)
	})
	store, err := postgres.New(w.t.Context(), pool, postgres.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(store.Close)
	return &world{w.t, pool, store}
}

// R-DL10: the first event that fails, its retries, a redrive, what is queued and who waits, all by a role without DDL rights
// on a store that was only migrated and installed.
func TestFailuresWithoutRightsToCreate(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	p := logged("without_rights", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N == 1 && !mended.Load() {
			return errBad
		}
		return nil
	})
	w := newWorld(t, p).granted(p.Name)
	w.append("a", added{1}, added{2})
	w.start(w.runner(soon(Config{Attempts: 3, BatchSize: 2}), p))
	w.wait(w.append("b", added{10}), p)
	if letters := w.parked(p.Name, 1); len(letters) != 1 || letters[0].Attempts != 3 {
		t.Errorf("letters: %+v", letters)
	}
	token := w.append("a", added{3})
	livetest.Eventually(t, "it is passed by", func() bool { return ask[int](w, "SELECT coalesce(sum(queued), 0)::int FROM daybook.parked") == 2 })
	mustBe[*ParkedError](t, w.waiter().WaitFor(t.Context(), token, p))
	mended.Store(true)
	w.redrive(p.Name)
	livetest.Eventually(t, "the key goes on", func() bool { return w.waiter().WaitFor(t.Context(), token, p) == nil })
	if diff := cmp.Diff([]int64{10, 1, 2, 3}, values(w, p.Name)); diff != "" {
		t.Error(diff)
	}
	if _, err := w.pool.Exec(t.Context(), "CREATE TABLE daybook.mine (n int)"); err == nil {
		t.Error("the role may create tables")
	}
}
