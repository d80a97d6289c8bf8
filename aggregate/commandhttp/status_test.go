package commandhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
)

// token makes one of the world's epoch, unless another is given.
func (w *world) token(epoch ...uuid.UUID) string {
	of := w.store.Epoch()
	if len(epoch) > 0 {
		of = epoch[0]
	}
	return eventstore.MakeToken(of, eventstore.Mark{Partition: 1, Position: eventstore.PositionAt(9)}).String()
}

// Each status that the package answers with, and the request that brings it about. doc.go has the same table.
func TestStatuses(t *testing.T) {
	t.Parallel()
	operations := newQueue()
	w := newWorld(t, func(w *world, c *commandhttp.Config) {
		c.Operations = operations
		c.MaxBody = 1000
		c.Wait = func(ctx context.Context, token eventstore.Token) error { return w.handleWait(ctx, token) }
	})
	w.rich(t, "rich")
	fails := func(err error) func() { return func() { w.handle = fail(err) } }
	waits := func(err error) func() {
		return func() { w.wait = func(context.Context, eventstore.Token) error { return err } }
	}
	const (
		post = "POST /accounts/rich/withdrawals"
		free = "POST /anything"
		get  = "GET /accounts/rich"
		one  = `{"cents":1}`
	)
	fresh := "Consistency-Token: " + w.token()
	operation := w.send(t, http.MethodPost, "/accounts/rich/deposits", one, "Idempotency-Key: op", async).header.Get("Location")
	seen := map[string]bool{}
	for i, c := range []struct {
		kind    string // the problem's, or "" of none
		status  int
		before  func()
		request string
		body    string
		headers []string
		also    func(answer) bool
	}{
		{"", 200, nil, get, "", nil, nil},
		{"", 200, nil, "GET /problems", "", nil, nil},
		{"", 200, nil, "GET /healthz", "", []string{"X-Actor: stranger"}, nil},
		{"", 201, nil, post, one, nil, func(a answer) bool { return a.header.Get("Location") == "/accounts/rich?at=3" }},
		{"", 202, nil, post, one, []string{"Prefer: respond-async"}, func(a answer) bool { return a.header.Get("Location") != "" }},
		{"", 204, func() { w.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{}, nil } }, free, `{}`, nil, nil},
		{"", 304, nil, get, "", []string{`If-None-Match: W/"v3"`}, func(a answer) bool { return a.header.Get("ETag") == `"v3"` && a.text == "" }},

		{"key-missing", 400, nil, post, one, []string{"Idempotency-Key: -"}, nil},
		{"syntax", 400, nil, post, one, []string{`Idempotency-Key: "`}, nil},
		{"syntax", 400, nil, post, one, []string{`If-Match: v7`}, nil},
		{"syntax", 400, nil, post, `{"cents":"1"}`, nil, func(a answer) bool { return a.body["field"] == "cents" }},
		{"syntax", 400, nil, post, `{"cents":1,"cent":2}`, nil, func(a answer) bool { return a.body["field"] == "cent" }},
		{"syntax", 400, nil, post, `{"cents":1} {}`, nil, nil},
		{"syntax", 400, nil, post, `{"cents":`, nil, nil},
		{"syntax", 400, nil, post, "\"\xff\"", nil, nil},
		{"syntax", 400, nil, "PUT /accounts/a%00b", `{}`, nil, func(a answer) bool { return a.body["field"] == "id" }},
		{"syntax", 400, nil, "PUT /accounts/" + strings.Repeat("a", 401), `{}`, nil, nil},
		{"syntax", 400, nil, get, "", []string{"Consistency-Token: x"}, nil},
		{"syntax", 400, nil, get + "?wait=soon", "", nil, nil},
		{"syntax", 400, nil, "DELETE /accounts/rich", `{}`, []string{"If-Match: *"}, nil},
		{"caller", 401, nil, get, "", []string{"X-Actor: stranger"}, func(a answer) bool { return a.header.Get("WWW-Authenticate") != "" }},
		{"forbidden", 403, nil, get, "", []string{"X-Actor: villain"}, nil},
		{"forbidden", 403, fails(&bus.ForbiddenError{Err: errors.New("not you")}), free, `{}`, nil, nil},
		{"not-found", 404, nil, "GET /nowhere", "", nil, nil},
		{"not-found", 404, nil, "GET /accounts/poor", "", nil, nil},
		{"not-found", 404, nil, "GET /problems/nothing", "", nil, nil},
		{"not-found", 404, nil, "GET /operations/" + uuid.NewString(), "", nil, nil},
		{"not-found", 404, nil, "GET /operations/7", "", nil, nil},
		{"not-found", 404, fails(eventstore.ErrStreamNotFound), free, `{}`, nil, nil},
		{"method", 405, nil, "PATCH /accounts/rich", `{}`, nil, func(a answer) bool { return a.header.Get("Allow") == "DELETE, GET, HEAD, PUT" }},
		{"not-acceptable", 406, nil, "GET " + operation, "", []string{"Accept: text/html"}, nil},
		{"in-progress", 409, fails(&eventstore.InProgressError{}), free, `{}`, nil, retry},
		{"exists", 409, nil, "PUT /accounts/rich", `{"owner":"bob"}`, nil, nil},
		{"closed", 409, fails(&eventstore.ClosedError{}), free, `{}`, nil, nil},
		{"beyond-log", 409, waits(&eventstore.HistoryError{Reason: "beyond the log"}), get, "", []string{fresh}, nil},
		{"other-history", 410, nil, get, "", []string{"Consistency-Token: " + w.token(uuid.New())}, nil},
		{"precondition", 412, nil, post, one, []string{`If-Match: "v1"`}, func(a answer) bool { return a.header.Get("ETag") == `"v3"` }},
		{"precondition", 412, nil, "PUT /accounts/rich", `{"owner":"bob"}`, []string{"If-None-Match: *"}, nil},
		{"precondition", 412, nil, free, `{}`, []string{`If-Match: "v1"`}, nil},
		{"precondition", 412, nil, get, "", []string{`If-Match: "v1"`}, nil},
		{"too-large", 413, nil, post, `{"note":"` + strings.Repeat("x", 1000) + `"}`, nil, nil},
		{"media-type", 415, nil, post, one, []string{"Content-Type: text/plain"}, nil},
		{"media-type", 415, nil, post, one, []string{"Content-Encoding: gzip"}, nil},
		{"media-type", 415, nil, post, one, []string{"Content-Encoding: identity", "Content-Encoding: gzip"}, nil},
		{"rule", 422, nil, post, `{"cents":1000001}`, nil, func(a answer) bool { return a.body["detail"] == errTooBig.Error() }},
		{"rule", 422, nil, post, `{"cents":0}`, nil, func(a answer) bool { return a.body["detail"] == "cents must be positive" }},
		{"funds", 422, nil, post, `{"cents":5000}`, nil, func(a answer) bool { return a.body["remedy"] == "take less" && a.body["rule"] == "funds" }},
		{"key-used", 422, nil, post, `{"cents":2}`, []string{"Idempotency-Key: key-3"}, nil},
		{"precondition-required", 428, nil, "DELETE /accounts/rich", "", nil, nil},
		{"share", 429, fails(&admission.OverloadedError{Reason: admission.OverShare, RetryAfter: time.Millisecond}), free, `{}`, nil, retry},

		{"fault", 500, fails(errors.New("secret")), free, `{}`, nil, nil},
		{"fault", 500, fails(&eventstore.InvalidError{Field: "secret"}), free, `{}`, nil, nil},
		{"fault", 500, func() { w.handle = func(context.Context, anything) (bus.Reply, error) { panic("secret") } }, free, `{}`, nil, nil},
		{"fault", 500, nil, "POST /homeless", `{}`, nil, nil},
		{"overloaded", 503, fails(&admission.OverloadedError{Reason: admission.QueueFull}), free, `{}`, nil, retry},
		{"busy", 503, fails(&eventstore.ConflictError{}), free, `{}`, nil, retry},
		{"timeout", 503, fails(context.DeadlineExceeded), free, `{}`, nil, retry},
		{"unconfirmed", 503, fails(eventstore.ErrUnconfirmed), free, `{}`, nil, retry},
		{"unavailable", 503, fails(fmt.Errorf("secret: %w", &net.OpError{Op: "dial", Err: errors.New("refused")})), free, `{}`, nil, retry},
		{"expired", 503, fails(&bus.ExpiredError{}), free, `{}`, nil, func(a answer) bool { return !retry(a) }},
		{"stale", 503, waits(&commandhttp.StaleError{Lag: commandhttp.Lag{Behind: 3}}), get, "", []string{fresh}, retry},
		{"stale", 503, waits(&commandhttp.StaleError{}), post, one, []string{fresh, "Prefer: handling=lenient"}, retry},
		{"stopped", 503, waits(&commandhttp.StoppedError{What: "balances", State: "paused"}), get, "", []string{fresh}, retry},
		{"set-aside", 503, waits(&commandhttp.SetAsideError{What: "balances", RetryAfter: 7 * time.Second}), get, "", []string{fresh}, func(a answer) bool {
			return a.header.Get("Retry-After") == "7" && strings.HasPrefix(a.body["detail"].(string), "balances ")
		}},
		{"set-aside", 503, waits(&commandhttp.SetAsideError{}), post, one, []string{fresh, "Prefer: handling=lenient"}, func(a answer) bool {
			return a.header.Get("Retry-After") == "60"
		}},
	} {
		if c.before != nil {
			c.before()
		}
		seen[c.kind] = true
		method, path, _ := strings.Cut(c.request, " ")
		headers := c.headers
		switch {
		case slices.Contains(headers, "Idempotency-Key: -"):
			headers = nil
		case !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "Idempotency-Key") }):
			headers = append(headers, fmt.Sprint("Idempotency-Key: key-", i))
		}
		a := w.send(t, method, path, c.body, headers...)
		want := map[string]any{}
		if c.kind != "" {
			want = map[string]any{"type": "urn:bank:" + c.kind, "status": float64(c.status)}
			if a.body["title"] == nil || a.body["remedy"] == nil {
				t.Errorf("%d, %s: there is no title or no remedy: %s", i, c.request, a.text)
			}
		}
		a.says(t, c.status, want)
		if c.also != nil && !c.also(a) {
			t.Errorf("%d, %s %v: %v %s", i, c.request, c.headers, a.header, a.text)
		}
		if strings.Contains(a.text, "secret") {
			t.Errorf("%d, %s shows the text of a fault: %s", i, c.request, a.text)
		}
	}
	for _, kind := range problems.Types() {
		if !seen[kind.Name] && kind.Name != "watchers" { // which has a test of its own
			t.Errorf("no request brings about %s", kind.Name)
		}
	}
	if lines := strings.Count(w.log.String(), "level=ERROR"); lines != 8 {
		t.Errorf("%d faults are logged, want 8:\n%s", lines, w.log)
	}
}

