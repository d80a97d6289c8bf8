package commandhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The domain of these tests is an account.

type accountEvent interface{ isAccountEvent() }

type (
	opened    struct{ Owner string }
	deposited struct{ Cents int64 }
	withdrawn struct{ Cents int64 }
	closed    struct{}
)

func (opened) isAccountEvent()    {}
func (deposited) isAccountEvent() {}
func (withdrawn) isAccountEvent() {}
func (closed) isAccountEvent()    {}

type account struct {
	Owner   string
	Balance int64
	Closed  bool
}

func (a account) Evolve(e accountEvent) account {
	switch e := e.(type) {
	case opened:
		a.Owner = e.Owner
	case deposited:
		a.Balance += e.Cents
	case withdrawn:
		a.Balance -= e.Cents
	case closed:
		a.Closed = true
	}
	return a
}

var (
	errFunds  = errors.New("account: not enough money")
	errTooBig = errors.New("account: more than anybody may take at once")
)

type open struct {
	ID    string `json:"-"`
	Owner string `json:"owner"`
}

type deposit struct {
	ID    string `json:"-"`
	Cents int64  `json:"cents"`
}

type withdraw struct {
	ID    string `json:"-"`
	Cents int64  `json:"cents"`
	Note  string `json:"note,omitempty"`
}

type closing struct{ ID string }

// anything is a command whose handler is up to the test.
type anything struct {
	Secret string `json:"secret,omitempty"`
}

// homeless is a command without a handler.
type homeless struct {
	Any string `json:"any,omitempty"`
}

func (c open) Decide(a account) ([]accountEvent, error) {
	if a.Owner != "" {
		return nil, aggregate.ErrExists
	}
	return []accountEvent{opened{c.Owner}}, nil
}

func (c deposit) Decide(account) ([]accountEvent, error) {
	return []accountEvent{deposited{c.Cents}}, nil
}

func (c withdraw) Decide(a account) ([]accountEvent, error) {
	switch {
	case c.Cents > 1_000_000:
		return nil, errTooBig
	case c.Cents > a.Balance:
		return nil, errFunds
	}
	return []accountEvent{withdrawn{c.Cents}}, nil
}

func (c withdraw) Validate() error {
	if c.Cents <= 0 {
		return errors.New("cents must be positive")
	}
	return nil
}

func (c closing) Decide(account) ([]accountEvent, error) { return []accountEvent{closed{}}, nil }

var (
	openType     = bus.TypeOf[open]("account.open")
	depositType  = bus.TypeOf[deposit]("account.deposit")
	withdrawType = bus.TypeOf[withdraw]("account.withdraw")
	closeType    = bus.TypeOf[closing]("account.close")
	anythingType = bus.TypeOf[anything]("test.anything", bus.WithoutKey())

	accountType = aggregate.Define("account", account.Evolve, eventstore.NewCatalog(
		eventstore.TypeOf[opened]("account.opened"), eventstore.TypeOf[deposited]("account.deposited"),
		eventstore.TypeOf[withdrawn]("account.withdrawn"), eventstore.TypeOf[closed]("account.closed")),
		aggregate.Refuses("funds", errFunds))

	problems = commandhttp.NewProblems("urn:bank:", commandhttp.ProblemType{
		Name: "funds", Title: "Not enough money", Remedy: "take less", For: errFunds, Code: "funds",
	})
)

// world is an API on a store, over HTTP.
type world struct {
	store    *memory.Store
	bus      *bus.Bus
	accounts *aggregate.Repository[account, accountEvent]
	api      *commandhttp.API
	server   *httptest.Server
	log      *safeBuffer
	// handle is the handler of anything, wait the Wait of tests that have one.
	handle func(ctx context.Context, c anything) (bus.Reply, error)
	wait   commandhttp.WaitFunc
	// inner is a gate of the bus, if there is one.
	inner *admission.Gate
}

