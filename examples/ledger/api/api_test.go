package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/examples/ledger/api"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/commands"
	"github.com/daybook-go/daybook/examples/ledger/reports"
	later "github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/projection"
)

// world is an API on a database of its own, whose read models move when they are told to.
type world struct {
	http.Handler
	pool   *pgxpool.Pool
	store  *postgres.Store
	book   *book.Book
	runner *projection.Runner
	bus    *bus.Bus
	config api.Config
	log    *safeBuffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{pool: postgrestest.New(t), log: new(safeBuffer)}
	if err := projection.Install(t.Context(), w.pool, reports.All()...); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.store, err = postgres.New(t.Context(), w.pool, postgres.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.store.Close)
	if w.runner, err = projection.NewRunner(w.pool, w.store.Log(), projection.Config{}, reports.All()...); err != nil {
		t.Fatal(err)
	}
	w.book = book.New(w.store, w.store.Snapshots(), nil, book.Cached(1<<20))
	t.Cleanup(func() {
		if err := w.book.Drain(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	logger := slog.New(slog.NewTextHandler(w.log, nil))
	w.bus = commands.NewBus(w.store, w.book, commands.Config{TellIfRunning: true})
	queue, err := later.NewQueue(w.pool, later.QueueConfig{Wake: w.store.Wake})
	if err != nil {
		t.Fatal(err)
	}
	w.config = api.Config{Bus: w.bus, Book: w.book, Store: w.store, DB: w.pool, Operations: queue, Logger: logger}
	w.serve(t)
	return w
}

// serve makes the handler of the config.
func (w *world) serve(t *testing.T) {
	t.Helper()
	handler, err := api.New(w.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handler.Close)
	w.Handler = handler
}

// catchUp lets the read models come to a token.
func (w *world) catchUp(t *testing.T, token string) {
	t.Helper()
	parsed, err := eventstore.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.runner.CatchUp(t.Context(), parsed); err != nil {
		t.Fatal(err)
	}
}

func (w *world) events(t *testing.T) (n int) {
	t.Helper()
	if err := w.pool.QueryRow(t.Context(), "SELECT count(*) FROM daybook.events").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
	took   time.Duration
}

// send makes a request; headers are "Name: value".
func (w *world) send(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	if method != http.MethodGet && method != http.MethodHead && r.Header.Get(api.KeyHeader) == "" {
		r.Header.Set(api.KeyHeader, uuid.NewString())
	}
	recorder := httptest.NewRecorder()
	began := time.Now()
	w.ServeHTTP(recorder, r)
	a := answer{status: recorder.Code, header: recorder.Header(), text: recorder.Body.String(), took: time.Since(began)}
	if method != http.MethodHead && a.status != http.StatusNotModified {
		if err := json.Unmarshal([]byte(a.text), &a.body); err != nil {
			t.Fatalf("%s %s: %v in %q", method, path, err, a.text)
		}
	}
	if a.status >= 400 {
		if got := a.header.Get("Content-Type"); got != "application/problem+json" && path != "/readyz" {
			t.Errorf("%s %s: a problem is of type %q", method, path, got)
		}
	}
	return a
}

// post posts an entry under a key of its own, unless one is given.
func (w *world) post(t *testing.T, body string, headers ...string) answer {
	t.Helper()
	return w.send(t, http.MethodPost, "/entries", body, append(headers, "Content-Type: application/json")...)
}

// lunch is a valid entry.
const lunch = `{"date":"2025-01-31","description":"Lunch","key":"k1","postings":[
	{"account":"expenses:food","amount":"4.00","commodity":"EUR"},{"account":"assets:cash","amount":"-4.00","commodity":"EUR"}]}`

// unnamed is the same entry without a name of its own.
var unnamed = strings.Replace(lunch, `"key":"k1",`, "", 1)

// says reports what an answer lacks.
func (a answer) says(t *testing.T, status int, want map[string]any) {
	t.Helper()
	if a.status != status {
		t.Errorf("the status is %d, want %d: %s", a.status, status, a.text)
	}
	for name, value := range want {
		if text, ok := a.body[name].(string); ok && value != nil && strings.Contains(text, value.(string)) && value != "" {
			continue
		}
		if a.body[name] != value {
			t.Errorf("%s is %v, want %v: %s", name, a.body[name], value, a.text)
		}
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
