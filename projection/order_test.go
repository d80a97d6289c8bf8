package projection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

func TestViewFollowsTheLog(t *testing.T) {
	t.Parallel()
	v := counts("counts")
	w := newWorld(t, v)
	w.append("a", added{1}, added{2})
	w.append("b", added{10})
	token := w.append("a", removed{1})
	stop := w.start(w.runner(Config{}, v))
	row, err := v.Get(t.Context(), w.pool, "a", AtLeast(token), Within(patience))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(count{Sum: 2, Events: 3, Last: 3}, row); diff != "" {
		t.Error(diff)
	}
	w.wait(w.append("b", added{5}), v)
	if diff := cmp.Diff(map[string]count{"a": {2, 3, 3}, "b": {15, 2, 2}}, rowsOf(w, v)); diff != "" {
		t.Error(diff)
	}
	if _, err := v.Get(t.Context(), w.pool, "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing row gives %v", err)
	}
	stop()
	if got := ask[int64](w, `SELECT sum("sum")::bigint FROM readmodels.counts`); got != 17 {
		t.Errorf("the view by the plain name says %d", got)
	}
}

// logged is a handler projection that writes down what it was given, in the order of the calls.
func logged(name string, also ...func(context.Context, pgx.Tx, Event[added]) error) Projection {
	return Projection{
		Name: name, Version: 1, Events: testEvents,
		Setup: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (n bigint GENERATED ALWAYS AS IDENTITY, position bigint, value bigint)", name))
			return err
		},
		Handlers: []Handler{Handle(func(ctx context.Context, tx pgx.Tx, e Event[added]) error {
			_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s (position, value) VALUES ($1, $2)", name), e.Position.Ordinal(), e.Payload.N)
			for _, f := range also {
				if err == nil {
					err = f(ctx, tx, e)
				}
			}
			return err
		})},
	}
}

func values(w *world, name string) []int64 {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), "SELECT value FROM "+name+" ORDER BY n")
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// R-PR02: events of others move the place in the log, and a second start does not read them again.
func TestIgnoredEventsMoveTheFloor(t *testing.T) {
	t.Parallel()
	v := counts("ignoring")
	w := newWorld(t, v)
	var token eventstore.Token
	batch := make([]any, 500)
	for i := range batch {
		batch[i] = other{"not mine"}
	}
	for range 20 {
		token = w.append("x", batch...)
	}
	var seen eventstore.Position // by the start before
	for range 2 {
		src := &recordingSource{Source: w.store.Log()}
		r, err := NewRunner(w.pool, src, Config{}, v)
		if err != nil {
			t.Fatal(err)
		}
		stop := w.start(r)
		w.wait(token, v)
		stop()
		head := token.Marks()[0].Position
		if lag, err := r.Lag(t.Context()); err != nil || lag[0].Applied.Before(head) || lag[0].Behind != 0 {
			t.Fatalf("lag is %+v %v, want the head %s", lag, err, head)
		}
		if first := src.first(); first.Before(seen) {
			t.Errorf("a start read from %s, want at least %s, where the one before ended", first, seen)
		}
		seen = head
		token = w.append("x", other{"one more"})
	}
	if got := ask[int](w, "SELECT count(*)::int FROM readmodels.ignoring"); got != 0 {
		t.Errorf("%d rows", got)
	}
}

type recordingSource struct {
	Source
	mu    sync.Mutex
	reads []eventstore.Position
}

func (s *recordingSource) ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	s.mu.Lock()
	s.reads = append(s.reads, after)
	s.mu.Unlock()
	return s.Source.ReadPage(ctx, after, f, limit)
}

func (s *recordingSource) first() eventstore.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[0]
}

