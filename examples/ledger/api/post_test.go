package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/api"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

var key = regexp.MustCompile(`^[0-9a-f]{64}$`)

func TestPost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.post(t, lunch)
	a.says(t, http.StatusCreated, nil)
	if token, err := eventstore.ParseToken(a.header.Get(api.TokenHeader)); err != nil || token.IsZero() {
		t.Errorf("the token is %q: %v", a.header.Get(api.TokenHeader), err)
	}
	name, _ := a.body["key"].(string)
	if !key.MatchString(name) || a.header.Get("Location") != "/entries/"+name {
		t.Errorf("the key is %q, the location %q", name, a.header.Get("Location"))
	}
	e := w.send(t, http.MethodGet, a.header.Get("Location"), "")
	e.says(t, http.StatusOK, map[string]any{"key": name, "date": "2025-01-31", "description": "Lunch", "reversedBy": nil})
	if !strings.Contains(e.text, `{"account":"assets:cash","amount":"-4.00","commodity":"EUR"}`) {
		t.Errorf("the entry is %s", e.text)
	}
	for _, other := range []string{strings.Repeat("0", 64), "k1"} {
		w.send(t, http.MethodGet, "/entries/"+other, "").says(t, http.StatusNotFound, map[string]any{"field": "key"})
	}
}

// An answer that was lost: the same request again writes nothing and is answered as the first was.
func TestPostAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.post(t, unnamed, api.KeyHeader+": k1")
	stored := w.events(t)
	if first.status != http.StatusCreated || first.header.Get(api.ReplayedHeader) != "" {
		t.Fatalf("the first answer is %d %v %s", first.status, first.header, first.text)
	}
	for _, key := range []string{"k1", `"k1"`} {
		again := w.post(t, unnamed, api.KeyHeader+": "+key)
		if again.status != first.status || again.text != first.text || again.header.Get(api.ReplayedHeader) != "true" {
			t.Errorf("%s: %d %v %s", key, again.status, again.header, again.text)
		}
		for _, name := range []string{api.TokenHeader, "Location"} {
			if again.header.Get(name) != first.header.Get(name) {
				t.Errorf("%s: %s is %q, was %q", key, name, again.header.Get(name), first.header.Get(name))
			}
		}
	}
	w.post(t, strings.Replace(unnamed, "Lunch", "Dinner", 1), api.KeyHeader+": k1").
		says(t, http.StatusUnprocessableEntity, map[string]any{"type": "urn:daybook:ledger:key-used", "field": api.KeyHeader})
	if n := w.events(t); n != stored {
		t.Errorf("%d events were stored", n-stored)
	}
	// The same key of another caller is another key.
	other := w.post(t, unnamed, api.KeyHeader+": k1", api.CallerHeader+": ann")
	if other.status != http.StatusCreated || other.body["key"] == first.body["key"] || other.header.Get(api.ReplayedHeader) != "" {
		t.Errorf("another caller is answered with %d %v %s", other.status, other.header, other.text)
	}
}

// The caller's own name for an entry counts whatever the key of the request is.
func TestPostUnderAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.post(t, lunch)
	stored := w.events(t)
	for name, body := range map[string]string{
		"as it was": lunch, "as the same number": strings.ReplaceAll(lunch, "4.00", "4"),
		"by the ledger's key": strings.Replace(lunch, "k1", first.body["key"].(string), 1),
	} {
		again := w.post(t, body)
		again.says(t, http.StatusCreated, map[string]any{"key": first.body["key"], "already": true})
		token, err := eventstore.ParseToken(again.header.Get(api.TokenHeader))
		then, _ := eventstore.ParseToken(first.header.Get(api.TokenHeader))
		if err != nil || !covers(token, then) {
			t.Errorf("%s: the token is %q: %v", name, again.header.Get(api.TokenHeader), err)
		}
	}
	for name, body := range map[string]string{
		"date": strings.Replace(lunch, "-31", "-30", 1), "text": strings.Replace(lunch, "Lunch", "Dinner", 1),
		"account": strings.Replace(lunch, "cash", "bank", 1), "commodity": strings.ReplaceAll(lunch, "EUR", "USD"),
		"amount": strings.ReplaceAll(lunch, "4.00", "4.01"),
	} {
		for try, key := range []string{"other " + name, "other " + name} { // the refusal is repeated as it was
			a := w.post(t, body, fmt.Sprintf("%s: %q", api.KeyHeader, key))
			a.says(t, http.StatusConflict, map[string]any{"type": "name-used", "rule": "key-once", "remedy": "under a key of its own"})
			if a.header.Get(api.TokenHeader) != "" || (a.header.Get(api.ReplayedHeader) == "true") != (try == 1) {
				t.Errorf("%s, try %d: the headers are %v", name, try, a.header)
			}
		}
	}
	if n := w.events(t); n != stored {
		t.Errorf("%d events were stored", n-stored)
	}
}

