package api_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/api"
	later "github.com/daybook-go/daybook/outbox/commands"
)

// work carries out commands of callers who do not wait, until the test ends.
func (w *world) work(t *testing.T) {
	t.Helper()
	dispatcher, err := later.NewDispatcher(w.pool, later.Local(w.store.Outbox()), w.bus, later.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A rule says the same to whoever waits, to whoever asks again, and as the end of an operation.
func TestRefusalsOfOperations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work(t)
	if _, err := w.book.Open(t.Context(), "assets:box", account.Open{NeverBelowZero: true}); err != nil {
		t.Fatal(err)
	}
	w.post(t, lunch).says(t, http.StatusCreated, nil)
	for name, c := range map[string]struct {
		method, path, body string
		says               map[string]any
	}{
		"below zero": {"POST", "/entries", strings.Replace(unnamed, "assets:cash", "assets:box", 1), map[string]any{
			"type": "urn:daybook:ledger:below-zero", "title": "The account never goes below zero", "field": "postings[1].account",
			"value": "assets:box", "rule": "never-below-zero",
		}},
		"key used":  {"POST", "/entries", strings.Replace(lunch, "Lunch", "Dinner", 1), map[string]any{"type": "urn:daybook:ledger:name-used", "rule": "key-once"}},
		"no entry":  {"POST", "/entries/" + strings.Repeat("0", 64) + "/reversal", `{"date":"2025-02-01"}`, map[string]any{"type": "urn:daybook:ledger:no-entry"}},
		"own terms": {"PUT", "/accounts/assets:cash", `{"neverBelowZero":true}`, map[string]any{"field": "account", "value": "assets:cash"}},
	} {
		t.Run(name, func(t *testing.T) {
			send := func(key string, headers ...string) answer {
				headers = append(headers, isJSON, api.KeyHeader+": "+strings.ReplaceAll(name, " ", "-")+key)
				if c.method == "PUT" {
					headers = append(headers, "If-Match: *")
				}
				return w.send(t, c.method, c.path, c.body, headers...)
			}
			first := send("1")
			if first.says(t, first.status, c.says); first.status < 400 || first.body["detail"] == nil || strings.Contains(first.text, "book: ") {
				t.Errorf("the first answer is %s", first.text)
			}
			same := func(what string, problem map[string]any) {
				t.Helper()
				if !maps.Equal(problem, first.body) {
					t.Errorf("%s is %v, the first answer was %s", what, problem, first.text)
				}
			}
			again := send("1")
			if same("the repeat", again.body); again.status != first.status || again.header.Get(api.ReplayedHeader) != "true" {
				t.Errorf("the repeat is %d %v", again.status, again.header)
			}
			waited := send("2", "Prefer: respond-async, wait=20")
			if same("who waits", waited.body); waited.status != first.status {
				t.Errorf("who waits is answered with %d", waited.status)
			}
			accepted := send("3", "Prefer: respond-async")
			accepted.says(t, http.StatusAccepted, nil)
			op := w.send(t, http.MethodGet, accepted.header.Get("Location"), "", "Prefer: wait=20")
			op.says(t, http.StatusOK, map[string]any{"state": "refused"})
			problem, _ := op.body["problem"].(map[string]any)
			same("that of the operation", problem)
			same("the repeat of the operation", send("3").body)
			same("that of the event", w.pushed(t, accepted.header.Get("Location")))
		})
	}
}

// pushed is the problem in the last event of an operation that has ended.
func (w *world) pushed(t *testing.T, path string) map[string]any {
	t.Helper()
	server := httptest.NewServer(w)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body) // the stream ends with the operation
	if err != nil {
		t.Fatal(err)
	}
	var last struct{ Problem map[string]any }
	for line := range strings.Lines(string(text)) {
		if data, found := strings.CutPrefix(line, "data: "); found {
			if err := json.Unmarshal([]byte(data), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	return last.Problem
}
