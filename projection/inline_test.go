package projection

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

func inlineWorld(t *testing.T, defs ...Definition) *world {
	t.Helper()
	pool := postgrestest.New(t)
	if err := Install(t.Context(), pool, defs...); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.New(t.Context(), pool, postgres.Config{Hooks: []postgres.Hook{Inline(defs...)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &world{t, pool, store}
}

// Many appends at once that fold into the same few rows, some of which do not exist yet: nothing is lost.
func TestInlineLosesNoUpdate(t *testing.T) {
	t.Parallel()
	type total struct{ Sum, Events int64 }
	shared := View[string, total]{
		Name: "shared", Version: 1, Events: testEvents, Inline: true,
		Folds: []Fold[string, total]{OnEach(func(e Event[listed]) []string { return e.Payload.Keys },
			func(_ string, s total, e Event[listed]) total { return total{s.Sum + int64(e.Version), s.Events + 1} })},
	}
	own := counts("own")
	own.Inline = true
	w := inlineWorld(t, shared, own)
	const writers, rounds = 8, 15
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			for i := range rounds {
				keys := []string{"everybody", fmt.Sprint("round", i), "everybody"} // both orders, and one key twice
				if n%2 == 0 {
					keys[0], keys[1] = keys[1], keys[0]
				}
				_, err := w.store.Append(t.Context(),
					eventstore.To(stream(fmt.Sprint("w", n)), eventstore.AnyVersion, encode(t, listed{keys}, added{1}, other{"ignored"})...))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	rows := rowsOf(w, shared)
	if got := rows["everybody"].Events; got != writers*rounds {
		t.Errorf("%d events for everybody, want %d", got, writers*rounds)
	}
	for i := range rounds {
		if got := rows[fmt.Sprint("round", i)].Events; got != writers {
			t.Errorf("%d events in round %d, want %d", got, i, writers)
		}
	}
	for n := range writers {
		if got := rowsOf(w, own)[fmt.Sprint("w", n)].Events; got != rounds {
			t.Errorf("writer %d has %d", n, got)
		}
	}
}

func TestInlineIsPartOfTheAppend(t *testing.T) {
	t.Parallel()
	v := counts("inline")
	v.Inline = true
	p := logged("inline_log")
	p.Inline = true
	w := inlineWorld(t, v, p)
	token := w.append("s", added{1}, added{2})
	if err := w.waiter().WaitFor(t.Context(), token, v, p); err != nil { // nothing runs, nothing to wait for
		t.Error(err)
	}
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.WithTx(tx).Append(t.Context(), eventstore.To(stream("s"), eventstore.AnyVersion, encode(t, added{100})...)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]count{"s": {3, 2, 2}}, rowsOf(w, v)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int64{1, 2}, values(w, "inline_log")); diff != "" {
		t.Error(diff)
	}
}

func TestInlineRefusesTheAppend(t *testing.T) {
	t.Parallel()
	v := View[string, count]{
		Name: "refusing", Version: 1, Events: testEvents, Inline: true,
		Folds: []Fold[string, count]{On(ByStream, func(count, Event[added]) count { panic(errors.New("no")) })},
	}
	w := inlineWorld(t, v)
	_, err := w.store.Append(t.Context(), eventstore.To(stream("s"), eventstore.NoStream, encode(t, added{1})...))
	if err == nil || !strings.Contains(err.Error(), `"test.added" of stream "test-s" version 1`) || !strings.Contains(err.Error(), "panicked: no") {
		t.Errorf("the append says %v", err)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.events"); n != 0 {
		t.Errorf("%d events are stored", n)
	}
}

func TestInlineMustBeFirst(t *testing.T) {
	t.Parallel()
	v := counts("late")
	v.Inline = true
	w := newWorld(t)
	w.append("s", added{1})
	if err := Install(t.Context(), w.pool, v); err == nil || !strings.Contains(err.Error(), "use a Runner") {
		t.Errorf("installed late: %v", err)
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "Inline: is false") {
			t.Errorf("Inline of a view for a runner panics with %v", r)
		}
	}()
	Inline(counts("async"))
}
