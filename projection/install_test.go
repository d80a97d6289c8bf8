package projection

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

func TestInstallByManyAtOnce(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	v, p := counts("many"), logged("many_log")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			own, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			for range 3 {
				if err := Install(t.Context(), own, v, p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	w := openWorld(t, pool)
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.segments WHERE first_partition = 0 AND last_partition = (SELECT partitions - 1 FROM daybook.store)"); n != 2 {
		t.Errorf("%d segments, want 2", n)
	}
}

func TestNotInstalled(t *testing.T) {
	t.Parallel()
	v := counts("absent")
	w := newWorld(t)
	e := mustBe[*NotInstalledError](t, w.runner(Config{}, v).Run(t.Context()))
	if e.Projection != "absent" || !strings.Contains(e.Error(), "projection.Install") {
		t.Errorf("the error is %v", e)
	}
	_, err := v.Get(t.Context(), w.pool, "x")
	mustBe[*NotInstalledError](t, err)
	empty := postgrestest.Empty(t)
	if e := mustBe[*NotInstalledError](t, Install(t.Context(), empty, v)); !strings.Contains(e.Error(), "call postgres.Migrate or run `daybook migrate` first") ||
		strings.Contains(e.Error(), "projection.Install") {
		t.Errorf("without a store: %v", e)
	}
}

func TestAnotherShapeNeedsAnotherVersion(t *testing.T) {
	t.Parallel()
	v := counts("shaped")
	w := newWorld(t, v)
	token := w.append("s", added{7})
	type wider struct {
		Sum  int64
		Note string
	}
	changed := View[string, wider]{
		Name: "shaped", Version: 1, Events: testEvents,
		Folds: []Fold[string, wider]{On(ByStream, func(s wider, e Event[added]) wider { return wider{s.Sum + e.Payload.N, "new"} })},
	}
	for _, err := range []error{Install(t.Context(), w.pool, changed), w.runner(Config{}, changed).Run(t.Context())} {
		if e := mustBe[*ShapeError](t, err); !strings.Contains(e.Have, "events bigint") || !strings.Contains(e.Want, "note text") || !strings.Contains(e.Error(), "raise Version") {
			t.Errorf("the error is %v", e)
		}
	}
	changed.Version = 2
	w.install(changed)
	w.start(w.runner(Config{}, v))
	w.start(w.runner(Config{}, changed))
	w.wait(token, v, changed) // both versions live side by side
	if got := rowsOf(w, v)["s"].Sum; got != 7 {
		t.Errorf("version 1 says %d", got)
	}
	if note := ask[string](w, "SELECT note FROM readmodels.shaped WHERE key = 's'"); note != "new" {
		t.Errorf("the plain view shows %q", note)
	}
}

// A table dropped by hand is made again and filled from the beginning of the log.
func TestInstallMakesADroppedTableAgain(t *testing.T) {
	t.Parallel()
	v := counts("dropped")
	w := newWorld(t, v)
	token := w.append("s", added{7})
	stop := w.start(w.runner(Config{}, v))
	w.wait(token, v)
	stop()
	w.exec("DROP TABLE readmodels.dropped_v1 CASCADE")
	if e := mustBe[*NotInstalledError](t, w.runner(Config{}, v).Run(t.Context())); !strings.Contains(e.Missing, "dropped_v1") {
		t.Errorf("the error is %v", e)
	}
	w.install(v)
	w.start(w.runner(Config{}, v))
	w.wait(token, v)
	if got := rowsOf(w, v)["s"].Sum; got != 7 {
		t.Errorf("the row says %d", got)
	}
}

// Whatever the schemas and columns are called.
func TestOddNames(t *testing.T) {
	t.Parallel()
	const schema = "My Store-1"
	pool := postgrestest.Empty(t)
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{Schema: schema}); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.New(t.Context(), pool, postgres.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	w := &world{t, pool, store}
	type key struct {
		User  string `db:"user"`
		Order int    `db:"Order \"no\""`
	}
	type state struct {
		Select int64 `db:"select"`
		C0, N  int64
	}
	v := View[key, state]{
		Name: "table", Version: 1, Events: testEvents, Schema: "Read-Models", StoreSchema: schema,
		Folds: []Fold[key, state]{On(func(e Event[added]) key { return key{e.Stream.ID, int(e.Payload.N)} },
			func(s state, e Event[added]) state { return state{s.Select + 1, 2, 3} })},
	}
	w.install(v)
	w.start(w.runner(Config{}, v))
	w.wait(w.append("a", added{1}, added{1}, added{2}), v)
	if diff := cmp.Diff(map[key]state{{"a", 1}: {2, 2, 3}, {"a", 2}: {1, 2, 3}}, rowsOf(w, v)); diff != "" {
		t.Error(diff)
	}
}

// The program's role needs no right to create anything.
func TestRunsWithoutRightsToCreate(t *testing.T) {
	t.Parallel()
	v := counts("granted")
	w := newWorld(t, v)
	w.exec(`DO $$ BEGIN
	  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'daybook_projection_app') THEN CREATE ROLE daybook_projection_app; END IF;
	EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	for _, sql := range []string{
		"GRANT USAGE ON SCHEMA readmodels, daybook TO daybook_projection_app",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA readmodels TO daybook_projection_app",
		"GRANT SELECT ON ALL TABLES IN SCHEMA daybook TO daybook_projection_app",
		"GRANT UPDATE ON daybook.segments, daybook.consumers, daybook.checkpoints TO daybook_projection_app",
		"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA daybook TO daybook_projection_app",
	} {
		w.exec(sql)
	}
	cfg := w.pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = "daybook_projection_app"
	app, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(app.Close)
	if _, err := app.Exec(t.Context(), "CREATE TABLE readmodels.mine (n int)"); err == nil {
		t.Fatal("the role may create tables")
	}
	r, err := NewRunner(app, w.store.Log(), Config{}, v)
	if err != nil {
		t.Fatal(err)
	}
	w.start(r)
	w.wait(w.append("s", added{1}), v)
}

func TestDefinitionsAreChecked(t *testing.T) {
	t.Parallel()
	pool := &pgxpool.Pool{}
	type unknown struct{}
	fold := On(ByStream, count.added)
	ok := counts("ok")
	for want, defs := range map[string][]Definition{
		`Name: "Bad Name"`:          {View[string, count]{Name: "Bad Name", Version: 1, Events: testEvents, Folds: []Fold[string, count]{fold}}},
		`not ending like "_v1"`:     {counts("a_v1")},
		"Version: 0":                {View[string, count]{Name: "a", Events: testEvents, Folds: []Fold[string, count]{fold}}},
		"Events: is nil":            {View[string, count]{Name: "a", Version: 1, Folds: []Fold[string, count]{fold}}},
		"Folds: is empty":           {View[string, count]{Name: "a", Version: 1, Events: testEvents}},
		"Folds[0]: is zero":         {View[string, count]{Name: "a", Version: 1, Events: testEvents, Folds: []Fold[string, count]{{}}}},
		"projection.unknown is not": {View[string, count]{Name: "a", Version: 1, Events: testEvents, Folds: []Fold[string, count]{On(ByStream, func(c count, _ Event[unknown]) count { return c })}}},
		"is a pointer":              {View[string, *count]{Name: "a", Version: 1, Events: testEvents, Folds: []Fold[string, *count]{On(ByStream, func(c *count, _ Event[added]) *count { return c })}}},
		"Handlers: is empty":        {Projection{Name: "a", Version: 1, Events: testEvents}},
		"Handlers[0]: is zero":      {Projection{Name: "a", Version: 1, Events: testEvents, Handlers: []Handler{{}}}},
		"the name is taken":         {ok, ok},
		"is about one store":        {ok, View[string, count]{Name: "b", Version: 1, Events: testEvents, Folds: []Fold[string, count]{fold}, StoreSchema: "x"}},
		"argument 1 is nil":         {nil},
		"pass it to the Inline":     {View[string, count]{Name: "b", Version: 1, Events: testEvents, Folds: []Fold[string, count]{fold}, Inline: true}},
		"there are no projections":  {},
	} {
		if _, err := NewRunner(pool, deadSource{}, Config{}, defs...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	_, err := NewRunner(nil, nil, Config{Lease: 1, BatchSize: -1, Attempts: -1}, ok)
	for _, want := range []string{"pool is nil", "source is nil", "Config.Lease", "Config.BatchSize", "Config.Attempts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the joined faults lack %q: %v", want, err)
		}
	}
}

type deadSource struct{}

func (deadSource) ReadPage(context.Context, eventstore.Position, eventstore.Filter, int) (eventstore.Page, error) {
	return eventstore.Page{}, errors.New("dead")
}

func (deadSource) Wait(context.Context, eventstore.Position) error { return errors.New("dead") }

func TestSetupRunsOnce(t *testing.T) {
	t.Parallel()
	p := logged("set_up")
	n := 0
	setup := p.Setup
	p.Setup = func(ctx context.Context, tx pgx.Tx) error { n++; return setup(ctx, tx) }
	w := newWorld(t, p)
	w.install(p)
	if n != 1 {
		t.Errorf("Setup ran %d times", n)
	}
	p.Name, p.Setup = "set_up_badly", func(context.Context, pgx.Tx) error { return errors.New("no room") }
	if err := Install(t.Context(), w.pool, p); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a failed Setup gives %v", err)
	}
	mustBe[*NotInstalledError](t, w.runner(Config{}, p).Run(t.Context()))
}

func TestSetupFindsItsSchemaWhateverIsInstalledFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := Projection{
		Name: "first_of_all", Version: 1, Events: testEvents,
		Handlers: []Handler{Handle(func(context.Context, pgx.Tx, Event[added]) error { return nil })},
		Setup: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "CREATE TABLE readmodels.first_of_all (n bigint)")
			return err
		},
	}
	w.install(p)
	w.install(p) // registered: Setup is not run again
}

// A transaction that has read the plain view and stays open must not make the readers that come later wait for it.
func TestInstallOfAVersionLetsReadersIn(t *testing.T) {
	t.Parallel()
	view := counts("repointed")
	w := newWorld(t, view)
	open, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(t.Context()) }()
	if _, err := open.Exec(t.Context(), "SELECT FROM readmodels.repointed"); err != nil {
		t.Fatal(err)
	}
	view.Version = 2
	installed := make(chan error, 1)
	go func() { installed <- Install(t.Context(), w.pool, view) }()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := w.pool.Exec(ctx, "SELECT pg_sleep(0.05); SELECT FROM readmodels.repointed"); err != nil {
			t.Fatalf("a reader beside the installation: %v", err)
		}
		cancel()
	}
	select {
	case err := <-installed:
		t.Fatalf("the view was replaced under a transaction that has read it: %v", err)
	default:
	}
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-installed; err != nil {
		t.Fatal(err)
	}
}