// admit is the place of the inner gate.
func (w *world) admit() bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
			if w.inner == nil {
				return next(ctx, c)
			}
			return bus.Admit(w.inner)(next)(ctx, c)
		}
	}
}

// caller is who the test's headers say: "X-Tenant", "X-Actor" and "X-Class".
func caller(r *http.Request) (commandhttp.Caller, error) {
	switch r.Header.Get("X-Actor") {
	case "stranger":
		return commandhttp.Caller{}, commandhttp.ErrUnauthenticated
	case "villain":
		return commandhttp.Caller{}, &bus.ForbiddenError{}
	}
	class, err := admission.ParseClass(r.Header.Get("X-Class"))
	return commandhttp.Caller{Tenant: r.Header.Get("X-Tenant"), Actor: r.Header.Get("X-Actor"), Class: class}, err
}

// newWorld makes an API; change may change its config.
func newWorld(t testing.TB, change func(*world, *commandhttp.Config), keys ...bus.IdempotentOption) *world {
	t.Helper()
	store := memory.New(memory.Config{})
	w := &world{store: store, accounts: aggregate.NewRepository(store, accountType), log: new(safeBuffer)}
	logger := slog.New(slog.NewTextHandler(w.log, nil))
	w.bus = bus.New(bus.Config{Logger: slog.New(slog.DiscardHandler)}, bus.Validate(), w.admit(), bus.Idempotent(store, keys...))
	bus.HandleAggregate(w.bus, openType, w.accounts, func(c open) string { return c.ID }, open.Decide)
	bus.HandleAggregate(w.bus, depositType, w.accounts, func(c deposit) string { return c.ID }, deposit.Decide)
	bus.HandleAggregate(w.bus, withdrawType, w.accounts, func(c withdraw) string { return c.ID }, withdraw.Decide)
	bus.HandleAggregate(w.bus, closeType, w.accounts, func(c closing) string { return c.ID }, closing.Decide)
	bus.Handle(w.bus, anythingType, func(ctx context.Context, c anything) (bus.Reply, error) { return w.handle(ctx, c) })

	cfg := commandhttp.Config{
		Bus: w.bus, Caller: caller, Problems: problems, Logger: logger, WaitParameter: "wait",
		Tokens: commandhttp.Tokens{Epoch: store.Epoch(), Partitions: store.Partitions()},
	}
	if change != nil {
		change(w, &cfg)
	}
	var err error
	if w.api, err = commandhttp.New(cfg); err != nil {
		t.Fatal(err)
	}
	w.endpoints()
	w.server = httptest.NewServer(w.api)
	t.Cleanup(func() {
		w.api.Close()
		w.server.Client().CloseIdleConnections()
		w.server.Close()
	})
	return w
}

type accountView struct {
	Owner   string `json:"owner"`
	Balance int64  `json:"balance"`
}

// versionOf is what commands show.
func versionOf(reply bus.Reply) any { return map[string]any{"version": reply.Version} }

