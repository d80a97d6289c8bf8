package projection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

// A fold that panics, a value that the database refuses, a constraint of its own, and an event that cannot be decoded set
// their stream aside, and nothing else of the batch. Mended, each goes on in its own order.
func TestViewsGoOnWithoutWhatFails(t *testing.T) {
	t.Parallel()
	type text struct {
		Text string
		N    int64
	}
	var mended atomic.Bool
	v := View[string, text]{
		Name: "going_on", Version: 1, Events: testEvents,
		Folds: []Fold[string, text]{On(ByStream, func(s text, e Event[other]) text {
			switch {
			case mended.Load():
			case e.Payload.Text == "panic":
				panic("fold of glass")
			case e.Payload.Text == "zero":
				return text{"a\x00b", s.N + 1}
			}
			return text{e.Payload.Text, s.N + 1}
		})},
	}
	w := newWorld(t, v)
	w.exec(`ALTER TABLE readmodels.going_on_v1 ADD CONSTRAINT taste CHECK (text <> 'ugly')`)
	kinds := []string{"panic", "zero", "ugly"}
	for i, kind := range kinds {
		w.append("good", other{fmt.Sprint(i)})
		w.append(kind, other{"before"}, other{kind})
		w.append(kind, other{"after"})
	}
	broken := encode(t, other{"x"})[0]
	broken.Data = []byte("secret \xff")
	if _, err := w.store.Append(t.Context(), eventstore.To(stream("broken"), eventstore.NoStream, broken)); err != nil {
		t.Fatal(err)
	}
	token := w.append("good", other{"last"})
	r := w.runner(soon(Config{Attempts: 2}), v)
	w.start(r)
	w.wait(token, v)
	letters := w.parked(v.Name, 4)
	for i, l := range letters {
		text := l.Error + l.Sequence
		if i < 3 && (l.Sequence != "test-"+kinds[i] || l.StreamVersion != 2 || l.Attempts != 2) || strings.Contains(text, "secret") {
			t.Errorf("letter %d: %+v", i, l)
		}
	}
	if l := letters[3]; l.Kind != "permanent" || l.Attempts != 1 {
		t.Errorf("what cannot be decoded: %+v", l)
	}
	if diff := cmp.Diff(map[string]text{"good": {"last", 4}, "panic": {"before", 1}, "zero": {"before", 1}, "ugly": {"before", 1}}, rowsOf(w, v)); diff != "" {
		t.Error(diff)
	}
	mended.Store(true)
	w.exec(`ALTER TABLE readmodels.going_on_v1 DROP CONSTRAINT taste`)
	if plan := w.redrive(v.Name); plan.Succeeded != 3 || plan.Failed != 1 {
		t.Errorf("%+v", plan)
	}
	w.parked(v.Name, 1)
	if diff := cmp.Diff(map[string]text{"good": {"last", 4}, "panic": {"after", 3}, "zero": {"after", 3}, "ugly": {"after", 3}}, rowsOf(w, v)); diff != "" {
		t.Error(diff)
	}
}

