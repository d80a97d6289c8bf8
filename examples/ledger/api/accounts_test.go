package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/api"
)

const (
	isJSON = "Content-Type: application/json"
	isNew  = "If-None-Match: *"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const body = `{"name":"assets:box a/b","neverBelowZero":true}`
	w.send(t, http.MethodPost, "/accounts", body, isJSON).
		says(t, http.StatusPreconditionRequired, map[string]any{"type": "precondition-required"})
	opened := w.send(t, http.MethodPost, "/accounts", body, isJSON, isNew, api.KeyHeader+": k1")
	opened.says(t, http.StatusCreated, map[string]any{"name": "assets:box a/b", "neverBelowZero": true})
	path := opened.header.Get("Location")
	if opened.header.Get("ETag") != `"v1"` || path != "/accounts/assets:box%20a%2Fb" || opened.header.Get(api.TokenHeader) == "" {
		t.Errorf("the headers are %v", opened.header)
	}
	again := w.send(t, http.MethodPost, "/accounts", body, isJSON, isNew, api.KeyHeader+": k1")
	if again.status != opened.status || again.text != opened.text || again.header.Get("ETag") != `"v1"` || again.header.Get(api.ReplayedHeader) != "true" {
		t.Errorf("the same again: %d %v %s", again.status, again.header, again.text)
	}
	w.send(t, http.MethodPost, "/accounts", body, isJSON, isNew).
		says(t, http.StatusPreconditionFailed, map[string]any{"field": "If-None-Match"})
	w.send(t, http.MethodPost, "/accounts", `{"name":" "}`, isJSON, isNew).
		says(t, http.StatusUnprocessableEntity, map[string]any{"field": "account", "rule": "account-name"})

	w.post(t, strings.Replace(strings.Replace(unnamed, "assets:cash", "equity", 1), "expenses:food", "assets:box a/b", 1)).says(t, http.StatusCreated, nil)
	read := w.send(t, http.MethodGet, path, "")
	if want := `{"name":"assets:box a/b","neverBelowZero":true,"balances":[{"account":"assets:box a/b","amount":"4.00","commodity":"EUR"}]}` + "\n"; read.text != want || read.header.Get("ETag") != `"v2"` {
		t.Errorf("the account is %v %s", read.header, read.text)
	}
	if a := w.send(t, http.MethodGet, path, "", `If-None-Match: "v1", W/"v2"`); a.status != http.StatusNotModified || a.text != "" || a.header.Get("ETag") != `"v2"` {
		t.Errorf("who has it is answered with %d %v %q", a.status, a.header, a.text)
	}
	w.send(t, http.MethodGet, "/accounts/nowhere", "").says(t, http.StatusNotFound, map[string]any{"type": "no-account", "value": "nowhere"})
}

