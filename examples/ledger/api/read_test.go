package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/api"
	"github.com/daybook-go/daybook/internal/testscale"
)

const cash = "/balances/assets:cash"

func tokenOf(a answer) string { return api.TokenHeader + ": " + a.header.Get(api.TokenHeader) }

func TestReadWithToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	posted := w.post(t, lunch)
	w.send(t, http.MethodGet, cash, "").says(t, http.StatusOK, nil) // without a token nobody waits
	w.catchUp(t, posted.header.Get(api.TokenHeader))
	for path, want := range map[string]string{
		cash:               `{"account":"assets:cash","balances":[{"account":"assets:cash","amount":"-4.00","commodity":"EUR"}]}`,
		"/balances":        `{"balances":[{"account":"assets:cash","amount":"-4.00","commodity":"EUR"},{"account":"expenses:food","amount":"4.00","commodity":"EUR"}]}`,
		"/balances/nobody": `{"account":"nobody","balances":[]}`,
	} {
		a := w.send(t, http.MethodGet, path, "", tokenOf(posted), "Prefer: wait=9")
		if a.status != http.StatusOK || a.text != want+"\n" {
			t.Errorf("%s: %d %s, want %s", path, a.status, a.text, want)
		}
		if a.header.Get("Preference-Applied") != "wait=9" || a.header.Get(api.LagHeader) != "" || a.header.Get("Cache-Control") != "private, no-cache" {
			t.Errorf("%s: the headers are %v", path, a.header)
		}
	}
	if a := w.send(t, http.MethodHead, cash, "", tokenOf(posted)); a.status != http.StatusOK {
		t.Errorf("HEAD: %d", a.status)
	}
}

// Names of accounts are free, and paths are not.
func TestNamesInPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	posted := w.post(t, strings.Replace(lunch, "assets:cash", `assets:a/b %ü`, 1))
	w.catchUp(t, posted.header.Get(api.TokenHeader))
	if a := w.send(t, http.MethodGet, "/balances/assets:a%2Fb%20%25%C3%BC", "", tokenOf(posted)); !strings.Contains(a.text, `"-4.00"`) {
		t.Errorf("%d %s", a.status, a.text)
	}
	for path, field := range map[string]string{"/balances/%00": "account", "/balances/%ff": "account", "/entries/%00": "key", "/accounts/%ff": "name"} {
		w.send(t, http.MethodGet, path, "").says(t, http.StatusBadRequest, map[string]any{"field": field})
	}
}

func TestStaleReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.post(t, lunch)
	w.catchUp(t, first.header.Get(api.TokenHeader))
	second := w.post(t, strings.Replace(lunch, "k1", "k2", 1))

	a := w.send(t, http.MethodGet, cash+"?wait=120ms", "", tokenOf(second))
	a.says(t, http.StatusServiceUnavailable, map[string]any{
		"type": "stale", "detail": "no process works on it", "working": false, "remedy": "do not post again", "behind": float64(3),
	})
	if a.header.Get("Retry-After") == "" || a.took < 100*time.Millisecond || a.body["want"] == a.body["have"] {
		t.Errorf("after %s: %v %s", a.took, a.header, a.text)
	}
	a = w.send(t, http.MethodGet, cash+"?wait=0", "", tokenOf(second), "Prefer: foo; bar, handling=lenient")
	a.says(t, http.StatusOK, nil)
	if !strings.Contains(a.text, `"amount":"-4.00"`) || !strings.Contains(a.text, `"stale":{"want":`) ||
		a.header.Get("Preference-Applied") != "handling=lenient" || a.header.Get(api.LagHeader) != "3" {
		t.Errorf("the stale answer is %v %s", a.header, a.text)
	}
	// What the reader has is shown: nothing is stale.
	a = w.send(t, http.MethodGet, cash, "", tokenOf(first), "Prefer: handling=lenient")
	if a.says(t, http.StatusOK, map[string]any{"stale": nil}); a.header.Get("Preference-Applied") != "" {
		t.Errorf("the headers are %v", a.header)
	}
	// All tokens count.
	w.send(t, http.MethodGet, cash+"?wait=0", "", tokenOf(second), tokenOf(first)).says(t, http.StatusServiceUnavailable, nil)
	w.catchUp(t, second.header.Get(api.TokenHeader))
	w.send(t, http.MethodGet, cash, "", tokenOf(second), tokenOf(first)).says(t, http.StatusOK, nil)
}

// Whoever says nothing waits for two seconds, and a preference counts only where the query says nothing.
func TestHowLongReadsWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	posted := w.post(t, lunch)
	cases := []struct {
		query, prefer string
		least, most   time.Duration
		applied       string
	}{
		{"", "wait=1", time.Second, 2 * time.Second, "wait=1"},
		{"?wait=100ms", "wait=20", 100 * time.Millisecond, time.Second, ""},
		{"?wait=0", "", 0, time.Second, ""},
		{"", "wait=x", 2 * time.Second, 4 * time.Second, ""},
		{"", "wait=-1", 2 * time.Second, 4 * time.Second, ""},
		{"", "", 2 * time.Second, 4 * time.Second, ""},
	}
	for _, c := range cases[:max(3, testscale.N(len(cases)))] { // the others take two seconds each
		a := w.send(t, http.MethodGet, cash+c.query, "", tokenOf(posted), "Prefer: "+c.prefer)
		a.says(t, http.StatusServiceUnavailable, nil)
		if a.took < c.least || a.took > c.most || a.header.Get("Preference-Applied") != c.applied {
			t.Errorf("%q, %q: answered after %s with %v", c.query, c.prefer, a.took, a.header)
		}
	}
	for _, wait := range []string{"31", "-1", "-1s", "31s", "soon", "", "1e3", "99999999999999999999"} {
		w.send(t, http.MethodGet, cash+"?wait="+wait, "", tokenOf(posted)).says(t, http.StatusBadRequest, map[string]any{"field": "wait", "remedy": "wait=2"})
	}
}

func TestTokensThatAreNotOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, err := eventstore.ParseToken(w.post(t, lunch).header.Get(api.TokenHeader))
	if err != nil {
		t.Fatal(err)
	}
	mark := token.Marks()[0]
	beyond := eventstore.Mark{Partition: mark.Partition, Position: eventstore.PositionAt(1 << 40)}
	nowhere := eventstore.Mark{Partition: w.store.Partitions(), Position: mark.Position}
	for name, c := range map[string]struct {
		token  string
		status int
		says   map[string]any
	}{
		"no token":      {"hello", 400, map[string]any{"field": api.TokenHeader, "value": "hello"}},
		"cut off":       {token.String()[:20], 400, nil},
		"long":          {strings.Repeat("A", 10_000), 400, nil},
		"no partition":  {eventstore.MakeToken(token.Epoch(), nowhere).String(), 400, nil},
		"other history": {eventstore.MakeToken(uuid.New(), mark).String(), 410, map[string]any{"remedy": "drop the token"}},
		"beyond":        {eventstore.MakeToken(token.Epoch(), beyond).String(), 409, map[string]any{"detail": "beyond the log", "remedy": "drop the token"}},
	} {
		a := w.send(t, http.MethodGet, cash, "", api.TokenHeader+": "+c.token, "Prefer: handling=lenient")
		if a.says(t, c.status, c.says); a.took > time.Second {
			t.Errorf("%s: answered after %s", name, a.took)
		}
	}
	w.send(t, http.MethodGet, cash, "", api.TokenHeader+": ").says(t, http.StatusOK, nil) // nothing is asked for
}

// Waiting for a read model that stands still is in vain. Why it does may quote what was posted.
func TestStoppedReadModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	posted := w.post(t, lunch)
	for _, state := range []string{"stopped", "paused"} {
		_, err := w.pool.Exec(t.Context(), "UPDATE daybook.consumers SET state = $1, reason = 'Lunch is bad' WHERE consumer = 'balances'", state)
		if err != nil {
			t.Fatal(err)
		}
		a := w.send(t, http.MethodGet, cash, "", tokenOf(posted))
		a.says(t, http.StatusServiceUnavailable, map[string]any{"type": "stopped", "state": state, "remedy": "is stored"})
		if a.took > time.Second || a.header.Get("Retry-After") == "" || a.body["since"] == nil || strings.Contains(a.text, "Lunch") {
			t.Errorf("after %s: %v %s", a.took, a.header, a.text)
		}
	}
	w.send(t, http.MethodGet, cash, "").says(t, http.StatusOK, nil)
}

// What the balances could not show is not shown as if it were all there is. Whose account it is of is nobody's business.
func TestReadModelThatHasSetSomethingAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	posted := w.post(t, lunch)
	w.catchUp(t, posted.header.Get(api.TokenHeader))
	token, err := eventstore.ParseToken(posted.header.Get(api.TokenHeader))
	if err != nil {
		t.Fatal(err)
	}
	mark := token.Marks()[0]
	_, err = w.pool.Exec(t.Context(), `INSERT INTO daybook.parked (consumer, version, sequence, partition, state, first_position, last_position)
		SELECT consumer, version, 'of somebody', $1, 'parked', $2, $2 FROM daybook.consumers WHERE consumer = 'balances'`, mark.Partition, mark.Position.Ordinal())
	if err != nil {
		t.Fatal(err)
	}
	a := w.send(t, http.MethodGet, cash, "", tokenOf(posted))
	a.says(t, http.StatusServiceUnavailable, map[string]any{"type": "set-aside", "remedy": "is stored"})
	if a.took > time.Second || a.header.Get("Retry-After") != "60" || a.body["since"] == nil || strings.Contains(a.text, "somebody") {
		t.Errorf("after %s: %v %s", a.took, a.header, a.text)
	}
	a = w.send(t, http.MethodGet, cash, "", tokenOf(posted), "Prefer: handling=lenient")
	if a.says(t, http.StatusOK, nil); !strings.Contains(a.text, `"-4.00"`) || !strings.Contains(a.text, `"stale":{"want":"`+mark.Position.String()) ||
		a.header.Get("Preference-Applied") != "handling=lenient" || a.header.Get(api.LagHeader) != "" {
		t.Errorf("lenient: %v %s", a.header, a.text)
	}
	w.send(t, http.MethodGet, cash, "").says(t, http.StatusOK, map[string]any{"stale": nil})
}

func TestManyPostsAreAllRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 3 {
		posted := w.post(t, strings.Replace(lunch, "k1", fmt.Sprint("k", i), 1))
		w.catchUp(t, posted.header.Get(api.TokenHeader))
		if a := w.send(t, http.MethodGet, cash, "", tokenOf(posted)); !strings.Contains(a.text, fmt.Sprintf(`"-%d.00"`, 4*(i+1))) {
			t.Errorf("after post %d: %s", i, a.text)
		}
	}
}
