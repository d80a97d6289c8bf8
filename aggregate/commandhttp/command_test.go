package commandhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
)

const withdrawals = "/accounts/a/withdrawals"

// same reports what two answers differ in.
func same(t *testing.T, first, second answer) {
	t.Helper()
	if first.status != second.status || first.text != second.text {
		t.Errorf("the repeat is %d %s, the first was %d %s", second.status, second.text, first.status, first.text)
	}
	for _, name := range []string{"Etag", commandhttp.TokenHeader, "Location", "Content-Type"} {
		if a, b := first.header.Get(name), second.header.Get(name); a != b {
			t.Errorf("%s of the repeat is %q, that of the first %q", name, b, a)
		}
	}
	if first.header.Get(commandhttp.ReplayedHeader) != "" || second.header.Get(commandhttp.ReplayedHeader) != "true" {
		t.Errorf("%v, %v", first.header, second.header)
	}
}

func TestRepeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.rich(t, "a")
	took := w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, `Idempotency-Key: "k1"`, `If-Match: "v2"`)
	took.says(t, http.StatusCreated, map[string]any{"version": float64(3)})
	if took.header.Get("Etag") != `"v3"` || took.header.Get("Location") != "/accounts/a?at=3" || took.header.Get(commandhttp.TokenHeader) == "" {
		t.Errorf("%v", took.header)
	}
	refused := w.send(t, http.MethodPost, withdrawals, `{"cents":1000}`, `Idempotency-Key: "k2"`)
	refused.says(t, http.StatusUnprocessableEntity, map[string]any{"detail": errFunds.Error(), "rule": "funds"})
	undeclared := w.send(t, http.MethodPost, withdrawals, `{"cents":1000001}`, `Idempotency-Key: "k3"`)
	undeclared.says(t, http.StatusUnprocessableEntity, map[string]any{"type": "urn:bank:rule"})

	// The account moves on, and the rule would say something else by now.
	w.send(t, http.MethodPost, "/accounts/a/deposits", `{"cents":5000000}`, `Idempotency-Key: "k4"`).says(t, http.StatusCreated, nil)
	// As a text without quotes, in other white space, and with a precondition that is no longer true.
	same(t, took, w.send(t, http.MethodPost, withdrawals, ` { "cents" : 30 } `, `Idempotency-Key: k1`, `If-Match: "v2"`))
	same(t, refused, w.send(t, http.MethodPost, withdrawals, `{"cents":1000}`, `Idempotency-Key: "k2"`))
	same(t, undeclared, w.send(t, http.MethodPost, withdrawals, `{"cents":1000001}`, `Idempotency-Key: "k3"`))
	if a := w.load(t, "a"); a.Version != 4 || a.State.Balance != 5000070 {
		t.Errorf("%+v", a)
	}
	// Another caller's key is another key.
	other := w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, `Idempotency-Key: "k1"`, "X-Actor: bob")
	if other.status != http.StatusCreated || other.header.Get(commandhttp.ReplayedHeader) != "" {
		t.Errorf("%d %v", other.status, other.header)
	}
	// The path is a part of the request.
	w.rich(t, "b")
	w.send(t, http.MethodPost, "/accounts/b/withdrawals", `{"cents":30}`, `Idempotency-Key: "k1"`).
		says(t, http.StatusUnprocessableEntity, map[string]any{"type": "urn:bank:key-used"})
}

func TestPreconditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.send(t, http.MethodPut, "/accounts/a", `{"owner":"ada"}`, "Idempotency-Key: 1", `If-Match: *`).says(t, http.StatusPreconditionFailed, nil)
	made := w.send(t, http.MethodPut, "/accounts/a", `{"owner":"ada"}`, "Idempotency-Key: 2", `If-None-Match: *`)
	if made.says(t, http.StatusCreated, nil); made.header.Get("Etag") != `"v1"` || made.header.Get("Location") != "/accounts/a" {
		t.Errorf("%v", made.header)
	}
	for i, c := range []struct {
		match, none string
		status      int
		etag        string
	}{
		{`"v1"`, "", 201, `"v2"`},
		{`"v1"`, "", 412, `"v2"`},
		{`W/"v2"`, "", 412, `"v2"`},
		{`"other"`, "", 412, `"v2"`},
		{`"v1", "v2"`, "", 201, `"v3"`},
		{`"v9","v8", "v3", W/"v1"`, "", 201, `"v4"`},
		{`"v1","v2","v3"`, "", 412, `"v4"`},
		{`*`, "", 201, `"v5"`},
		{"", "*", 412, `"v5"`},
		{`"v5"`, "*", 412, `"v5"`},
	} {
		var headers []string
		if c.match != "" {
			headers = append(headers, "If-Match: "+c.match)
		}
		if c.none != "" {
			headers = append(headers, "If-None-Match: "+c.none)
		}
		a := w.send(t, http.MethodPost, "/accounts/a/deposits", `{"cents":1}`, append(headers, fmt.Sprint("Idempotency-Key: d", i))...)
		if a.status != c.status || a.header.Get("Etag") != c.etag {
			t.Errorf("%s: %d, ETag %s, want %d, %s: %s", c.match, a.status, a.header.Get("Etag"), c.status, c.etag, a.text)
		}
	}
	// What was refused for its precondition may be sent again under its key: nothing is remembered of it.
	w.send(t, http.MethodPost, "/accounts/a/deposits", `{"cents":1}`, "Idempotency-Key: d1", `If-Match: "v5"`).says(t, http.StatusCreated, nil)
	if gone := w.send(t, http.MethodDelete, "/accounts/a", "", `If-Match: "v6"`); gone.status != http.StatusNoContent || gone.header.Get("Etag") != `"v7"` {
		t.Errorf("%d %v %s", gone.status, gone.header, gone.text)
	}
}

