package commandhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
)

const async = "Prefer: respond-async"

// newAsync is a world whose operations the test carries out.
func newAsync(t *testing.T, change func(*commandhttp.Config)) (*world, *queue) {
	t.Helper()
	q := newQueue()
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Operations = q
		if change != nil {
			change(c)
		}
	})
	w.rich(t, "a")
	return w, q
}

// idOf is the operation that an answer names.
func idOf(t *testing.T, a answer) uuid.UUID {
	t.Helper()
	id, err := uuid.Parse(strings.TrimPrefix(a.header.Get("Location"), "/operations/"))
	if err != nil || a.status != http.StatusAccepted {
		t.Fatalf("%d %v %s: %v", a.status, a.header, a.text, err)
	}
	return id
}

func TestRespondAsync(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, nil)
	first := w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async)
	id := idOf(t, first)
	first.says(t, http.StatusAccepted, map[string]any{"id": id.String(), "state": "accepted", "progress": 0.0})
	if first.header.Get("Preference-Applied") != "respond-async" || first.header.Get("Etag") != `"r1"` {
		t.Errorf("%v", first.header)
	}
	if links, _ := first.body["links"].(map[string]any); links["self"] != first.header.Get("Location") {
		t.Errorf("%s", first.text)
	}
	again := w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async)
	if idOf(t, again) != id {
		t.Errorf("%v", again.header)
	}
	w.send(t, http.MethodPost, withdrawals, `{"cents":31}`, "Idempotency-Key: k", async).
		says(t, http.StatusUnprocessableEntity, map[string]any{"type": "urn:bank:key-used"})

	path := first.header.Get("Location")
	q.edit(id, func(op *bus.Operation) { op.State, op.Progress, op.Note = bus.OperationRunning, 0.5, "half" })
	at := w.send(t, http.MethodGet, path, "")
	if at.says(t, http.StatusOK, map[string]any{"state": "running", "progress": 0.5, "note": "half"}); at.header.Get("Etag") != `"r2"` {
		t.Errorf("%v", at.header)
	}
	w.send(t, http.MethodGet, path, "", `If-None-Match: "r2"`).says(t, http.StatusNotModified, nil)
	w.send(t, http.MethodGet, path, "", "X-Actor: bob").says(t, http.StatusNotFound, nil) // it is not theirs
	w.send(t, http.MethodGet, path, "", "Accept: text/html").says(t, http.StatusNotAcceptable, nil)
	q.run(t.Context(), w.bus, id)
	done := w.send(t, http.MethodGet, path, "")
	done.says(t, http.StatusOK, map[string]any{"state": "done", "etag": `"v3"`})
	for _, name := range []string{"accepted", "started", "changed", "finished", "token"} {
		if text, _ := done.body[name].(string); text == "" {
			t.Errorf("there is no %s: %s", name, done.text)
		}
	}
	// The same request without the preference has the same effect: none any more.
	sync := w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k")
	if sync.says(t, http.StatusCreated, map[string]any{"version": float64(3)}); sync.header.Get(commandhttp.ReplayedHeader) != "true" ||
		sync.header.Get(commandhttp.TokenHeader) != done.body["token"] {
		t.Errorf("%v", sync.header)
	}
	if a := w.load(t, "a"); a.State.Balance != 70 {
		t.Errorf("%+v", a)
	}
}

// With wait=, the answer is the real one if it comes in time.
func TestWaitForAnswer(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, nil)
	runNext := func(after int) {
		if err := q.until(t.Context(), func() bool { return q.watched > after }); err != nil {
			t.Error(err)
			return
		}
		q.mu.Lock()
		var next uuid.UUID
		for id, o := range q.all {
			if !o.op.Finished() {
				next = id
			}
		}
		q.mu.Unlock()
		q.run(t.Context(), w.bus, next)
	}
	go runNext(0)
	a := w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: k", async+", wait=20")
	if a.says(t, http.StatusCreated, map[string]any{"version": float64(3)}); a.header.Get("Preference-Applied") != "respond-async, wait=20" ||
		a.header.Get("Location") != "/accounts/a?at=3" || a.header.Get("Etag") != `"v3"` || a.header.Get(commandhttp.TokenHeader) == "" {
		t.Errorf("%v", a.header)
	}
	go runNext(1)
	refused := w.send(t, http.MethodPost, withdrawals, `{"cents":3000}`, "Idempotency-Key: l", async+", wait=20")
	same := w.send(t, http.MethodPost, withdrawals, `{"cents":3000}`, "Idempotency-Key: l")
	if refused.status != http.StatusUnprocessableEntity || refused.text != same.text {
		t.Errorf("%d %s, but %s", refused.status, refused.text, same.text)
	}
	// What cannot be right is no operation.
	w.send(t, http.MethodPost, withdrawals, `{"cents":0}`, "Idempotency-Key: v", async).
		says(t, http.StatusUnprocessableEntity, map[string]any{"detail": "cents must be positive"})
	// Nobody carries it out.
	slow := w.send(t, http.MethodPost, withdrawals, `{"cents":1}`, "Idempotency-Key: m", async+", wait=1")
	if id := idOf(t, slow); slow.header.Get("Preference-Applied") != "respond-async, wait=1" {
		t.Errorf("%v", slow.header)
	} else {
		at := w.send(t, http.MethodGet, "/operations/"+id.String(), "", "Prefer: wait=1")
		if at.says(t, http.StatusOK, map[string]any{"state": "accepted"}); at.header.Get("Preference-Applied") != "wait=1" {
			t.Errorf("%v", at.header)
		}
	}
	// wait=0 looks once.
	if a := w.send(t, http.MethodPost, withdrawals, `{"cents":1}`, "Idempotency-Key: m", async+", wait=0"); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.text)
	}
	if began, ended := q.watches(); began != ended {
		t.Errorf("%d of %d watches have ended", ended, began)
	}
}

