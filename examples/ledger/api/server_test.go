package api_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/examples/ledger/api"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/commands"
)

func TestMethodsAndPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"PUT", "/entries", 405, "POST"},
		{"GET", "/entries", 405, "POST"},
		{"POST", "/balances", 405, "GET, HEAD"},
		{"DELETE", cash, 405, "GET, HEAD"},
		{"PATCH", "/entries/k1", 405, "GET, HEAD"},
		{"POST", "/healthz", 405, "GET, HEAD"},
		{"GET", "/", 404, ""},
		{"GET", "/accounts", 405, "POST"},
		{"DELETE", "/accounts/cash", 405, "GET, HEAD, PUT"},
		{"GET", "/accounts/cash", 404, ""},
		{"GET", "/operations/1", 404, ""},
		{"POST", "/openapi.yaml", 405, "GET, HEAD"},
		{"GET", "/problems", 200, ""},
		{"GET", "/balances/", 404, ""},
		{"GET", "/healthz", 200, ""},
		{"GET", "/readyz", 200, ""},
	} {
		a := w.send(t, c.method, c.path, "")
		if a.says(t, c.status, nil); a.header.Get("Allow") != c.allow || c.status >= 400 && a.body["remedy"] == nil {
			t.Errorf("%s %s: Allow is %q, want %q: %s", c.method, c.path, a.header.Get("Allow"), c.allow, a.text)
		}
	}
}

// broken is a store and a database that fail, or panic.
type broken struct {
	*memory.Store
	err error
}

func (b broken) fail() error {
	if b.err == nil {
		panic("Lunch for 4.00")
	}
	return b.err
}

func (b broken) Append(context.Context, ...eventstore.Write) (eventstore.AppendResult, error) {
	return eventstore.AppendResult{}, b.fail()
}
func (b broken) AppendOnce(context.Context, eventstore.Claim, eventstore.Outcome, ...eventstore.Write) (eventstore.Outcome, error) {
	return eventstore.Outcome{}, b.fail()
}
func (b broken) WithStreamsLocked(context.Context, *eventstore.Claim, []eventstore.StreamID, func(context.Context, eventstore.LockedStreams) error) error {
	return b.fail()
}
func (b broken) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, b.fail() }
func (b broken) HeadToken(context.Context) (eventstore.Token, error) {
	return eventstore.Token{}, b.fail()
}
func (b broken) Epoch() uuid.UUID { return uuid.UUID{1} }
func (b broken) Partitions() int  { return 64 }
func (b broken) Health(context.Context) eventstore.Health {
	return eventstore.Health{State: "unreachable", Reason: b.fail().Error()}
}

// What goes wrong inside is logged and not shown, and neither has what was posted.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
		kind   string
	}{
		"panic":       {nil, 500, "fault"},
		"away":        {errors.New("dial tcp 10.0.0.1:5432: refused"), 503, "unavailable"},
		"busy":        {eventstore.ErrBusy, 503, "busy"},
		"unconfirmed": {eventstore.ErrUnconfirmed, 503, "unconfirmed"},
		"unknown":     {&eventstore.UnknownTypeError{Type: "entry.shredded"}, 500, "fault"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := broken{memory.New(memory.Config{}), c.err}
			w := &world{log: new(safeBuffer)}
			ledger := book.New(store, store.Snapshots(), nil)
			w.config = api.Config{
				Bus: commands.NewBus(store, ledger, commands.Config{}), Book: ledger, Store: store, DB: store,
				Logger: slog.New(slog.NewTextHandler(w.log, nil)),
			}
			w.serve(t)
			posted := w.post(t, lunch)
			posted.says(t, c.status, map[string]any{"type": "urn:daybook:ledger:" + c.kind})
			if c.status == 503 && (posted.header.Get("Retry-After") == "" || !strings.Contains(posted.text, "with the same Idempotency-Key")) {
				t.Errorf("nobody can repeat this: %v %s", posted.header, posted.text)
			}
			read := w.send(t, http.MethodGet, cash, "")
			read.says(t, c.status, map[string]any{"type": "urn:daybook:ledger:" + c.kind})
			for what, text := range map[string]string{"answer": posted.text + read.text, "log": w.log.String()} {
				if strings.Contains(text, "Lunch") || strings.Contains(text, "4.00") || what == "answer" && strings.Contains(text, "10.0.0.1") {
					t.Errorf("the %s says too much:\n%s", what, text)
				}
			}
			if lines := strings.Count(w.log.String(), "level=ERROR"); lines != 2 {
				t.Errorf("%d errors are logged, want 2:\n%s", lines, w.log)
			}
			if c.err != nil {
				for range 2 {
					if a := w.send(t, http.MethodGet, "/readyz", ""); a.status != 503 || a.body["state"] != "unreachable" || strings.Contains(a.text, "10.0.0.1") {
						t.Errorf("readiness: %s", a.text)
					}
				}
				said := 0
				for line := range strings.Lines(w.log.String()) {
					if strings.Contains(line, `level=WARN msg="not ready" state=unreachable`) && strings.Contains(line, strconv.Quote(c.err.Error())) {
						said++
					}
				}
				if said != 1 {
					t.Errorf("%d lines say that it is not ready, and why; want 1:\n%s", said, w.log)
				}
			}
			w.send(t, http.MethodGet, "/healthz", "").says(t, http.StatusOK, nil)
		})
	}
}

// Over a connection: a client that breaks off while it sends, and an answer that is broken off on purpose.
func TestBodyThatEndsEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := httptest.NewServer(w)
	defer server.Close()
	body := io.MultiReader(strings.NewReader(lunch[:40]), failing{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/entries", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(api.KeyHeader, "k1")
	if response, err := server.Client().Do(r); err == nil {
		response.Body.Close()
		t.Errorf("the request was answered with %d", response.StatusCode)
	}
	if n := w.events(t); n != 0 {
		t.Errorf("%d events are stored", n)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the cable is cut") }