// Whatever a handler does to its transaction, its neighbours in the batch commit, once.
func TestFailedStatementsDoNotSpoilTheNeighbours(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	bad := map[int64]func(context.Context, pgx.Tx) error{
		1: func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1/0"); return err },
		2: func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "SELECT 1/0"); return nil },
		3: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		4: func(context.Context, pgx.Tx) error { panic("out of cheese") },
		5: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO late VALUES (1), (1)")
			return err
		},
		6: func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "rollback"); return err },
	}
	p := logged("neighbours", func(ctx context.Context, tx pgx.Tx, e Event[added]) error {
		if f := bad[e.Payload.N]; f != nil && !mended.Load() {
			return f(ctx, tx)
		}
		return nil
	})
	w := newWorld(t, p)
	w.exec("CREATE TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	var token eventstore.Token
	for n := range int64(30) {
		token = w.append(fmt.Sprint("s", n), added{n})
	}
	w.start(w.runner(soon(Config{Attempts: 2}), p))
	w.wait(w.append("last", added{30}), p)
	letters := w.parked(p.Name, len(bad))
	for i, l := range letters {
		if l.Sequence != fmt.Sprint("test-s", i+1) || l.Attempts != 2 {
			t.Errorf("letter %d: %+v", i, l)
		}
	}
	seen := map[int64]int{}
	for _, n := range values(w, p.Name) {
		seen[n]++
	}
	for n := range int64(31) {
		if _, isBad := bad[n]; isBad && seen[n] != 0 || !isBad && seen[n] != 1 {
			t.Errorf("%d was applied %d times", n, seen[n])
		}
	}
	mended.Store(true)
	w.redrive(p.Name)
	w.wait(token, p)
	if n := len(values(w, p.Name)); n != 31 {
		t.Errorf("%d rows", n)
	}
}

// Whoever waits never sees a row that is older than the token, although handlers fail now and then: what is set aside is
// said at once, and then it is waited out.
func TestNeverOlderThanTheTokenAlthoughFoldsFail(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var calls atomic.Uint64
	v := counts("flaky")
	v.Folds[0] = On(ByStream, func(c count, e Event[added]) count {
		if n := calls.Add(1); rand.New(rand.NewPCG(seed, n)).IntN(5) == 0 {
			panic("now and then")
		}
		return c.added(e)
	})
	w := newWorld(t, v)
	w.start(w.runner(soon(Config{Attempts: 1000}), v))
	var all sync.WaitGroup
	var refused atomic.Int64
	for n := range 4 {
		all.Go(func() {
			id := fmt.Sprint("s", n)
			for i := int64(1); i <= 25; i++ {
				token := w.append(id, added{1})
				for deadline := time.Now().Add(patience); ; {
					row, err := v.Get(t.Context(), w.pool, id, AtLeast(token), Within(patience))
					if errors.Is(err, ErrParked) && time.Now().Before(deadline) {
						refused.Add(1)
						continue
					}
					if err != nil || row.Events < i || row.Sum != row.Events {
						t.Errorf("after event %d of %s: %+v %v", i, id, row, err)
						return
					}
					break
				}
			}
		})
	}
	all.Wait()
	if refused.Load() == 0 {
		t.Error("nothing was ever set aside")
	}
	w.parked(v.Name, 0)
}