// handleWait is the Wait of the test.
func (w *world) handleWait(ctx context.Context, token eventstore.Token) error {
	if w.wait == nil {
		return nil
	}
	return w.wait(ctx, token)
}

func fail(err error) func(context.Context, anything) (bus.Reply, error) {
	return func(context.Context, anything) (bus.Reply, error) { return bus.Reply{}, err }
}

func retry(a answer) bool {
	n := a.header.Get("Retry-After")
	return n != "" && n != "0"
}

// Every type of the registry has a status in the table of the documentation, and the list shows all.
func TestProblemList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.send(t, http.MethodGet, "/problems", "")
	list, _ := a.body["problems"].([]any)
	if len(list) != len(problems.Types()) || len(list) < 25 {
		t.Errorf("%d types are listed of %d", len(list), len(problems.Types()))
	}
	table, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range problems.Types() {
		row := regexp.MustCompile(fmt.Sprintf(`//\t%d  .*\b%s\b`, kind.Status, kind.Name))
		if kind.For == nil && !row.Match(table) {
			t.Errorf("the documentation does not say that %s is %d", kind.Name, kind.Status)
		}
		one := w.send(t, http.MethodGet, "/problems/"+kind.Name, "")
		one.says(t, http.StatusOK, map[string]any{"type": problems.URI(kind.Name), "title": kind.Title, "status": float64(kind.Status)})
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	p := commandhttp.NewProblems("https://bank.example/problems/",
		commandhttp.ProblemType{Name: "stale", Title: "The balance is not there yet"},
		commandhttp.ProblemType{Name: "frozen", Status: http.StatusLocked, Title: "The account is frozen"})
	types := p.Types()
	if types[0].Status != http.StatusServiceUnavailable || types[0].Remedy == "" || types[1].Status != http.StatusLocked {
		t.Errorf("%+v", types[:2])
	}
	if got := p.URI("frozen"); got != "https://bank.example/problems/frozen" {
		t.Error(got)
	}
	for name, bad := range map[string][]commandhttp.ProblemType{
		"a name":      {{Name: "No", Title: "x"}},
		"no name":     {{Title: "x"}},
		"a title":     {{Name: "no"}},
		"twice":       {{Name: "no", Title: "x"}, {Name: "no", Title: "x"}},
		"a status":    {{Name: "no", Title: "x", Status: 200}},
		"our status":  {{Name: "stale", Title: "x", Status: 500}},
		"five digits": {{Name: "no", Title: "x", Status: 60000}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: nothing is wrong with it", name)
				}
			}()
			commandhttp.NewProblems("", bad...)
		}()
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := commandhttp.New(commandhttp.Config{Time: -1, Streams: -1, Prefix: "v1/"})
	for _, want := range []string{"Config.Bus", "Config.Time", "Config.Streams", "Config.Prefix"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// A problem of the program's own: with members, headers, and what the registry adds.
func TestOwnProblem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.handle = fail(&commandhttp.Problem{
		Kind: "funds", Field: "cents", Value: "9", Detail: "there are 3", Extensions: map[string]any{"balance": 3, "title": "no"},
		RetryAfter: 1500 * time.Millisecond, Header: http.Header{"X-More": {"yes"}},
	})
	a := w.send(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: a")
	const want = `{"type":"urn:bank:funds","title":"Not enough money","status":422,"detail":"there are 3","field":"cents","value":"9","remedy":"take less","balance":3}` + "\n"
	if a.text != want || a.header.Get("Retry-After") != "2" || a.header.Get("X-More") != "yes" {
		t.Errorf("%v\n%s", a.header, a.text)
	}
	w.handle = fail(&commandhttp.Problem{Kind: "unheard-of"})
	w.send(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: b").says(t, http.StatusInternalServerError, nil)
	w.handle = fail(&commandhttp.Problem{Extensions: map[string]any{"bad": func() {}}})
	w.send(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: c").says(t, http.StatusInternalServerError, nil)
	w.handle = fail(&aggregate.ExistsError{})
	w.send(t, http.MethodPost, "/anything", `{}`, "Idempotency-Key: d").says(t, http.StatusConflict, nil)
}
