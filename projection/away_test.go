package projection

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

// A database that is away is waited for: health says so, no attempt is used up, and work goes on when it is back.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	v, p := counts("away"), logged("away_log")
	w := newWorld(t, v, p)
	r := w.runner(Config{OnFailure: Stop, Attempts: 1}, v, p)
	w.start(r)
	w.wait(w.append("s", added{1}), v, p)

	cfg := w.pool.Config().ConnConfig.Copy()
	name := pgx.Identifier{cfg.Database}.Sanitize()
	cfg.Database = "postgres"
	admin, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(t.Context()) }()
	do := func(sql string, args ...any) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	do(fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", name))
	livetest.Eventually(t, "both wait", func() bool {
		do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", w.pool.Config().ConnConfig.Database)
		h := r.Health(t.Context())
		return !h.Ready && h.Parts[0].State == "waiting" && h.Parts[1].State == "waiting" && h.Parts[0].Reason != ""
	})
	do(fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS true", name))
	var token eventstore.Token
	livetest.Eventually(t, "the store is back", func() bool {
		res, err := w.store.Append(t.Context(), eventstore.To(stream("s"), eventstore.Exactly(1), encode(t, added{2})...))
		token = res.Token
		return err == nil
	})
	w.pool.Reset() // its connections are dead
	w.wait(token, v, p)
	if diff := cmp.Diff([]int64{1, 2}, values(w, "away_log")); diff != "" {
		t.Error(diff)
	}
	livetest.Eventually(t, "health is ready", func() bool { return r.Health(t.Context()).Ready })
}

// R-RL01: a program that has leaked all of its connections does not keep projections from working.
func TestExhaustedPool(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMaxConns(4))
	v := counts("exhausted")
	w := openWorld(t, pool, v)
	other, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	for range 4 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	w.start(w.runner(Config{}, v))
	if _, err := v.Get(t.Context(), other, "s", AtLeast(w.append("s", added{1})), Within(patience)); err != nil {
		t.Error(err)
	}
}
