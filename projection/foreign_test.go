package projection

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

// The place in the log moves over events of others also when transactions of the role are not READ COMMITTED by default.
func TestDefaultIsolationOfTheRoleIsAny(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
		}))
		v := counts("isolated")
		w := openWorld(t, pool, v)
		w.start(w.runner(Config{}, v))
		w.wait(w.append("s", added{7}), v)
		w.wait(w.append("s", other{"nobody folds this"}), v)
		w.wait(w.append("s", added{1}), v)
		if got := rowsOf(w, v)["s"]; got.Sum != 8 {
			t.Errorf("%s: the row is %+v", level, got)
		}
	}
}

// A projection of the same name in another store of the database would fold its events onto the first one's rows.
func TestTwoStoresDoNotShareATable(t *testing.T) {
	t.Parallel()
	first, second := counts("shared"), counts("shared")
	second.StoreSchema = "second"
	w := newWorld(t, first)
	if err := postgres.Migrate(t.Context(), w.pool, postgres.MigrateConfig{Schema: "second"}); err != nil {
		t.Fatal(err)
	}
	if err := Install(t.Context(), w.pool, second); err == nil || !strings.Contains(err.Error(), "set Schema") {
		t.Fatalf("installed over the table of another store: %v", err)
	}
	second.Schema = "second_models"
	w.install(second)
	w.install(second) // finds it installed
}

// Rows of a consumer that is no longer registered have seen events that a new registration will read again.
func TestInstallRefusesRowsOfAnEarlierRegistration(t *testing.T) {
	t.Parallel()
	v := counts("again")
	w := newWorld(t, v)
	stop := w.start(w.runner(Config{}, v))
	w.wait(w.append("s", added{7}), v)
	stop()
	w.exec("DELETE FROM daybook.consumers WHERE consumer = 'again'")
	if err := Install(t.Context(), w.pool, v); err == nil || !strings.Contains(err.Error(), "drop it") {
		t.Fatalf("installed onto old rows: %v", err)
	}
	w.exec("DROP TABLE readmodels.again_v1 CASCADE")
	w.install(v)
	w.start(w.runner(Config{}, v))
	w.wait(w.append("s", added{1}), v)
	if got := rowsOf(w, v)["s"].Sum; got != 8 {
		t.Errorf("the row says %d", got)
	}
}

// One place in the log cannot serve tables in two schemas.
func TestAnotherSchemaNeedsAnotherVersion(t *testing.T) {
	t.Parallel()
	v := counts("moved")
	w := newWorld(t, v)
	v.Schema = "elsewhere"
	e := mustBe[*ShapeError](t, Install(t.Context(), w.pool, v))
	if !strings.Contains(e.Error(), "elsewhere") {
		t.Errorf("the error is %v", e)
	}
	v.Version = 2
	w.install(v)
}

func TestLeaseIsBounded(t *testing.T) {
	t.Parallel()
	v := counts("long")
	if _, err := NewRunner(&pgxpool.Pool{}, deadSource{}, Config{Lease: 25 * time.Hour}, v); err == nil || !strings.Contains(err.Error(), "Config.Lease") {
		t.Errorf("a lease that the server cannot count: %v", err)
	}
	w := newWorld(t, v)
	w.start(w.runner(Config{Lease: 24 * time.Hour}, v))
	w.wait(w.append("s", added{7}), v)
}

// fragile panics when it is read back.
type fragile string

func (f fragile) MarshalText() ([]byte, error) { return []byte(f), nil }

func (f *fragile) UnmarshalText(b []byte) error {
	if string(b) == "broken" {
		panic("cannot read this")
	}
	*f = fragile(b)
	return nil
}

// A panic of a type's own unmarshaller ends neither the program nor the other projections.
func TestUnmarshallerThatPanics(t *testing.T) {
	t.Parallel()
	type held struct{ Text fragile }
	events := eventstore.NewCatalog(eventstore.TypeOf[held]("test.held"), eventstore.TypeOf[added]("test.added"))
	v := View[string, count]{Name: "fragile", Version: 1, Events: events, Folds: []Fold[string, count]{
		On(ByStream, func(c count, _ Event[held]) count { c.Events++; return c }),
	}}
	healthy := counts("healthy")
	w := newWorld(t, v, healthy)
	w.start(w.runner(Config{OnFailure: Stop, Attempts: 1}, v, healthy))
	data, err := events.Encode(held{"broken"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.store.Append(t.Context(), eventstore.To(stream("s"), eventstore.AnyVersion, data))
	if err != nil {
		t.Fatal(err)
	}
	err = NewWaiter(w.pool, WaiterConfig{}).WaitFor(t.Context(), r.Token, v)
	if e := mustBe[*StoppedError](t, err); !strings.Contains(e.Reason, "panicked") {
		t.Errorf("the reason is %q", e.Reason)
	}
	w.wait(w.append("s", added{7}), healthy)
}

// The driver wraps such times around to one that looks sound.
func TestTimesThatNoColumnHolds(t *testing.T) {
	t.Parallel()
	type at struct{ When time.Time }
	far := time.Unix(1<<61, 0)
	v := View[string, at]{Name: "far", Version: 1, Events: testEvents, Folds: []Fold[string, at]{
		On(ByStream, func(s at, _ Event[added]) at { return at{far} }),
	}}
	w := newWorld(t, v)
	w.start(w.runner(Config{OnFailure: Stop, Attempts: 1}, v))
	err := NewWaiter(w.pool, WaiterConfig{}).WaitFor(t.Context(), w.append("s", added{7}), v)
	if e := mustBe[*StoppedError](t, err); !strings.Contains(e.Reason, "timestamptz can hold") {
		t.Errorf("the reason is %q", e.Reason)
	}
}

// A place in the log that was deleted by hand is no other process's, and is reported.
func TestDeletedPlaceIsReported(t *testing.T) {
	t.Parallel()
	v := counts("placeless")
	w := newWorld(t, v)
	r := w.runner(Config{}, v)
	w.start(r)
	w.wait(w.append("s", added{7}), v)
	w.exec("DELETE FROM daybook.segments")
	w.append("s", added{7})
	livetest.Eventually(t, "the missing place in the health", func() bool {
		h := r.Health(t.Context())
		return !h.Ready && strings.Contains(h.Parts[0].Reason, "not installed")
	})
}

// The head of the log may be the position of a message instead of an event.
func TestWaitForAHeadThatIsNoEvent(t *testing.T) {
	t.Parallel()
	v := counts("head")
	w := newWorld(t, v)
	w.append("s", added{7})
	w.exec(`WITH n AS (SELECT nextval('daybook.log_position') AS p)
		INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, data) SELECT p, p, 0, 't', 'k', '' FROM n`)
	token, err := w.store.HeadToken(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	mustBe[*StaleError](t, NewWaiter(w.pool, WaiterConfig{}).WaitFor(ctx, token, v))
	w.start(w.runner(Config{}, v))
	w.wait(token, v)
}