func TestChangeTerms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.post(t, lunch).says(t, http.StatusCreated, nil)
	const path, never, free = "/accounts/assets:cash", `{"neverBelowZero":true}`, `{"neverBelowZero":false}`
	w.send(t, http.MethodPut, path, never, isJSON).says(t, http.StatusPreconditionRequired, nil)
	old := w.send(t, http.MethodPut, path, never, isJSON, `If-Match: "v1"`)
	if old.says(t, http.StatusPreconditionFailed, map[string]any{"field": "If-Match", "detail": "version 2"}); old.header.Get("ETag") != `"v2"` {
		t.Errorf("the headers are %v", old.header)
	}
	// It holds -4.00, and the refusal is kept with the key: what came in later does not change the answer.
	for try := range 2 {
		a := w.send(t, http.MethodPut, path, never, isJSON, `If-Match: "v2"`, api.KeyHeader+": k1")
		a.says(t, http.StatusUnprocessableEntity, map[string]any{
			"type": "below-zero", "rule": "never-below-zero", "field": "account", "value": "assets:cash", "detail": "holds -4.00 EUR", "remedy": "post what is missing first",
		})
		if (a.header.Get(api.ReplayedHeader) == "true") != (try == 1) {
			t.Errorf("try %d: the headers are %v", try, a.header)
		}
		w.post(t, strings.NewReplacer("assets:cash", "equity", "expenses:food", "assets:cash").Replace(unnamed)).says(t, http.StatusCreated, nil)
	}
	changed := w.send(t, http.MethodPut, path, never, isJSON, `If-Match: "v1", "v4"`)
	if changed.says(t, http.StatusOK, map[string]any{"name": "assets:cash", "neverBelowZero": true}); changed.header.Get("ETag") != `"v5"` {
		t.Errorf("the headers are %v", changed.header)
	}
	same := w.send(t, http.MethodPut, path, never, isJSON, `If-Match: *`)
	if same.says(t, http.StatusOK, nil); same.header.Get("ETag") != `"v5"` || same.header.Get(api.TokenHeader) != "" {
		t.Errorf("what is as it should be: %v", same.header)
	}
	w.send(t, http.MethodPut, path, free, isJSON, `If-Match: "v5"`).says(t, http.StatusOK, map[string]any{"neverBelowZero": false})
	w.send(t, http.MethodPut, "/accounts/nowhere", free, isJSON, `If-Match: *`).says(t, http.StatusPreconditionFailed, nil)
	w.send(t, http.MethodPut, path, `{"name":"equity","neverBelowZero":true}`, isJSON, `If-Match: *`).says(t, http.StatusBadRequest, map[string]any{"field": "name"})
	// An entry has several streams, and takes no version.
	w.post(t, unnamed, `If-Match: "v1"`).says(t, http.StatusPreconditionFailed, nil)
}

func TestReversal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.post(t, lunch)
	path := first.header.Get("Location")
	const on = `{"date":"2025-02-01"}`
	reversed := w.send(t, http.MethodPost, path+"/reversal", on, isJSON, api.KeyHeader+": k1")
	reversed.says(t, http.StatusCreated, nil)
	again := w.send(t, http.MethodPost, path+"/reversal", on, isJSON, api.KeyHeader+": k1")
	if again.status != http.StatusCreated || again.text != reversed.text || again.header.Get("Location") != reversed.header.Get("Location") || again.header.Get(api.ReplayedHeader) != "true" {
		t.Errorf("the same again: %d %v %s", again.status, again.header, again.text)
	}
	by := reversed.body["key"]
	w.send(t, http.MethodGet, path, "").says(t, http.StatusOK, map[string]any{"reversedBy": by})
	w.send(t, http.MethodGet, reversed.header.Get("Location"), "").says(t, http.StatusOK, map[string]any{"reverses": first.body["key"], "date": "2025-02-01"})
	w.send(t, http.MethodPost, path+"/reversal", on, isJSON).says(t, http.StatusConflict, map[string]any{"type": "reversed", "rule": "reversed-once"})
	for _, none := range []string{strings.Repeat("0", 64), "k1"} {
		w.send(t, http.MethodPost, "/entries/"+none+"/reversal", on, isJSON).says(t, http.StatusNotFound, map[string]any{"type": "no-entry"})
	}
	w.send(t, http.MethodPost, path+"/reversal", `{"date":"soon"}`, isJSON).says(t, http.StatusUnprocessableEntity, map[string]any{"field": "date"})
	token, err := eventstore.ParseToken(reversed.header.Get(api.TokenHeader))
	if err != nil {
		t.Fatal(err)
	}
	w.catchUp(t, token.String())
	if a := w.send(t, http.MethodGet, "/balances", "", tokenOf(reversed)); a.text != `{"balances":[]}`+"\n" {
		t.Errorf("the balances are %s", a.text)
	}
}

func TestCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"a b", "ä", strings.Repeat("a", 101)} {
		w.post(t, unnamed, api.CallerHeader+": "+name).says(t, http.StatusBadRequest, map[string]any{"field": api.CallerHeader})
	}
	w.post(t, unnamed, api.CallerHeader+": ann").says(t, http.StatusCreated, nil)
	var actors []string
	for event, err := range w.store.ReadAll(t.Context(), eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		actors = append(actors, event.Metadata.Actor)
	}
	if got := strings.Join(actors, " "); got != "ann ann ann ann ann" {
		t.Errorf("the events say that they are of %s", got)
	}
}