// R-PR03: positions have gaps where appends were rolled back; the place in the log is a position, not a count.
func TestGapsDoNotRepeatEvents(t *testing.T) {
	t.Parallel()
	p := logged("gaps")
	w := newWorld(t, p)
	var token eventstore.Token
	var want []int64
	for i := range 30 {
		for range 7 { // lose positions
			tx, err := w.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.WithTx(tx).Append(t.Context(), eventstore.To(stream("lost"), eventstore.AnyVersion, encode(t, added{-1})...)); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		token = w.append("kept", added{int64(i)})
		want = append(want, int64(i))
	}
	stop := w.start(w.runner(Config{BatchSize: 7}, p))
	w.wait(token, p)
	stop()
	floor := ask[int64](w, "SELECT floor FROM daybook.segments WHERE consumer = 'gaps'")
	if at := token.Marks()[0].Position.Ordinal(); floor < at {
		t.Errorf("floor is %d, want at least %d", floor, at)
	}
	token = w.append("kept", added{30})
	w.start(w.runner(Config{}, p))
	w.wait(token, p)
	if diff := cmp.Diff(append(want, 30), values(w, "gaps")); diff != "" {
		t.Error(diff)
	}
}

// R-PR15: handlers never overlap, and finish in the order of the log.
func TestHandlersRunInOrder(t *testing.T) {
	t.Parallel()
	var inside sync.Mutex
	p := logged("ordered", func(context.Context, pgx.Tx, Event[added]) error {
		if !inside.TryLock() {
			return errors.New("two handlers at once")
		}
		defer inside.Unlock()
		spin := time.NewTimer(rand.N(2 * time.Millisecond))
		<-spin.C
		return nil
	})
	w := newWorld(t, p)
	var token eventstore.Token
	var want []int64
	for i := range 200 {
		token = w.append(fmt.Sprint("s", i%3), added{int64(i)})
		want = append(want, int64(i))
	}
	w.start(w.runner(Config{BatchSize: 20}, p))
	w.wait(token, p)
	if diff := cmp.Diff(want, values(w, "ordered")); diff != "" {
		t.Error(diff)
	}
	if up := ask[bool](w, "SELECT bool_and(position > before) FROM (SELECT position, lag(position, 1, 0) OVER (ORDER BY n) AS before FROM ordered) x"); !up {
		t.Error("positions do not rise")
	}
}

// R-OG08: a batch may end in the middle of an append, and a filter may pass by a part of it.
func TestRestartInTheMiddleOfAnAppend(t *testing.T) {
	t.Parallel()
	p := logged("middle")
	w := newWorld(t, p)
	token := w.append("s", added{1}, other{"y"}, added{3}, other{"y"}, added{5})
	for round := 1; round <= 4; round++ { // stop after each batch
		ctx, cancel := context.WithCancel(t.Context())
		batches := 0
		r := w.runner(Config{BatchSize: 1, probe: func(place string) {
			if place == "committed" {
				batches++
				cancel()
			}
		}}, p)
		if round == 4 {
			w.start(r)
			w.wait(token, p)
			cancel()
			break
		}
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if batches != 1 {
			t.Fatalf("round %d ran %d batches", round, batches)
		}
	}
	if diff := cmp.Diff([]int64{1, 3, 5}, values(w, "middle")); diff != "" {
		t.Error(diff)
	}
}

// R-OG11: holes in the log leave no trace in the checkpoint.
func TestHolesLeaveNoTrace(t *testing.T) {
	t.Parallel()
	v := counts("holes")
	w := newWorld(t, v)
	w.start(w.runner(Config{}, v))
	var token eventstore.Token
	for range 100 {
		w.exec("SELECT count(nextval('daybook.log_position')) FROM generate_series(1, 1000)")
		token = w.append("a", added{1})
	}
	w.wait(token, v)
	if n := ask[int](w, "SELECT pg_column_size(s) FROM daybook.segments s WHERE consumer = 'holes'"); n > 1000 {
		t.Errorf("the checkpoint has %d bytes", n)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.checkpoints"); n != 0 {
		t.Errorf("%d rows of checkpoints", n)
	}
	if got := rowsOf(w, v)["a"].Events; got != 100 {
		t.Errorf("%d events", got)
	}
}

// An unrelated transaction that is held open stalls nobody.
func TestForeignTransactionStallsNobody(t *testing.T) {
	t.Parallel()
	v := counts("unstalled")
	w := newWorld(t, v)
	w.exec("CREATE TABLE foreign_work (n int)")
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "INSERT INTO foreign_work VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	w.start(w.runner(Config{}, v))
	for range 20 {
		w.wait(w.append("a", added{1}), v)
	}
	if got := rowsOf(w, v)["a"].Events; got != 20 {
		t.Errorf("%d events while a foreign transaction was open", got)
	}
}

func TestLogLinesAreChangesOfState(t *testing.T) {
	t.Parallel()
	v := counts("quiet")
	w := newWorld(t, v)
	var lines livetest.Lines
	stop := w.start(w.runner(Config{Logger: lines.Logger()}, v))
	for i := range 50 {
		w.wait(w.append("secret-stream", added{int64(i)}), v)
	}
	stop()
	if n := strings.Count(lines.String(), "\n"); n != 2 {
		t.Errorf("%d log lines, want running and standby:\n%s", n, lines.String())
	}
}
