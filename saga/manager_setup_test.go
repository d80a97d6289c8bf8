package saga

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// wrong is a definition with a fault.
type wrong struct{ scripted }

func (*wrong) Parts() (flow.Parts, error) { return flow.Parts{}, errors.New("as it is wrong") }
func (*wrong) Validate() error            { return errors.New("as it is wrong") }

func TestManagersAreChecked(t *testing.T) {
	t.Parallel()
	_, err := NewManager(nil, nil, nil, Config{Lease: 1, BatchSize: -1, Attempts: -1, KeepEnded: -1, Poll: 1, Timeout: -1})
	for _, want := range []string{
		"pool is nil", "source is nil", "sender is nil", "there are no definitions", "Config.Lease", "Config.BatchSize", "Config.Attempts",
		"Config.KeepEnded", "Config.Poll", "Config.Timeout",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the joined faults lack %q: %v", want, err)
		}
	}
	for want, definitions := range map[string][]Definition{
		"as it is wrong":           {&wrong{}},
		"has its name and version": {script(1), script(1)},
		"definition 2 is nil":      {script(1), nil},
	} {
		if _, err := NewManager(&pgxpool.Pool{}, newPost(), newPost(), Config{}, definitions...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	var fault *DefinitionError
	if _, err := NewManager(&pgxpool.Pool{}, newPost(), newPost(), Config{}, script(1), script(1)); !errors.As(err, &fault) || fault.Saga != "script" {
		t.Errorf("the error is %v", err)
	}
}

func TestSagasAreInstalled(t *testing.T) {
	t.Parallel()
	if err := Install(t.Context(), nil, &wrong{}, nil); err == nil || !strings.Contains(err.Error(), "as it is wrong") || !strings.Contains(err.Error(), "definition 2 is nil") {
		t.Errorf("the error is %v", err)
	}
	w := newScriptWorld(t)
	mustMiss := func(err error, want string) {
		t.Helper()
		var missing *NotInstalledError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v", err)
		}
	}
	mustMiss(w.manager(quick(), script(1)).Run(t.Context()), "call saga.Install")
	done := make(chan error, 4)
	for range 4 {
		go func() { done <- Install(t.Context(), w.pool, script(1), script(2)) }()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := w.value("SELECT string_agg(consumer || ' ' || version || ' ' || kind, ', ' ORDER BY consumer) FROM daybook.consumers"); got != "saga-script 1 saga, saga-script-replies 1 saga" {
		t.Errorf("the consumers are %s", got)
	}
	empty := postgrestest.Empty(t)
	mustMiss(Install(t.Context(), empty, script(1)), "daybook migrate")
	w.exec("UPDATE daybook.consumers SET kind = 'projection'")
	if err := w.manager(quick(), script(1)).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another name") {
		t.Errorf("the error is %v", err)
	}
}

// A role that has what the grants script gives runs sagas.
func TestRoleOfAManager(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1), again{})
	role := "app-" + uuid.NewString()[:8]
	grants, err := postgres.GrantsScript("", role)
	if err != nil {
		t.Fatal(err)
	}
	quoted := pgx.Identifier{role}.Sanitize()
	w.exec("CREATE ROLE " + quoted)
	t.Cleanup(func() { // roles belong to the server, which may live longer than the test
		w.exec("DROP OWNED BY " + quoted)
		w.exec("DROP ROLE " + quoted)
	})
	w.exec(grants, pgx.QueryExecModeSimpleProtocol)
	w.exec("GRANT INSERT ON sent TO " + quoted)
	cfg := w.pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	app, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(app.Close)
	m, err := NewManager(app, w.store.Log(), w.post, quick(), script(1), again{})
	if err != nil {
		t.Fatal(err)
	}
	stop := w.start(m)
	w.walkThrough(m, "x", "idle-", 0)
	stop()
}

// Health tells what is away, what is overdue, and that another process is at work.
func TestHealthOfManagers(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	m := w.manager(quick(), script(1))
	if h := m.Health(t.Context()); h.Ready || h.Reason != "call Run" {
		t.Errorf("before Run it is %+v", h)
	}
	stop := w.start(m)
	livetest.Eventually(t, "it is ready", func() bool { return m.Health(t.Context()).Ready })
	h := m.Health(t.Context())
	var parts []string
	for _, p := range h.Parts {
		parts = append(parts, p.Component)
	}
	if got := strings.Join(parts, ", "); got != "saga script events, saga script replies, saga script timers, saga script manager" {
		t.Errorf("the parts are %s", got)
	}
	other := w.manager(quick(), script(1))
	stopOther := w.start(other)
	livetest.Eventually(t, "the other stands by", func() bool {
		h := other.Health(t.Context())
		return h.Ready && h.Parts[0].State == "standby"
	})
	if err := other.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("run twice: %v", err)
	}
	stop()
	livetest.Eventually(t, "the other takes over", func() bool { return other.Health(t.Context()).Parts[0].State == "running" })
	// R-ST19: a timer that waits is none to complain of, one that nobody fires is: here somebody keeps it locked.
	w.open("x", "timer later 24h", "timer late 1h")
	w.sees("x", 1, "opened")
	if h := other.Health(t.Context()); !h.Ready {
		t.Errorf("with timers that wait: %+v", h)
	}
	stopOther()
	w.exec("UPDATE daybook.timers SET visible_at = clock_timestamp() - interval '5 minutes' WHERE name LIKE '%:late'")
	lock, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "SELECT FROM daybook.timers WHERE name LIKE '%:late' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	w.start(other)
	livetest.Eventually(t, "it is overdue", func() bool {
		h := other.Health(t.Context())
		return !h.Ready && h.State == "overdue" && strings.Contains(h.Reason, "saga script timers overdue: timers are overdue since ")
	})
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "it is ready again", func() bool { return other.Health(t.Context()).Ready })
}
