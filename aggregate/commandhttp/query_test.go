package commandhttp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
)

func TestReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.rich(t, "a")
	a := w.send(t, http.MethodGet, "/accounts/a", "")
	if a.says(t, http.StatusOK, map[string]any{"owner": "ada", "balance": float64(100)}); a.header.Get("Etag") != `"v2"` ||
		a.header.Get("Cache-Control") != "private, no-cache" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", a.header)
	}
	for value, status := range map[string]int{
		`"v2"`: 304, `W/"v2"`: 304, `"v1", "v2"`: 304, `*`: 304, `"v1"`: 200, `"v02"`: 200, `v2`: 400,
	} {
		if a := w.send(t, http.MethodGet, "/accounts/a", "", "If-None-Match: "+value); a.status != status {
			t.Errorf("If-None-Match: %s: %d", value, a.status)
		}
	}
	for value, status := range map[string]int{`"v2"`: 200, `*`: 200, `W/"v2"`: 412, `"v1"`: 412} {
		if a := w.send(t, http.MethodGet, "/accounts/a", "", "If-Match: "+value); a.status != status {
			t.Errorf("If-Match: %s: %d", value, a.status)
		}
	}
	if head := w.send(t, http.MethodHead, "/accounts/none", ""); head.status != http.StatusNotFound {
		t.Errorf("HEAD: %d", head.status)
	}
	// What has no version has the ETag of its bytes.
	total := w.send(t, http.MethodGet, "/total", "")
	tag := total.header.Get("Etag")
	if !strings.HasPrefix(tag, `"b`) || w.send(t, http.MethodGet, "/total", "", "If-None-Match: "+tag).status != http.StatusNotModified {
		t.Errorf("%v", total.header)
	}
}

func TestStaleReads(t *testing.T) {
	t.Parallel()
	lag := commandhttp.Lag{Want: eventstore.PositionAt(9), Have: eventstore.PositionAt(6), Behind: 3}
	asked := make(chan time.Duration, 1)
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Wait = func(ctx context.Context, _ eventstore.Token) error {
			until, _ := ctx.Deadline()
			asked <- time.Until(until)
			return &commandhttp.StaleError{Lag: lag}
		}
	})
	w.rich(t, "a")
	token := "Consistency-Token: " + w.token()
	for _, c := range []struct {
		query, prefer string
		least, most   time.Duration
		applied       string
	}{
		{"", "wait=1", 0, time.Second, "wait=1"},
		{"", "wait=100", 25 * time.Second, 30 * time.Second, "wait=30"},
		{"?wait=100ms", "wait=20", 0, 100 * time.Millisecond, ""},
		{"?wait=0", "", 0, 50 * time.Millisecond, ""},
		{"", "wait=x", time.Second, 2 * time.Second, ""},
		{"", "", time.Second, 2 * time.Second, ""},
	} {
		a := w.send(t, http.MethodGet, "/accounts/a"+c.query, "", token, "Prefer: "+c.prefer)
		a.says(t, http.StatusServiceUnavailable, map[string]any{"behind": float64(3), "working": false, "want": "9", "detail": "no process works on it"})
		if took := <-asked; took < c.least || took > c.most || a.header.Get("Preference-Applied") != c.applied {
			t.Errorf("%q, %q: waits for %s, %v", c.query, c.prefer, took, a.header)
		}
	}
	a := w.send(t, http.MethodGet, "/accounts/a", "", token, "Prefer: foo; bar, handling=lenient, wait=1")
	<-asked
	if a.says(t, http.StatusOK, map[string]any{"balance": float64(100)}); a.header.Get("Preference-Applied") != "wait=1, handling=lenient" ||
		a.header.Get(commandhttp.LagHeader) != "3" || a.header.Get("Etag") != "" || !strings.Contains(a.text, `"stale":{"want":`) {
		t.Errorf("%v %s", a.header, a.text)
	}
	for _, wait := range []string{"31", "-1", "-1s", "31s", "soon", "", "1e3", "99999999999999999999"} {
		w.send(t, http.MethodGet, "/accounts/a?wait="+wait, "", token).says(t, http.StatusBadRequest, map[string]any{"field": "wait", "remedy": "wait=2"})
	}
	// Without a token, or with an empty one, nothing waits.
	w.send(t, http.MethodGet, "/accounts/a", "", "Consistency-Token: ").says(t, http.StatusOK, nil)
}

func TestTokensThatAreNotOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Wait = func(context.Context, eventstore.Token) error { return nil }
	})
	nowhere := eventstore.MakeToken(w.store.Epoch(), eventstore.Mark{Partition: w.store.Partitions(), Position: eventstore.PositionAt(1)})
	for name, token := range map[string]string{
		"none": "hello", "cut off": w.token()[:20], "long": strings.Repeat("A", 10_000), "no partition": nowhere.String(),
	} {
		a := w.send(t, http.MethodGet, "/total", "", "Consistency-Token: "+token)
		if a.says(t, http.StatusBadRequest, map[string]any{"field": commandhttp.TokenHeader}); a.status == http.StatusOK {
			t.Error(name)
		}
	}
	// Several are all asked for.
	w.send(t, http.MethodGet, "/total", "", "Consistency-Token: "+w.token(), "Consistency-Token: x").says(t, http.StatusBadRequest, nil)
	w.send(t, http.MethodGet, "/total", "", "Consistency-Token: "+w.token(), "Consistency-Token: "+w.token()).says(t, http.StatusOK, nil)
}