// Two requests with one key at once: one is carried out, and the other waits for its answer or is told.
func TestOneKeyAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys   []bus.IdempotentOption
		second int
	}{
		"waits":   {nil, http.StatusCreated},
		"is told": {[]bus.IdempotentOption{bus.TellIfRunning()}, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, c.keys...)
			w.rich(t, "a")
			began, goOn := make(chan struct{}), make(chan struct{})
			slow := bus.TypeOf[slowly]("test.slowly")
			bus.Handle(w.bus, slow, func(ctx context.Context, _ slowly) (bus.Reply, error) {
				result, err := w.accounts.Handle(ctx, "a", func(account) ([]accountEvent, error) {
					close(began)
					<-goOn
					return []accountEvent{withdrawn{1}}, nil
				})
				return bus.Reply{Version: result.Version, Token: result.Token, Repeated: result.Repeated}, err
			})
			commandhttp.Command(w.api, "POST /slowly", commandhttp.Endpoint[slowly]{Status: http.StatusCreated, Render: versionOf})
			answers := make(chan answer, 2)
			ask := func() {
				a, err := w.try(w.request(t, http.MethodPost, "/slowly", `{}`, "Idempotency-Key: k"))
				if err != nil {
					t.Error(err)
				}
				answers <- a
			}
			go ask()
			<-began
			go ask()
			if c.second == http.StatusConflict {
				told := <-answers
				if told.says(t, http.StatusConflict, map[string]any{"type": "urn:bank:in-progress"}); !retry(told) {
					t.Errorf("%v", told.header)
				}
				close(goOn)
				(<-answers).says(t, http.StatusCreated, nil)
			} else {
				close(goOn)
				first, second := <-answers, <-answers
				if first.header.Get(commandhttp.ReplayedHeader) != "" {
					first, second = second, first
				}
				same(t, first, second)
				first.says(t, http.StatusCreated, nil)
			}
			if a := w.load(t, "a"); a.State.Balance != 99 {
				t.Errorf("%+v", a)
			}
		})
	}
}

type slowly struct {
	Any string `json:"any,omitempty"`
}

func TestRetryStorm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.rich(t, "a")
	const storm = 200
	w.server.Client().Transport.(*http.Transport).MaxConnsPerHost = 32
	answers := make([]answer, storm)
	var wait sync.WaitGroup
	for i := range storm {
		wait.Go(func() {
			a, err := w.try(w.request(t, http.MethodPost, withdrawals, `{"cents":7}`, `Idempotency-Key: "k"`))
			if err != nil {
				t.Error(err)
			}
			answers[i] = a
		})
	}
	wait.Wait()
	firsts := 0
	for _, a := range answers {
		if a.header.Get(commandhttp.ReplayedHeader) == "" {
			firsts++
		}
		if a.status != http.StatusCreated || a.text != answers[0].text || a.header.Get(commandhttp.TokenHeader) != answers[0].header.Get(commandhttp.TokenHeader) {
			t.Fatalf("%d %v %s", a.status, a.header, a.text)
		}
	}
	if a := w.load(t, "a"); firsts != 1 || a.State.Balance != 93 {
		t.Errorf("%d first answers, %+v", firsts, a)
	}
}

