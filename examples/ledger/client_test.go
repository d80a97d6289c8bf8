package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/examples/ledger/api"
)

// tally is a transport that counts what it has seen, by method, path of the description and status, and holds every request
// and answer against the description of the API. It is safe for concurrent use.
type tally struct {
	t     *testing.T
	paths *http.ServeMux // finds the path
	mu    sync.Mutex
	seen  map[string]int
}

// checks are what a request and its answer are held against; the body is whole, but for an event stream.
var checks []func(t *testing.T, r *http.Request, asked []byte, response *http.Response, body []byte)

// wrongly marks a request that is not as the description wants it, in its context.
type wrongly struct{}

// described are the paths of the description.
var described = regexp.MustCompile(`(?m)^  (/\S*):$`)

func newTally(t *testing.T) *tally {
	l := &tally{t: t, paths: http.NewServeMux(), seen: map[string]int{}}
	for _, m := range described.FindAllSubmatch(api.Description, -1) {
		l.paths.Handle(string(m[1]), http.NotFoundHandler())
	}
	return l
}

// RoundTrip sends a request.
func (l *tally) RoundTrip(r *http.Request) (*http.Response, error) {
	var asked []byte
	if r.Body != nil {
		var err error
		if asked, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(asked))
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	var body []byte
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		if body, err = io.ReadAll(response.Body); err != nil {
			return nil, err
		}
		response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(body))
	}
	_, path := l.paths.Handler(r)
	l.mu.Lock()
	l.seen[fmt.Sprintf("%s %s %d", r.Method, path, response.StatusCode)]++
	l.mu.Unlock()
	for _, check := range checks {
		check(l.t, r, asked, response, body)
	}
	return response, nil
}

// of is how often something was answered.
func (l *tally) of(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[what]
}

// has reports what of a list was not seen.
func (l *tally) has(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range want {
		if l.seen[w] == 0 {
			t.Errorf("no answer was %q; there were %q", w, slices.Sorted(maps.Keys(l.seen)))
		}
	}
}

// caller is a client whose requests and answers are held against the description of the API.
type caller struct {
	url  string
	http *http.Client
}

// said is an answer.
type said struct {
	status int
	header http.Header
	text   string
	body   struct {
		Type, Title, Remedy, Field, Rule string
		Key, State, ETag, Token          string
		Already                          bool
		Balances                         []struct{ Account, Amount, Commodity string }
		Result                           struct{ Key string }
		Problem                          *struct {
			Type   string
			Status int
		}
	}
}

func (s said) is(t *testing.T, status int, kind string) {
	t.Helper()
	if s.status != status || kind != "" && s.body.Type != "urn:daybook:ledger:"+kind {
		t.Errorf("the answer is %d %v %s; want %d %s", s.status, s.header, s.text, status, kind)
	}
}