// What a write answers with is what a read waits for.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	waited := make(chan eventstore.Token, 2)
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Wait = func(_ context.Context, token eventstore.Token) error {
			waited <- token
			return nil
		}
	})
	w.rich(t, "a")
	wrote := w.send(t, http.MethodPost, withdrawals, `{"cents":1}`, "Idempotency-Key: k")
	token := wrote.header.Get(commandhttp.TokenHeader)
	w.send(t, http.MethodGet, "/accounts/a", "", "Consistency-Token: "+token).says(t, http.StatusOK, nil)
	// A write waits for it as well.
	w.send(t, http.MethodPost, withdrawals, `{"cents":1}`, "Idempotency-Key: l", "Consistency-Token: "+token).says(t, http.StatusCreated, nil)
	for range 2 {
		if got := <-waited; got.String() != token || token == "" {
			t.Errorf("waited for %q, not for %q", got, token)
		}
	}
}

// Patterns that overlap are no hindrance, and a HEAD is a GET.
func TestMethodsAndPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	commandhttp.Handle(w.api, "GET /accounts/new", commandhttp.Plain{Serve: func(w http.ResponseWriter, _ *http.Request) error {
		return commandhttp.WriteJSON(w, http.StatusOK, nil)
	}})
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/accounts/new", 200, ""},
		{"HEAD", "/accounts/new", 200, ""},
		{"POST", "/accounts/new", 405, "DELETE, GET, HEAD, PUT"},
		{"GET", withdrawals, 405, "POST"},
		{"GET", "/", 404, ""},
		{"GET", "/accounts/", 404, ""},
		{"POST", "/operations/x", 404, ""}, // nobody takes operations here
		{"DELETE", "/problems", 405, "GET, HEAD"},
	} {
		a := w.send(t, c.method, c.path, "")
		if a.says(t, c.status, nil); a.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: Allow is %q, want %q", c.method, c.path, a.header.Get("Allow"), c.allow)
		}
	}
}

// Who wants an answer all the same gets it, with how far it is known to be complete.
func TestSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Wait = func(context.Context, eventstore.Token) error {
			return &commandhttp.SetAsideError{Lag: commandhttp.Lag{Behind: -1, Working: true}, What: "balances", Since: time.Now()}
		}
	})
	w.rich(t, "a")
	token := "Consistency-Token: " + w.token()
	a := w.send(t, http.MethodGet, "/accounts/a", "", token)
	a.says(t, http.StatusServiceUnavailable, map[string]any{"type": "urn:bank:set-aside", "detail": "balances"})
	if a.header.Get("Retry-After") != "60" || a.body["since"] == nil {
		t.Errorf("%v %s", a.header, a.text)
	}
	a = w.send(t, http.MethodGet, "/accounts/a", "", token, "Prefer: handling=lenient")
	if a.says(t, http.StatusOK, nil); a.header.Get("Preference-Applied") != "handling=lenient" || a.header.Get("Etag") != "" ||
		!strings.Contains(a.text, `"stale":{"want":`) {
		t.Errorf("%v %s", a.header, a.text)
	}
}

// A Wait that says nothing but that the time is over is as good.
func TestUnknownLag(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Wait = func(ctx context.Context, _ eventstore.Token) error {
			<-ctx.Done()
			return ctx.Err()
		}
	})
	w.rich(t, "a")
	token := "Consistency-Token: " + w.token()
	a := w.send(t, http.MethodGet, "/accounts/a?wait=0", "", token)
	a.says(t, http.StatusServiceUnavailable, map[string]any{"type": "urn:bank:stale", "behind": nil})
	a = w.send(t, http.MethodGet, "/accounts/a?wait=0", "", token, "Prefer: handling=lenient")
	if a.says(t, http.StatusOK, nil); a.header.Get("Preference-Applied") != "handling=lenient" || a.header.Get(commandhttp.LagHeader) != "" {
		t.Errorf("%v", a.header)
	}
	// What is read from the log needs no wait.
	commandhttp.Query(w.api, "GET /log", commandhttp.Read[accountView]{
		Load: func(context.Context, *http.Request) (accountView, error) { return accountView{}, nil }, Wait: commandhttp.NoWait,
	})
	w.send(t, http.MethodGet, "/log", "", token).says(t, http.StatusOK, nil)
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	q := newQueue()
	w := newWorld(t, func(_ *world, c *commandhttp.Config) { c.Operations, c.Prefix = q, "/v1" })
	a := w.send(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: k", async)
	if path := a.header.Get("Location"); !strings.HasPrefix(path, "/v1/operations/") || w.send(t, http.MethodGet, path, "").status != http.StatusOK {
		t.Errorf("%q", path)
	}
	w.send(t, http.MethodGet, "/v1/problems", "").says(t, http.StatusOK, nil)
	w.send(t, http.MethodGet, "/problems", "").says(t, http.StatusNotFound, nil)
}
