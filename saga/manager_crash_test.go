package saga

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// errand carries out commands as a dispatcher does, each once, and answers with what the saga does next.
type errand struct {
	w    *scriptWorld
	did  map[string]bool
	next map[string][]string // by step
}

func (e *errand) look() {
	rows, err := e.w.pool.Query(context.Background(), "SELECT id, min(step) FROM sent GROUP BY id ORDER BY min(n)")
	if err != nil {
		e.w.t.Fatal(err)
	}
	var id, step string
	var todo [][2]string
	if _, err := pgx.ForEachRow(rows, []any{&id, &step}, func() error {
		if !e.did[id] {
			todo = append(todo, [2]string{id, step})
		}
		return nil
	}); err != nil {
		e.w.t.Fatal(err)
	}
	for _, c := range todo {
		e.did[c[0]] = true
		command := uuid.MustParse(c[0])
		e.w.post.reply(command, flow.ReplyDone)
		if ops, ok := e.next[c[1]]; ok {
			e.w.answer(command, ops...)
		}
	}
}

// victim is a pool whose connections can be ended.
func (w *scriptWorld) victim(name string) *pgxpool.Pool {
	w.t.Helper()
	cfg, err := pgxpool.ParseConfig(postgrestest.URL(w.pool))
	if err != nil {
		w.t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool
}

func (w *scriptWorld) terminate(name string) {
	_, err := w.pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = $1`, name)
	if err != nil {
		w.t.Error(err)
	}
}

// dying runs a manager until it comes to a place the nth time, and there all its connections break and it ends.
func (w *scriptWorld) dying(place string, visit int, definitions ...Definition) (died <-chan struct{}, stop func()) {
	w.t.Helper()
	name := fmt.Sprintf("victim %s %d", place, visit)
	pool := w.victim(name)
	ctx, cancel := context.WithCancel(context.Background())
	reached := make(chan struct{})
	var mu sync.Mutex
	cfg := quick()
	cfg.Probe = func(at string) {
		mu.Lock()
		defer mu.Unlock()
		if at != place {
			return
		}
		if visit--; visit == 0 {
			w.terminate(name)
			cancel()
			close(reached)
		}
	}
	m, err := NewManager(pool, w.store.Log(), w.post, cfg, definitions...)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return reached, func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("at %s: %v", place, err)
			}
		case <-time.After(livetest.Patience):
			w.t.Errorf("at %s: Run did not end", place)
		}
	}
}

// A manager that dies wherever it hurts leaves what the next one brings to the same end: what has happened is the same, and
// each command that takes effect is the same, once.
func TestManagersThatDie(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"taken", "claimed", "handled", "reacted", "fired", "acted", "applied", "committed"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			w := newScriptWorld(t, script(1), again{})
			e := &errand{w, map[string]bool{}, map[string][]string{"one": {"send two"}, "two": {"script send four"}, "four": {"complete"}}}
			const keys = 4
			for n := range keys {
				w.open(fmt.Sprint("k", n), "send one", "timer soon 1ms")
			}
			w.open("acted", "script send never")
			planned := false
			ended := func() bool {
				e.look()
				// Its timer must have fired: the end, to which the plan leads, takes it away.
				if !planned && w.number("SELECT count(*) FROM sent WHERE step = 'never'") > 0 {
					planned = true
					w.plan(flow.ActionRetry, "send one", "", "acted", "never begun")
				}
				return w.number("SELECT count(*) FROM daybook.sagas WHERE ended_at IS NOT NULL") == keys+1 &&
					w.number("SELECT count(DISTINCT id) FROM sent WHERE step = 'react'") == keys+1
			}
			for visit := 1; visit <= 3; visit++ {
				died, stop := w.dying(place, visit, script(1), again{})
				livetest.Eventually(t, "the manager dies at "+place, func() bool {
					select {
					case <-died:
						return true
					default:
						return ended()
					}
				})
				stop()
			}
			w.start(w.manager(quick(), script(1), again{}))
			livetest.Eventually(t, "all have ended", ended, func() string {
				return w.value("SELECT string_agg(key || ' ' || state || ' ' || stuck || ' ' || encode(data, 'escape'), E'\\n') FROM daybook.sagas")
			})
			for n := range keys {
				key := fmt.Sprint("k", n)
				got := strings.Split(w.log(key, 1), "; ")
				want := []string{"opened", "answered one", "answered two", "timer do send four", "answered four"}
				if strings.Count(strings.Join(got, "; "), "timer soon") > 1 {
					t.Errorf("%s has seen %v", key, got)
				}
				// Replies may come after the end, and leave no trace then; a timer that was claimed may be cancelled by it.
				got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "reply") || s == "timer soon" })
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s has seen %v\nwant      %v", key, got, want)
				}
			}
			effective := w.value("SELECT string_agg(step || ' ' || n, ', ' ORDER BY step) FROM (SELECT step, count(DISTINCT id) AS n FROM sent GROUP BY step) x")
			if want := "four 5, never 1, one 5, react 5, two 5"; effective != want {
				t.Errorf("effective commands: %s, want %s", effective, want)
			}
			if n := w.number("SELECT count(*) FROM (SELECT id FROM sent GROUP BY id HAVING count(*) > 1) x"); n != 0 {
				t.Errorf("%d commands were sent twice", n)
			}
			if n := w.number("SELECT count(*) FROM daybook.saga_plans WHERE state = 'done' AND done = 1 AND refused = 1"); n != 1 {
				t.Error("the plan has not come to its end")
			}
		})
	}
}