// What failed is data.
func TestOperationsThatFailed(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, nil)
	for i, c := range []struct {
		state        bus.OperationState
		code, reason string
		kind         string
		status       int
	}{
		{bus.OperationRefused, "funds", "account: not enough money", "funds", 422},
		{bus.OperationRefused, "other", "no", "rule", 422},
		{bus.OperationRefused, "version", "", "precondition", 412},
		{bus.OperationRefused, "forbidden", "", "forbidden", 403},
		{bus.OperationExpired, "", "", "expired", 503},
		{bus.OperationFailed, "reused_key", "", "key-used", 422},
		{bus.OperationFailed, "invalid", "cents must be positive", "rule", 422},
		{bus.OperationFailed, "invalid", "", "rule", 422},
		{bus.OperationFailed, "unstorable", "secret", "fault", 500},
		{bus.OperationFailed, "panic", "secret", "fault", 500},
	} {
		key := fmt.Sprint("Idempotency-Key: ", i)
		id := idOf(t, w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, key, async))
		q.edit(id, func(op *bus.Operation) {
			op.State, op.Code, op.Reason, op.FinishedAt = c.state, c.code, c.reason, time.Now()
		})
		a := w.send(t, http.MethodGet, "/operations/"+id.String(), "")
		a.says(t, http.StatusOK, map[string]any{"state": string(c.state)})
		p, _ := a.body["problem"].(map[string]any)
		if p["type"] != "urn:bank:"+c.kind || p["status"] != float64(c.status) || p["title"] == nil || strings.Contains(a.text, "secret") {
			t.Errorf("%s %s: %s", c.state, c.code, a.text)
		}
		if detail, _ := p["detail"].(string); c.kind == "rule" && detail != c.reason {
			t.Errorf("%s %s: the detail is %q, want %q", c.state, c.code, detail, c.reason)
		}
		// Who waits for it is answered as if it had been carried out at once.
		w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, key, async+", wait=1").says(t, c.status, map[string]any{"type": "urn:bank:" + c.kind})
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, nil)
	type result struct{ Number int }
	commandhttp.Command(w.api, "POST /raw", commandhttp.Endpoint[anything]{Within: time.Hour})
	commandhttp.Command(w.api, "POST /typed", commandhttp.Endpoint[anything]{
		Result: func(_ string, data []byte) (any, error) {
			var r result
			err := json.Unmarshal(data, &r)
			return r, err
		},
		Render: func(reply bus.Reply) any { return map[string]int{"number": reply.Result.(result).Number} },
	})
	w.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{Result: result{7}}, nil }
	for path, want := range map[string]string{"/raw": `{"Number":7}`, "/typed": `{"number":7}`} {
		first := w.send(t, http.MethodPost, path, `{}`, "Idempotency-Key: "+path, async)
		id := idOf(t, first)
		q.run(t.Context(), w.bus, id)
		if a := w.send(t, http.MethodPost, path, `{}`, "Idempotency-Key: "+path, async+", wait=1"); a.status != http.StatusOK || strings.TrimSpace(a.text) != want {
			t.Errorf("%s: %d %s", path, a.status, a.text)
		}
		if at := w.send(t, http.MethodGet, "/operations/"+id.String(), ""); !strings.Contains(at.text, `"result":{"Number":7}`) {
			t.Errorf("%s: %s", path, at.text)
		}
		if path == "/raw" && first.body["deadline"] == nil || path == "/typed" && first.body["deadline"] != nil {
			t.Errorf("%s: %s", path, first.text)
		}
	}
	q.err = errors.New("secret")
	w.send(t, http.MethodPost, "/raw", `{}`, "Idempotency-Key: x", async).says(t, http.StatusInternalServerError, nil)
}

// A precondition travels; a list of them is decided at once, by the one that is true.
func TestAsyncPreconditions(t *testing.T) {
	t.Parallel()
	w, q := newAsync(t, nil)
	id := idOf(t, w.send(t, http.MethodPost, withdrawals, `{"cents":1}`, "Idempotency-Key: 1", async, `If-Match: "v2"`))
	if want := q.all[id].command.Expected; want == nil || *want != eventstore.Exactly(2) {
		t.Errorf("expected is %v", want)
	}
	list := w.send(t, http.MethodPost, withdrawals, `{"cents":1}`, "Idempotency-Key: 2", async, `If-Match: "v1", "v2"`)
	if list.says(t, http.StatusCreated, nil); list.header.Get("Preference-Applied") != "" {
		t.Errorf("%v", list.header)
	}
	q.run(t.Context(), w.bus, id) // which comes too late by now
	w.send(t, http.MethodGet, "/operations/"+id.String(), "").says(t, http.StatusOK, map[string]any{"state": "refused"})
	if a := w.load(t, "a"); a.State.Balance != 99 {
		t.Errorf("%+v", a)
	}
}