// A caller who goes away does not leave a command half done, and finds its answer under its key.
func TestCallerGoesAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, c *commandhttp.Config) { c.Grace = time.Minute })
	began, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		close(began)
		<-goOn
		done <- ctx.Err()
		return bus.Reply{}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if _, err := w.try(w.request(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: k").WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	<-began
	cancel()
	<-gone
	close(goOn)
	if err := <-done; err != nil {
		t.Errorf("the command was broken off: %v", err)
	}
}

// When the grace is over, the command ends too.
func TestGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, c *commandhttp.Config) { c.Grace = time.Millisecond })
	began, done := make(chan struct{}), make(chan error, 1)
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		close(began)
		<-ctx.Done()
		done <- ctx.Err()
		return bus.Reply{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/anything", strings.NewReader(`{}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(commandhttp.KeyHeader, "k")
	go func() {
		<-began
		cancel()
	}()
	w.api.ServeHTTP(httptest.NewRecorder(), r)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Neither the log nor an answer has what was sent, whatever goes wrong.
func TestPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	commandhttp.Command(w.api, "POST /broken", commandhttp.Endpoint[anything]{Render: func(bus.Reply) any { panic("Lunch for 4.00") }})
	commandhttp.Handle(w.api, "GET /half", commandhttp.Plain{Serve: func(rw http.ResponseWriter, _ *http.Request) error {
		_, _ = rw.Write([]byte("half"))
		panic("Lunch")
	}})
	commandhttp.Handle(w.api, "GET /late", commandhttp.Plain{Serve: func(rw http.ResponseWriter, _ *http.Request) error {
		_, _ = rw.Write([]byte("half"))
		return errors.New("too late")
	}})
	w.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{}, nil }
	w.send(t, http.MethodPost, "/broken", `{"secret":"Lunch"}`, "Idempotency-Key: k").says(t, http.StatusInternalServerError, map[string]any{"type": "urn:bank:fault"})
	for _, path := range []string{"/half", "/late"} {
		if a, err := w.try(w.request(t, http.MethodGet, path, "")); err == nil {
			t.Errorf("%s: half an answer was taken for a whole one: %d %s", path, a.status, a.text)
		}
	}
	if text := w.log.String(); strings.Contains(text, "Lunch") || strings.Count(text, "request panicked") < 2 || !strings.Contains(text, "command_test.go") {
		t.Errorf("the log says %s", text)
	}
}

// A body that breaks off, or trickles, has no effect.
func TestBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, c *commandhttp.Config) { c.BodyTime = 50 * time.Millisecond })
	w.rich(t, "a")
	w.send(t, http.MethodPost, withdrawals, " null\n", "Idempotency-Key: null").says(t, http.StatusBadRequest, nil)
	r := w.request(t, http.MethodPost, withdrawals, `{}`, "Idempotency-Key: k")
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(`{"cents"`), cut{})), -1
	if a, err := w.try(r); err == nil {
		t.Errorf("answered with %d", a.status)
	}
	r = w.request(t, http.MethodPost, withdrawals, `{}`, "Idempotency-Key: k")
	hold, free := io.Pipe()
	r.Body, r.ContentLength = hold, -1
	a, err := w.try(r)
	free.Close()
	if err != nil {
		t.Fatal(err)
	}
	a.says(t, http.StatusBadRequest, map[string]any{"detail": "took too long"})
	if a := w.load(t, "a"); a.Version != 2 {
		t.Errorf("%+v", a)
	}
	// The deadline of a body is not that of the command, nor of the next request.
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		timer := time.NewTimer(150 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return bus.Reply{}, ctx.Err()
	}
	for _, key := range []string{"x", "y"} {
		w.send(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: "+key).says(t, http.StatusNoContent, nil)
	}
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, errors.New("the cable is cut") }

func TestExplain(t *testing.T) {
	t.Parallel()
	away := errors.New("the database is away")
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Explain = func(err error) *commandhttp.Problem {
			if errors.Is(err, away) {
				return &commandhttp.Problem{Kind: "unavailable", RetryAfter: time.Second, Err: err}
			}
			return nil
		}
	})
	commandhttp.Command(w.api, "POST /explained", commandhttp.Endpoint[anything]{
		Decode: func(body []byte) (anything, error) { return anything{Secret: string(body)}, nil },
		Explain: func(err error, c anything) *commandhttp.Problem {
			if errors.Is(err, eventstore.ErrConflict) {
				return &commandhttp.Problem{Field: "secret", Value: commandhttp.Shorten(c.Secret)}
			}
			return nil
		},
	})
	w.handle = fail(away)
	w.send(t, http.MethodPost, "/explained", `"x"`, "Idempotency-Key: 1").says(t, http.StatusServiceUnavailable, map[string]any{"type": "urn:bank:unavailable"})
	w.handle = fail(&eventstore.ConflictError{})
	w.send(t, http.MethodPost, "/explained", `"x"`, "Idempotency-Key: 2").says(t, http.StatusUnprocessableEntity, map[string]any{"field": "secret", "value": `"x"`})
}