// ask sends a request; headers are name, value and so on.
func (b caller) ask(t *testing.T, ctx context.Context, method, path, body string, headers ...string) said {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return said{}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	if body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := b.http.Do(r)
	if err != nil {
		t.Error(err)
		return said{}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	s := said{status: response.StatusCode, header: response.Header, text: string(text)}
	if strings.HasSuffix(response.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(text, &s.body); err != nil {
			t.Errorf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return s
}

func (b caller) post(t *testing.T, key, body string, headers ...string) said {
	t.Helper()
	return b.ask(t, t.Context(), http.MethodPost, "/entries", body, append(headers, api.KeyHeader, key)...)
}

func (b caller) get(t *testing.T, path string, headers ...string) said {
	t.Helper()
	return b.ask(t, t.Context(), http.MethodGet, path, "", headers...)
}

// wrong is for requests that the description would not let through.
func wrong(t *testing.T) context.Context { return context.WithValue(t.Context(), wrongly{}, true) }

func (s shell) caller(t *testing.T, seen *tally) (*daemon, caller) {
	t.Helper()
	serving, c := s.serve(t)
	return serving, caller{url: c.url, http: &http.Client{Transport: seen}}
}

// Everything that a client meets, in one session over real HTTP with both processes.
func TestClientSession(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	seen := newTally(t)
	_, c := s.caller(t, seen)
	s.work(t)
	lunch := entryJSON("", "expenses:food", "assets:cash", "4.00")

	// Once, and again.
	first := c.post(t, `"lunch"`, lunch)
	first.is(t, http.StatusCreated, "")
	token := first.header.Get(api.TokenHeader)
	again := c.post(t, `"lunch"`, lunch, api.TokenHeader, token)
	if again.is(t, http.StatusCreated, ""); again.text != first.text || again.header.Get(api.ReplayedHeader) != "true" || again.header.Get(api.TokenHeader) != token {
		t.Errorf("the repeat is %v %s, the first was %v %s", again.header, again.text, first.header, first.text)
	}
	c.post(t, `"lunch"`, entryJSON("", "expenses:food", "assets:cash", "5.00")).is(t, http.StatusUnprocessableEntity, "key-used")
	c.ask(t, t.Context(), http.MethodPost, "/entries", lunch).is(t, http.StatusBadRequest, "key-missing")
	c.post(t, "crooked", strings.Replace(lunch, "-4.00", "-4.01", 1)).is(t, http.StatusUnprocessableEntity, "rule")
	c.ask(t, wrong(t), http.MethodPost, "/entries", `{"day":1}`, api.KeyHeader, "k").is(t, http.StatusBadRequest, "syntax")
	c.ask(t, t.Context(), http.MethodPost, "/entries", strings.Replace(lunch, "Lunch", strings.Repeat("x", 1<<20), 1), api.KeyHeader, "k").
		is(t, http.StatusRequestEntityTooLarge, "too-large")
	c.ask(t, wrong(t), http.MethodPost, "/entries", lunch, api.KeyHeader, "k", "Content-Type", "text/plain").
		is(t, http.StatusUnsupportedMediaType, "media-type")

	// Read what was written, and what has not changed.
	food := c.get(t, "/balances/expenses:food", api.TokenHeader, token, "Prefer", "wait=20")
	if food.is(t, http.StatusOK, ""); len(food.body.Balances) != 1 || food.body.Balances[0].Amount != "4.00" {
		t.Errorf("the balances are %s", food.text)
	}
	c.get(t, "/balances", api.TokenHeader, token, "Prefer", "wait=20").is(t, http.StatusOK, "")
	c.get(t, "/balances", api.TokenHeader, "hello").is(t, http.StatusBadRequest, "syntax")
	e := c.get(t, first.header.Get("Location"))
	e.is(t, http.StatusOK, "")
	c.get(t, first.header.Get("Location"), "If-None-Match", e.header.Get("ETag")).is(t, http.StatusNotModified, "")
	c.get(t, "/entries/none").is(t, http.StatusNotFound, "no-entry")

	// Accounts, by their version.
	const path, box, never = "/accounts/assets:box", `{"name":"assets:box","neverBelowZero":false}`, `{"neverBelowZero":true}`
	put := func(key string, headers ...string) said {
		return c.ask(t, t.Context(), http.MethodPut, path, never, append(headers, api.KeyHeader, key)...)
	}
	open := func(key string, headers ...string) said {
		return c.ask(t, t.Context(), http.MethodPost, "/accounts", box, append(headers, api.KeyHeader, key)...)
	}
	open("o1").is(t, http.StatusPreconditionRequired, "precondition-required")
	open("o1", "If-None-Match", "*").is(t, http.StatusCreated, "")
	open("o2", "If-None-Match", "*").is(t, http.StatusPreconditionFailed, "precondition")
	account := c.get(t, path)
	account.is(t, http.StatusOK, "")
	c.get(t, path, "If-None-Match", account.header.Get("ETag")).is(t, http.StatusNotModified, "")
	put("p1").is(t, http.StatusPreconditionRequired, "precondition-required")
	put("p1", "If-Match", `"v7"`).is(t, http.StatusPreconditionFailed, "precondition")
	put("p1", "If-Match", account.header.Get("ETag")).is(t, http.StatusOK, "")
	if again := put("p1", "If-Match", account.header.Get("ETag")); again.status != http.StatusOK || again.header.Get(api.ReplayedHeader) != "true" {
		t.Errorf("the repeat, for which the version is no longer there, is answered with %d %v %s", again.status, again.header, again.text)
	}
	c.post(t, "overdraw", entryJSON("", "expenses:food", "assets:box", "1.00")).is(t, http.StatusUnprocessableEntity, "below-zero")
	c.get(t, "/accounts/nowhere").is(t, http.StatusNotFound, "no-account")

	// Taken back, once.
	reverse := func(key string, headers ...string) said {
		return c.ask(t, t.Context(), http.MethodPost, first.header.Get("Location")+"/reversal", `{"date":"2025-02-01"}`, append(headers, api.KeyHeader, key)...)
	}
	reverse("r1").is(t, http.StatusCreated, "")
	reverse("r2").is(t, http.StatusConflict, "reversed")
	for _, path := range []string{"/problems", "/healthz", "/readyz", "/openapi.yaml"} {
		c.get(t, path).is(t, http.StatusOK, "")
	}
	if n := eventsIn(t, pool); n != 5+1+1+4 {
		t.Errorf("%d events are stored, want those of an entry, an account with its change, and a reversal", n)
	}
	seen.has(t, "POST /entries 201", "POST /entries 400", "POST /entries 413", "POST /entries 415", "POST /entries 422",
		"GET /entries/{key} 304", "PUT /accounts/{name} 412", "PUT /accounts/{name} 428", "POST /entries/{key}/reversal 409")
}

// Commands whose callers do not wait: serve takes them also when nobody works, and whoever works carries them out.
func TestClientDoesNotWait(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	seen := newTally(t)
	_, c := s.caller(t, seen)
	lunch := entryJSON("", "expenses:food", "assets:cash", "4.00")
	async := []string{"Prefer", "respond-async"}

	accepted := c.post(t, "a1", lunch, async...)
	at := accepted.header.Get("Location")
	if accepted.is(t, http.StatusAccepted, ""); accepted.body.State != "accepted" || accepted.header.Get("Preference-Applied") != "respond-async" ||
		accepted.header.Get(api.ReplayedHeader) != "" {
		t.Errorf("it was accepted with %v %s", accepted.header, accepted.text)
	}
	if again := c.post(t, "a1", lunch, async...); again.status != http.StatusAccepted || again.header.Get("Location") != at {
		t.Errorf("sent again it is accepted with %v %s, before with %s", again.header, again.text, at)
	}
	c.post(t, "a1", entryJSON("", "expenses:food", "assets:cash", "5.00"), async...).is(t, http.StatusUnprocessableEntity, "key-used")
	c.get(t, at, api.CallerHeader, "somebody-else").is(t, http.StatusNotFound, "not-found")
	if waits := c.get(t, at); waits.body.State != "accepted" {
		t.Errorf("while nobody works it is %s", waits.text)
	}
	if n := eventsIn(t, pool); n != 0 {
		t.Errorf("%d events are stored", n)
	}

	// Somebody listens until the end, which comes when there is a worker.
	ends := make(chan []event, 1)
	go func() { ends <- c.listen(t, at) }()
	working := s.work(t)
	events := <-ends
	if len(events) == 0 || events[len(events)-1].name != "done" {
		t.Fatalf("the events are %v, and the worker notes\n%s%s", events, working.out, working.notes)
	}
	var done said
	if err := json.Unmarshal([]byte(events[len(events)-1].data), &done.body); err != nil || done.body.Result.Key == "" || done.body.Token == "" {
		t.Errorf("the last event is %v: %v", events[len(events)-1], err)
	}
	op := c.get(t, at, "Prefer", "wait=5")
	if op.is(t, http.StatusOK, ""); op.body.State != "done" || op.body.Result.Key != done.body.Result.Key {
		t.Errorf("the operation is %s", op.text)
	}
	c.get(t, at, "If-None-Match", op.header.Get("ETag")).is(t, http.StatusNotModified, "")
	c.get(t, "/entries/"+op.body.Result.Key).is(t, http.StatusOK, "")
	c.get(t, "/balances/expenses:food", api.TokenHeader, op.body.Token, "Prefer", "wait=20").is(t, http.StatusOK, "")

	// The same key without the preference is the same command.
	sync := c.post(t, "a1", lunch)
	if sync.is(t, http.StatusCreated, ""); sync.body.Key != op.body.Result.Key || sync.header.Get(api.ReplayedHeader) != "true" {
		t.Errorf("without the preference the answer is %v %s", sync.header, sync.text)
	}
	// Who waits a little is answered as if there were no operation.
	quick := c.post(t, "a2", lunch, "Prefer", "respond-async, wait=20")
	if quick.is(t, http.StatusCreated, ""); quick.header.Get("Preference-Applied") != "respond-async, wait=20" || quick.header.Get("Location") != "/entries/"+quick.body.Key {
		t.Errorf("who waits is answered with %v %s", quick.header, quick.text)
	}

	// A failed operation is data.
	open := c.ask(t, t.Context(), http.MethodPost, "/accounts", `{"name":"assets:box","neverBelowZero":true}`, api.KeyHeader, "o", "If-None-Match", "*")
	open.is(t, http.StatusCreated, "")
	refused := c.post(t, "a3", entryJSON("", "expenses:food", "assets:box", "1.00"), async...)
	refused.is(t, http.StatusAccepted, "")
	end := c.get(t, refused.header.Get("Location"), "Prefer", "wait=20")
	if end.is(t, http.StatusOK, ""); end.body.State != "refused" || end.body.Problem == nil || end.body.Problem.Type != "urn:daybook:ledger:below-zero" || end.body.Problem.Status != 422 {
		t.Errorf("the operation that failed is %s", end.text)
	}
	c.post(t, "a3", entryJSON("", "expenses:food", "assets:box", "1.00")).is(t, http.StatusUnprocessableEntity, "below-zero")
	c.get(t, "/operations/none").is(t, http.StatusNotFound, "not-found")
	c.get(t, at, "Accept", "text/html").is(t, http.StatusNotAcceptable, "not-acceptable")
	seen.has(t, "POST /entries 202", "GET /operations/{id} 200", "GET /operations/{id} 304", "GET /operations/{id} 406")
}

// event is one of a stream.
type event struct{ name, data string }

// listen returns the events of a stream when it has ended.
func (b caller) listen(t *testing.T, path string) (events []event) {
	ctx, cancel := context.WithTimeout(t.Context(), patience/4)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := b.http.Do(r)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer response.Body.Close()
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the stream is of type %q", got)
	}
	lines := bufio.NewScanner(response.Body)
	var next event
	for lines.Scan() {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); {
		case name == "event":
			next.name = value
		case name == "data":
			next.data = value
		case lines.Text() == "" && next.data != "":
			events = append(events, next)
			next = event{}
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return events
}

// hold keeps every append waiting until release is called.
func hold(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	release = func() { once.Do(func() { _ = tx.Rollback(context.Background()) }) } // the test's context may have ended
	t.Cleanup(release)
	if _, err := tx.Exec(t.Context(), "LOCK TABLE daybook.events IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	return release
}

// held waits until so many appends wait for a lock.
func held(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	const waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for there := 0; there < n; <-look.C {
		if err := pool.QueryRow(t.Context(), waiting).Scan(&there); err != nil {
			t.Fatal(err)
		}
	}
}

// While a command is carried out, another one with its key is told so.
func TestClientComesTwiceAtOnce(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	seen := newTally(t)
	_, c := s.caller(t, seen)
	_, other := s.caller(t, seen) // another process
	release := hold(t, pool)
	lunch := entryJSON("", "expenses:food", "assets:cash", "4.00")
	first := make(chan said, 1)
	go func() { first <- c.post(t, "lunch", lunch) }()
	held(t, pool, 1)
	for _, client := range []caller{c, other} {
		busy := client.post(t, "lunch", lunch)
		if busy.is(t, http.StatusConflict, "in-progress"); busy.header.Get("Retry-After") == "" {
			t.Errorf("the headers are %v", busy.header)
		}
	}
	release()
	answer := <-first
	answer.is(t, http.StatusCreated, "")
	for _, client := range []caller{c, other} {
		again := client.post(t, "lunch", lunch)
		if again.is(t, http.StatusCreated, ""); again.text != answer.text || again.header.Get(api.ReplayedHeader) != "true" {
			t.Errorf("afterwards: %v %s", again.header, again.text)
		}
	}
	if n := eventsIn(t, pool); n != 5 {
		t.Errorf("%d events are stored, want 5", n)
	}
}