// A projection that starts again has nothing set aside; letters of an older version stay, and so does what it has set aside.
func TestLettersAndNewBeginnings(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	v := counts("begun_again")
	v.Folds[0] = On(ByStream, func(c count, e Event[added]) count {
		if e.Payload.N < 0 && !mended.Load() {
			panic("below zero")
		}
		return c.added(e)
	})
	next := v
	next.Version = 2
	w := newWorld(t, v)
	w.append("a", added{-1})
	token := w.append("b", added{1})
	stop := w.start(w.runner(soon(Config{Attempts: 1}), v))
	letter := w.parked(v.Name, 1)[0]
	stop()

	w.install(next)
	stop = w.start(w.runner(soon(Config{Attempts: 1}), next))
	livetest.Eventually(t, "the new version has its own", func() bool { return len(w.open(v.Name)) == 2 })
	stop()
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.parked WHERE version = 1"); n != 1 {
		t.Errorf("the old version has set aside %d", n)
	}

	// The table was dropped by hand: the version begins again, and the same letter goes on when it fails once more.
	w.exec("DROP TABLE readmodels.begun_again_v1 CASCADE")
	w.install(v)
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.parked WHERE version = 1"); n != 0 {
		t.Errorf("%d are set aside at the beginning", n)
	}
	if got := ask[string](w, "SELECT state || ' ' || closed_by FROM daybook.letters WHERE letter = $1", letter.ID); got != "taken over projection.Install" {
		t.Errorf("the letter is %s", got)
	}
	stop = w.start(w.runner(soon(Config{Attempts: 1}), v))
	w.wait(token, v)
	livetest.Eventually(t, "it fails once more", func() bool { return len(w.open(v.Name)) == 2 })
	if got := ask[int](w, "SELECT attempts FROM daybook.letters WHERE letter = $1", letter.ID); got != 2 {
		t.Errorf("the letter has %d attempts", got)
	}
	stop()

	mended.Store(true)
	w.exec("DROP TABLE readmodels.begun_again_v1 CASCADE")
	w.install(v)
	w.start(w.runner(Config{}, v))
	w.wait(token, v)
	if diff := cmp.Diff(map[string]count{"a": {-1, 1, 1}, "b": {1, 1, 1}}, rowsOf(w, v)); diff != "" {
		t.Error(diff)
	}
	if letters := w.open(v.Name); len(letters) != 1 || letters[0].Version != 2 {
		t.Errorf("open: %+v", letters)
	}

	// Without the version there is nothing to go on with, and its letter is still to be read.
	w.exec("DELETE FROM daybook.consumers WHERE consumer = 'begun_again' AND version = 2")
	if n := ask[int](w, "SELECT (SELECT count(*) FROM daybook.parked) + (SELECT count(*) FROM daybook.held)"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if letters := w.open(v.Name); len(letters) != 1 {
		t.Errorf("%d letters are left", len(letters))
	}
}

// CatchUp waits for what is tried again, and says what waits for people, if the token is about that.
func TestCatchUpAndWhatFails(t *testing.T) {
	t.Parallel()
	p := logged("caught_up", func(ctx context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N < 0 || e.Payload.N > 100 && Attempt(ctx) < 3 {
			return errBad
		}
		return nil
	})
	w := newWorld(t, p)
	unlucky := w.append("unlucky", added{101}, added{1})
	r := w.runner(soon(Config{Attempts: 4}), p)
	catchUp := func(token eventstore.Token) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return r.CatchUp(ctx, token)
	}
	if err := catchUp(unlucky); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{101, 1}, values(w, p.Name)); diff != "" {
		t.Error(diff)
	}
	bad := w.append("bad", added{-1}, added{2})
	if e := mustBe[*ParkedError](t, catchUp(bad)); e.State != SequenceParked || e.Sequence != "test-bad" {
		t.Errorf("%+v", e)
	}
	if err := catchUp(w.append("good", added{3})); err != nil {
		t.Errorf("another token: %v", err)
	}
}

// What an owner commits while the projection starts again is of before: nothing of it is set aside afterwards.
func TestNewBeginningWaitsForTheOwner(t *testing.T) {
	t.Parallel()
	v := counts("begun_late")
	w := newWorld(t, v)
	w.exec("DROP TABLE readmodels.begun_late_v1 CASCADE")
	owner, err := w.pool.Begin(t.Context()) // as it does: the segment first, then what is set aside
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Rollback(context.Background()) }()
	if _, err := owner.Exec(t.Context(), "UPDATE daybook.segments SET parked_rev = parked_rev + 1 WHERE consumer = $1", v.Name); err != nil {
		t.Fatal(err)
	}
	installed := make(chan error, 1)
	go func() { installed <- Install(t.Context(), w.pool, v) }()
	livetest.Eventually(t, "the projection waits for its segment", func() bool {
		return ask[bool](w, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	})
	_, err = owner.Exec(t.Context(), `INSERT INTO daybook.parked (consumer, version, sequence, partition, state, first_position, last_position)
		VALUES ($1, 1, 'test-s', 0, 'parked', 9, 9)`, v.Name)
	if err == nil {
		err = owner.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-installed; err != nil {
		t.Fatal(err)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.parked"); n != 0 {
		t.Errorf("%d sequences are set aside at the beginning", n)
	}
}
