package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

// readerOfPgx belongs to a connection, which may rest in a pool that lives on.
var readerOfPgx = goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead")

// Run ends within two seconds under load, and leaves no goroutine and no connection. Not parallel: it counts.
func TestShutdownUnderLoad(t *testing.T) {
	v, p := counts("ended"), logged("ended_log")
	w := newWorld(t, v, p)
	// Warm up what lives as long as the pool.
	w.append("s", added{1})
	before := goleak.IgnoreCurrent()
	loadCtx, endLoad := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for loadCtx.Err() == nil {
			var events []any
			for range 100 {
				events = append(events, added{1})
			}
			_, err := w.store.Append(loadCtx, eventstore.To(stream("s"), eventstore.AnyVersion, encode(t, events...)...))
			if err != nil && loadCtx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	for range 5 {
		stop := w.start(w.runner(Config{BatchSize: 50}, v, p))
		livetest.Eventually(t, "it works", func() bool { return ask[int64](w, "SELECT min(floor) FROM daybook.segments") > 0 })
		stop() // checks the time
	}
	endLoad()
	<-ended
	if err := goleak.Find(before, readerOfPgx); err != nil {
		t.Error(err)
	}
}

// R-RL05: a handler that ignores the end of its context cannot keep Run, its lease or a commit.
func TestHandlerThatIgnoresTheEnd(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	p := logged("deaf", func(context.Context, pgx.Tx, Event[added]) error {
		if first.CompareAndSwap(false, true) {
			close(entered)
			<-release
		}
		return nil
	})
	w := newWorld(t, p)
	token := w.append("s", added{1})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	r := w.runner(Config{}, p)
	go func() { done <- r.Run(ctx) }()
	<-entered
	cancel()
	began := time.Now()
	select {
	case err := <-done:
		var late *ShutdownError
		if !errors.As(err, &late) || len(late.Consumers) != 1 || !strings.Contains(err.Error(), "deaf") {
			t.Errorf("Run returns %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Run took %v", took)
		}
	case <-time.After(patience):
		t.Fatal("Run does not return")
	}
	close(release)
	w.start(w.runner(Config{}, p))
	w.wait(token, p)
	if got := values(w, "deaf"); len(got) != 1 {
		t.Errorf("applied %v", got)
	}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	v := counts("twice")
	w := newWorld(t, v)
	r := w.runner(Config{}, v)
	stop := w.start(r)
	w.wait(w.append("s", added{1}), v)
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second Run gives %v", err)
	}
	stop()
	stop = w.start(r) // again, after it has ended
	w.wait(w.append("s", added{1}), v)
	stop()
}

// Two runners: one works, the other waits and takes over when the first ends.
func TestStandby(t *testing.T) {
	t.Parallel()
	v := counts("standing_by")
	w := newWorld(t, v)
	a, b := w.runner(Config{}, v), w.runner(Config{}, v)
	stop := w.start(a)
	w.wait(w.append("s", added{1}), v)
	w.start(b)
	livetest.Eventually(t, "the second is on standby", func() bool {
		h := b.Health(t.Context())
		return h.Ready && h.Parts[0].State == "standby"
	})
	lag, err := b.Lag(t.Context())
	if err != nil || lag[0].Owner == "" || lag[0].State != "running" {
		t.Errorf("the lag is %+v %v", lag, err)
	}
	for range 30 {
		w.wait(w.append("s", added{1}), v)
	}
	if state := b.Health(t.Context()).Parts[0].State; state != "standby" {
		t.Errorf("the second is %s while the first works", state)
	}
	stop()
	w.wait(w.append("s", added{1}), v) // long before the lease of 10 s would have ended: it was released
	if got := rowsOf(w, v)["s"].Events; got != 32 {
		t.Errorf("%d events", got)
	}
}

// Every statement on the tables of a view probes its primary key, also after the table was analysed while empty.
func TestPlansHaveNoScan(t *testing.T) {
	t.Parallel()
	v := View[struct {
		A string
		B int
	}, everything]{
		Name: "planned", Version: 1, Events: testEvents,
		Folds: []Fold[struct {
			A string
			B int
		}, everything]{On(func(Event[added]) struct {
			A string
			B int
		} {
			return struct {
				A string
				B int
			}{}
		}, func(s everything, _ Event[added]) everything { return s })},
	}
	pool := postgrestest.New(t)
	w := openWorld(t, pool, v)
	d, err := v.define()
	if err != nil {
		t.Fatal(err)
	}
	for _, analysed := range []bool{false, true} {
		if analysed {
			w.exec("VACUUM ANALYZE readmodels.planned_v1")
			w.exec("VACUUM ANALYZE daybook.segments")
			w.exec("VACUUM ANALYZE daybook.consumers")
			w.exec("VACUUM ANALYZE daybook.checkpoints")
			w.exec("VACUUM ANALYZE daybook.parked")
			w.exec("VACUUM ANALYZE daybook.held")
			w.exec("VACUUM ANALYZE daybook.letters")
		}
		// The settings are those that the statements run with: batches of a runner by their first statement, Get and
		// inline batches by probe.
		for name, sql := range map[string]string{"load": d.table.load, "get": d.table.get, "upsert": d.table.upsert, "remove": d.table.remove} {
			explain(t, w, name, sql, "SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan", "", nil)
		}
		// The tables of a few rows per consumer are read whole by right.
		small := []string{"store", "consumers", "segments", "checkpoints", "parked"}
		for name, sql := range map[string]string{"parked": parkedSQL, "letter": openLetterSQL, "restart": restartSQL} {
			explain(t, w, name, inStore(sql, "daybook"), "SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan", "", small)
		}
		for name, sql := range map[string]string{"ask": askSQL, "check": checkSQL, "register": registerSQL} {
			explain(t, w, name, inStore(sql, "daybook"), "SET LOCAL plan_cache_mode = force_generic_plan", "", small)
		}
	}
	// Planned each time, with their values: what they do on a log that has grown counts.
	for range 20 {
		var events []any
		for range 200 {
			events = append(events, added{1})
		}
		w.append("planned", events...)
	}
	for _, st := range []struct{ name, sql, values string }{
		{"head", headSQL, "3999"}, {"lag", lagSQL, "'planned', 1"},
	} {
		explain(t, w, st.name, inStore(st.sql, "daybook"), "SET LOCAL plan_cache_mode = force_custom_plan", st.values,
			[]string{"store", "consumers", "segments", "checkpoints", "parked"})
	}
}

// explain fails the test when a statement scans a table that is not among those named. Without values its parameters are
// NULL.
func explain(t *testing.T, w *world, name, sql, settings, values string, may []string) {
	t.Helper()
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), settings+"; PREPARE p AS "+sql); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var params int // the number of parameters is known to the server only
	if err := tx.QueryRow(t.Context(), "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'p'").Scan(&params); err != nil {
		t.Fatal(err)
	}
	if values == "" {
		values = strings.TrimSuffix(strings.Repeat("NULL,", params), ",")
	}
	rows, err := tx.Query(t.Context(), fmt.Sprintf("EXPLAIN EXECUTE p(%s)", values))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		_, table, scans := strings.Cut(line, "Seq Scan on ")
		if table, _, _ = strings.Cut(table, " "); scans && !slices.Contains(may, table) {
			t.Errorf("%s with %q scans %s:\n%s", name, settings, table, strings.Join(lines, "\n"))
		}
	}
	if _, err := tx.Exec(t.Context(), "DEALLOCATE p"); err != nil {
		t.Fatal(err)
	}
}

var _ Source = (*postgres.Log)(nil)
