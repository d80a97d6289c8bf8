package timers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/timers"
)

// A claims at 0, renews at 10 and freezes. B finds nothing before 40, and takes over at 41. What A brings at 55 is refused.
func leaseKnownAnswer(t *testing.T, pool *pgxpool.Pool) {
	const lease = 30 * time.Second
	set(t, pool, at(0), timers.Setting{Name: "nightly-report"})
	want := func(when float64, got []timers.Timer, texts ...string) {
		t.Helper()
		if !slices.Equal(told(got), texts) && len(got)+len(texts) > 0 {
			t.Fatalf("at %g: %v, want %v", when, told(got), texts)
		}
	}
	byA := claim(t, pool, "A", at(0), lease)
	want(0, byA, "nightly-report token 1 until 30")
	want(1, claim(t, pool, "B", at(1), lease))
	set(t, pool, at(5), timers.Setting{Name: "send-digest"})
	byB := claim(t, pool, "B", at(5), lease)
	want(5, byB, "send-digest token 1 until 35")
	if err := finish(pool, byB...); err != nil { // at 8
		t.Fatal(err)
	}
	renewed, err := timers.Renew(t.Context(), pool, schema, at(10), lease, byA)
	if err != nil {
		t.Fatal(err)
	}
	want(10, renewed, "nightly-report token 1 until 40")
	want(39, claim(t, pool, "B", at(39), lease))
	byB = claim(t, pool, "B", at(41), lease)
	want(41, byB, "nightly-report token 2 until 71")
	if lost, err := timers.Renew(t.Context(), pool, schema, at(45), lease, byA); err != nil || len(lost) != 0 {
		t.Fatalf("A renews at 45: %v, %v", told(lost), err)
	}
	if err := finish(pool, byB...); err != nil { // at 50
		t.Fatal(err)
	}
	execute(t, pool, `CREATE TABLE effects (name text)`)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	execute(t, tx, `INSERT INTO effects VALUES ('nightly-report')`)
	err = finish(tx, byA...) // at 55
	if !timers.Lost(err) || !strings.Contains(err.Error(), "1 of 1 timers") {
		t.Errorf("A finishes at 55: %v", err)
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("a transaction with the effects of a timer that is somebody else's committed")
	}
	if n := value[int](t, pool, `SELECT count(*) FROM effects`); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// Renewed at 100 under token 7, silent until 145: taken over under token 8, and the first one is refused, also before
// the second has finished.
func takeoverKnownAnswer(t *testing.T, pool *pgxpool.Pool) {
	const lease = 30 * time.Second
	set(t, pool, at(70), timers.Setting{Name: "nightly-report"})
	execute(t, pool, `UPDATE daybook.timers SET token = 6`)
	byA := claim(t, pool, "A", at(80), lease)
	renewed, err := timers.Renew(t.Context(), pool, schema, at(100), lease, byA)
	if err != nil || !slices.Equal(told(renewed), []string{"nightly-report token 7 until 130"}) {
		t.Fatalf("at 100: %v, %v", told(renewed), err)
	}
	byB := claim(t, pool, "B", at(145), lease)
	if !slices.Equal(told(byB), []string{"nightly-report token 8 until 175"}) {
		t.Fatalf("at 145: %v", told(byB))
	}
	if err := finish(pool, byA...); !timers.Lost(err) {
		t.Errorf("A finishes: %v", err)
	}
	if err := finish(pool, byB...); err != nil {
		t.Errorf("B finishes: %v", err)
	}
}

// Due at 40, 900, 3600 and 86400, polled at 30, 60, 1000 and 4000.
func pollingKnownAnswer(t *testing.T, pool *pgxpool.Pool) {
	for _, s := range []time.Duration{40, 900, 3600, 86400} {
		set(t, pool, at(0), timers.Setting{Name: s.String(), After: s * time.Second})
	}
	for _, poll := range []struct {
		at   float64
		late []time.Duration
	}{{30, nil}, {60, []time.Duration{20 * time.Second}}, {1000, []time.Duration{100 * time.Second}}, {4000, []time.Duration{400 * time.Second}}} {
		var late []time.Duration
		fired := claim(t, pool, "A", at(poll.at), 30*time.Second)
		for _, x := range fired {
			late = append(late, x.ClaimedAt.Sub(x.Due))
		}
		if !slices.Equal(late, poll.late) {
			t.Errorf("at %g: %v late, want %v", poll.at, late, poll.late)
		}
		if err := finish(pool, fired...); err != nil {
			t.Fatal(err)
		}
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.timers`); n != 1 {
		t.Errorf("%d left, want one", n)
	}
}

func heldLeavesOutWhatIsGone(t *testing.T, pool *pgxpool.Pool) {
	const lease = 30 * time.Second
	for _, name := range []string{"e-stays", "d-cancelled", "c-set-anew", "b-taken-over", "a-stays"} {
		set(t, pool, at(0), timers.Setting{Name: name, Payload: []byte(name), Does: "does " + name})
	}
	mine := claim(t, pool, "A", at(1), lease)
	slices.Reverse(mine)
	send(t, pool, func(b *pgx.Batch) { timers.Cancel(b, schema, queue, []string{"d-cancelled", "never was"}) })
	set(t, pool, at(2), timers.Setting{Name: "c-set-anew"})
	execute(t, pool, `UPDATE daybook.timers SET token = token + 1, owner = 'B' WHERE name = 'b-taken-over'`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		held, err := timers.Held(t.Context(), tx, schema, mine)
		if err != nil {
			return err
		}
		if texts := told(held); !slices.Equal(texts, []string{"a-stays token 1 until 31", "e-stays token 1 until 31"}) {
			t.Errorf("held are %v", texts)
		}
		if held[0].Does != "does a-stays" || string(held[0].Payload) != "a-stays" {
			t.Errorf("held is %+v", held[0])
		}
		return finish(tx, held...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.timers`); n != 2 {
		t.Errorf("%d left, want the one set anew and the one taken over", n)
	}
}