// The entry of a command has its name from the command, so that it is there once also when the outcome is forgotten.
func TestPostAgainWhenTheOutcomeIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.post(t, unnamed, api.KeyHeader+": k1")
	stored := w.events(t)
	if _, err := w.pool.Exec(t.Context(), "DELETE FROM daybook.outcomes"); err != nil {
		t.Fatal(err)
	}
	w.post(t, unnamed, api.KeyHeader+": k1").says(t, http.StatusCreated, map[string]any{"key": first.body["key"], "already": true})
	if n := w.events(t); n != stored {
		t.Errorf("%d events were stored", n-stored)
	}
}

func covers(token, other eventstore.Token) bool {
	at := map[int]eventstore.Position{}
	for _, m := range token.Marks() {
		at[m.Partition] = m.Position
	}
	for _, m := range other.Marks() {
		if at[m.Partition].Before(m.Position) {
			return false
		}
	}
	return true
}

// A reversal says more than its postings: what has its postings is another entry.
func TestReversalsKeyIsUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.post(t, lunch).body["key"].(string)
	reversal, err := w.book.Reverse(t.Context(), first, journal.Date{Year: 2025, Month: 2, Day: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.post(t, fmt.Sprintf(`{"date":"2025-02-01","description":"Reversal of: Lunch","key":%q,"postings":[
		{"account":"expenses:food","amount":"-4.00","commodity":"EUR"},{"account":"assets:cash","amount":"4.00","commodity":"EUR"}]}`, reversal.Key)).
		says(t, http.StatusConflict, map[string]any{"rule": "key-once"})
	w.send(t, http.MethodGet, "/entries/"+reversal.Key, "").says(t, http.StatusOK, map[string]any{"reverses": first})
	w.send(t, http.MethodGet, "/entries/"+first, "").says(t, http.StatusOK, map[string]any{"reversedBy": reversal.Key})
}

func TestOneOfManyPostsOfAKeyWins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all sync.WaitGroup
	var created, repeated, told atomic.Int32
	for range 12 {
		all.Go(func() {
			switch a := w.post(t, unnamed, api.KeyHeader+": k1"); {
			case a.status == http.StatusCreated && a.header.Get(api.ReplayedHeader) == "true":
				repeated.Add(1)
			case a.status == http.StatusCreated:
				created.Add(1)
			case a.status == http.StatusConflict && a.body["type"] == "urn:daybook:ledger:in-progress" && a.header.Get("Retry-After") != "":
				told.Add(1)
			default:
				t.Errorf("%d %v %s", a.status, a.header, a.text)
			}
		})
	}
	all.Wait()
	if created.Load() != 1 || w.events(t) != 5 {
		t.Errorf("%d were created, %d repeated, %d told to come again, and %d events are stored; want 1 and 5",
			created.Load(), repeated.Load(), told.Load(), w.events(t))
	}
	if a := w.post(t, unnamed, api.KeyHeader+": k1"); a.status != http.StatusCreated || a.header.Get(api.ReplayedHeader) != "true" {
		t.Errorf("afterwards: %d %v %s", a.status, a.header, a.text)
	}
}

// refusal is a post that is refused.
type refusal struct {
	body   string
	status int
	says   map[string]any
}

func TestRefusedPosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.book.Open(t.Context(), "assets:box", account.Open{NeverBelowZero: true}); err != nil {
		t.Fatal(err)
	}
	stored := w.events(t)
	edit := func(old, new string) string { return strings.Replace(lunch, old, new, 1) }
	many := `{"date":"2025-01-31","postings":[` + strings.Repeat(`{"account":"a","amount":"0","commodity":"EUR"},`, journal.MaxPostings) +
		`{"account":"a","amount":"0","commodity":"EUR"}]}`
	for name, c := range map[string]refusal{
		"empty":          {"", 400, map[string]any{"detail": "empty", "remedy": "send JSON"}},
		"no JSON":        {"date=2025-01-31", 400, map[string]any{"remedy": "send JSON"}},
		"cut off":        {lunch[:len(lunch)-1], 400, nil},
		"two":            {lunch + lunch, 400, map[string]any{"remedy": "send one value"}},
		"unknown member": {edit(`"date"`, `"day"`), 400, map[string]any{"field": "day", "detail": "no such member"}},
		"unknown inside": {edit(`"amount"`, `"value"`), 400, map[string]any{"field": "value", "detail": "no such member"}},
		"a number":       {edit(`"4.00"`, `4.00`), 400, map[string]any{"field": "amount", "remedy": "write a string"}},
		"a text":         {`"lunch"`, 400, nil},
		"not UTF-8":      {edit("Lunch", "Lun\xffch"), 400, map[string]any{"detail": "not UTF-8"}},
		"too large":      {edit("Lunch", strings.Repeat("x", 1<<20)), 413, map[string]any{"detail": "1048576"}},

		"no date":          {edit(`"2025-01-31"`, `""`), 422, map[string]any{"field": "date", "rule": "calendar", "remedy": "YYYY-MM-DD"}},
		"no such day":      {edit("01-31", "02-30"), 422, map[string]any{"field": "date", "value": "2025-02-30"}},
		"no amount":        {edit(`"4.00"`, `""`), 422, map[string]any{"field": "postings[0].amount", "rule": "plain-number", "remedy": "-1000.00"}},
		"a float":          {edit("4.00", "4e0"), 422, map[string]any{"field": "postings[0].amount", "value": "4e0"}},
		"a comma":          {edit("-4.00", "-4,00"), 422, map[string]any{"field": "postings[1].amount", "value": "-4,00"}},
		"too many digits":  {edit("4.00", "12345678901234567890"), 422, map[string]any{"field": "postings[0].amount"}},
		"no postings":      {`{"date":"2025-01-31"}`, 422, map[string]any{"field": "postings", "rule": "has-postings"}},
		"too many":         {many, 422, map[string]any{"field": "postings", "remedy": "split"}},
		"not zero in sum":  {edit("-4.00", "-4.01"), 422, map[string]any{"field": "postings", "value": "-0.01 EUR", "rule": "zero-sum", "remedy": "correct an amount"}},
		"one side":         {edit(`"-4.00","commodity":"EUR"`, `"4.00","commodity":"USD"`), 422, map[string]any{"rule": "both-sides"}},
		"no account":       {edit("assets:cash", ""), 422, map[string]any{"field": "postings[1].account", "rule": "account-name"}},
		"long account":     {edit("assets:cash", strings.Repeat("a", 401)), 422, map[string]any{"field": "postings[1].account", "rule": "account-name"}},
		"control":          {edit("EUR", `EU\u0007R`), 422, map[string]any{"field": "postings[0].commodity", "rule": "plain-text", "value": `EU\aR`}},
		"NUL":              {edit("Lunch", `Lu\u0000nch`), 422, map[string]any{"field": "description", "rule": "plain-text"}},
		"long description": {edit("Lunch", strings.Repeat("x", journal.MaxField+1)), 422, map[string]any{"field": "description", "rule": "field-size"}},
		"long key":         {edit("k1", strings.Repeat("k", 201)), 422, map[string]any{"field": "key"}},
		"key of two lines": {edit("k1", `k\n1`), 422, map[string]any{"field": "key", "value": `k\n1`}},
		"below zero": {edit("assets:cash", "assets:box"), 422, map[string]any{
			"field": "postings[1].account", "value": "assets:box", "rule": "never-below-zero", "detail": "would leave -4.00", "remedy": "post what comes in first",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.post(t, c.body)
			a.says(t, c.status, c.says)
			if a.body["status"] != float64(c.status) || a.body["title"] == "" || a.body["remedy"] == nil {
				t.Errorf("the problem is %s", a.text)
			}
			if len(a.text) > 1000 {
				t.Errorf("the problem has %d bytes", len(a.text))
			}
		})
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "", "json"} {
		w.send(t, http.MethodPost, "/entries", lunch, "Content-Type: "+kind).says(t, http.StatusUnsupportedMediaType, map[string]any{"field": "Content-Type"})
	}
	w.send(t, http.MethodPost, "/entries", lunch, "Content-Type: application/json", "Content-Encoding: gzip").says(t, http.StatusUnsupportedMediaType, nil)
	for _, key := range []string{`""`, `"`, "a b", strings.Repeat("k", 256), `"\u00e4"`} {
		w.post(t, unnamed, api.KeyHeader+": "+key).says(t, http.StatusBadRequest, map[string]any{"field": api.KeyHeader})
	}
	if n := w.events(t); n != stored {
		t.Errorf("%d events were stored", n-stored)
	}
	w.send(t, http.MethodPost, "/entries", lunch, "Content-Type: application/json; charset=UTF-8").says(t, http.StatusCreated, nil)
}