func (w *world) endpoints() {
	commandhttp.Command(w.api, "PUT /accounts/{id}", commandhttp.Endpoint[open]{
		IfMatch: commandhttp.Optional, Status: http.StatusCreated, Render: versionOf,
		Fill:     func(r *http.Request, c *open) error { c.ID = r.PathValue("id"); return nil },
		Location: func(_ *http.Request, c open, _ bus.Reply) string { return "/accounts/" + c.ID },
	})
	commandhttp.Command(w.api, "POST /accounts/{id}/deposits", commandhttp.Endpoint[deposit]{
		IfMatch: commandhttp.Optional, Status: http.StatusCreated, Render: versionOf,
		Fill: func(r *http.Request, c *deposit) error { c.ID = r.PathValue("id"); return nil },
	})
	commandhttp.Command(w.api, "POST /accounts/{id}/withdrawals", commandhttp.Endpoint[withdraw]{
		IfMatch: commandhttp.Optional, Status: http.StatusCreated, Render: versionOf,
		Fill: func(r *http.Request, c *withdraw) error { c.ID = r.PathValue("id"); return nil },
		Location: func(_ *http.Request, c withdraw, reply bus.Reply) string {
			return fmt.Sprintf("/accounts/%s?at=%d", c.ID, reply.Version)
		},
	})
	commandhttp.Command(w.api, "DELETE /accounts/{id}", commandhttp.Endpoint[closing]{
		NoBody: true, IfMatch: commandhttp.Required, Key: commandhttp.KeyOptional,
		Fill: func(r *http.Request, c *closing) error { c.ID = r.PathValue("id"); return nil },
	})
	commandhttp.Command(w.api, "POST /anything", commandhttp.Endpoint[anything]{Class: admission.Bulk})
	commandhttp.Command(w.api, "POST /homeless", commandhttp.Endpoint[homeless]{})
	commandhttp.Query(w.api, "GET /accounts/{id}", commandhttp.Read[aggregate.Loaded[account]]{
		Load: func(ctx context.Context, r *http.Request) (aggregate.Loaded[account], error) {
			return w.accounts.Load(ctx, r.PathValue("id"))
		},
		Version: func(a aggregate.Loaded[account]) eventstore.Version { return a.Version },
		Render:  func(a aggregate.Loaded[account]) any { return accountView{a.State.Owner, a.State.Balance} },
		Stale: func(a aggregate.Loaded[account], lag commandhttp.Lag) any {
			return map[string]any{"balance": a.State.Balance, "stale": lag}
		},
	})
	commandhttp.Query(w.api, "GET /total", commandhttp.Read[map[string]int]{
		Load: func(context.Context, *http.Request) (map[string]int, error) { return map[string]int{"total": 1}, nil },
	})
	commandhttp.Handle(w.api, "GET /healthz", commandhttp.Plain{
		Class: admission.Operator, Public: true,
		Serve: func(w http.ResponseWriter, _ *http.Request) error {
			return commandhttp.WriteJSON(w, http.StatusOK, map[string]string{"state": "alive"})
		},
	})
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// request makes one; headers are "Name: value", and an Idempotency-Key of "" sends none.
func (w *world) request(t testing.TB, method, path, body string, headers ...string) *http.Request {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, w.server.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Content-Type" {
			r.Header.Del(name)
		}
		r.Header.Add(name, value)
	}
	return r
}

// send makes a request and reads the answer.
func (w *world) send(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	a, err := w.try(w.request(t, method, path, body, headers...))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (w *world) try(r *http.Request) (answer, error) {
	response, err := w.server.Client().Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	a := answer{status: response.StatusCode, header: response.Header, text: string(text)}
	if err == nil && r.Method != http.MethodHead && strings.Contains(response.Header.Get("Content-Type"), "json") {
		err = json.Unmarshal(text, &a.body)
	}
	if err == nil && a.status >= 400 && a.header.Get("Content-Type") != "application/problem+json" {
		err = errors.New("a problem of another form: " + a.text)
	}
	return a, err
}

// says reports what an answer lacks.
func (a answer) says(t testing.TB, status int, want map[string]any) {
	t.Helper()
	if a.status != status {
		t.Errorf("the status is %d, want %d: %s", a.status, status, a.text)
	}
	for name, value := range want {
		if text, ok := a.body[name].(string); ok && value != nil && value != "" && strings.Contains(text, value.(string)) {
			continue
		}
		if a.body[name] != value {
			t.Errorf("%s is %v, want %v: %s", name, a.body[name], value, a.text)
		}
	}
}

// rich opens an account with 100 cents, at version 2.
func (w *world) rich(t testing.TB, id string) {
	t.Helper()
	for _, decide := range []func(account) ([]accountEvent, error){open{Owner: "ada"}.Decide, deposit{Cents: 100}.Decide} {
		if _, err := w.accounts.Handle(context.Background(), id, decide); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) load(t testing.TB, id string) aggregate.Loaded[account] {
	t.Helper()
	loaded, err := w.accounts.Load(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
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
