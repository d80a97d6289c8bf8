package commandhttp_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
)

// A refusal says the same when it is new, when it is repeated, and when it is that of an operation.
func TestExplainRefusal(t *testing.T) {
	t.Parallel()
	var unknown []string
	w, q := newAsync(t, func(c *commandhttp.Config) {
		c.ExplainRefusal = func(code, text string) *commandhttp.Problem {
			what, found := strings.CutPrefix(text, "account: ")
			if !found {
				unknown = append(unknown, code+": "+text)
				return nil
			}
			return &commandhttp.Problem{
				Kind: "funds", Field: "cents", Value: fmt.Sprint(len(text)), Detail: what, Rule: code,
				Extensions: map[string]any{"seen": code},
			}
		}
	})
	for name, c := range map[string]struct {
		body string
		want map[string]any
	}{
		"declared": {`{"cents":3000}`, map[string]any{
			"type": "urn:bank:funds", "field": "cents", "value": "25", "detail": "not enough money", "rule": "funds", "seen": "funds", "remedy": "take less",
		}},
		"undeclared": {`{"cents":3000000}`, map[string]any{
			"type": "urn:bank:funds", "field": "cents", "value": "43", "detail": "more than anybody may take at once", "seen": "",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			key := "Idempotency-Key: " + name
			first := w.send(t, http.MethodPost, withdrawals, c.body, key)
			first.says(t, http.StatusUnprocessableEntity, c.want)
			again := w.send(t, http.MethodPost, withdrawals, c.body, key)
			if again.text != first.text || again.header.Get(commandhttp.ReplayedHeader) != "true" {
				t.Errorf("the repeat is %v %s, the first was %s", again.header, again.text, first.text)
			}
			id := idOf(t, w.send(t, http.MethodPost, withdrawals, c.body, key, async))
			q.run(t.Context(), w.bus, id)
			op := w.send(t, http.MethodGet, "/operations/"+id.String(), "")
			op.says(t, http.StatusOK, map[string]any{"state": "refused"})
			if p, _ := op.body["problem"].(map[string]any); !maps.Equal(p, first.body) {
				t.Errorf("the operation has %v, the answer was %v", p, first.body)
			}
			pushed, _ := w.listen(t, id).next(t)
			if p, _ := pushed.data["problem"].(map[string]any); !maps.Equal(p, first.body) {
				t.Errorf("the event has %v, the answer was %v", p, first.body)
			}
			if waited := w.send(t, http.MethodPost, withdrawals, c.body, key, async+", wait=1"); waited.status != first.status || waited.text != first.text {
				t.Errorf("who waits is answered with %d %s, who does not with %s", waited.status, waited.text, first.text)
			}
		})
	}
	if len(unknown) > 0 {
		t.Errorf("it was asked about %q", unknown)
	}
}

// What the program does not explain is left to the registry, and what is no refusal is not asked about.
func TestExplainRefusalKnowsNothing(t *testing.T) {
	t.Parallel()
	var asked []string
	w, q := newAsync(t, func(c *commandhttp.Config) {
		c.ExplainRefusal = func(code, text string) *commandhttp.Problem {
			asked = append(asked, code+"|"+text)
			return nil
		}
	})
	for _, c := range []struct {
		code   string
		status float64
		kind   string
		asked  string
	}{
		{"funds", 422, "funds", "funds|why"}, {"other", 422, "rule", "other|why"},
		{"version", 412, "precondition", ""}, {"forbidden", 403, "forbidden", ""}, {"stream_closed", 409, "closed", ""},
	} {
		asked = nil
		id := idOf(t, w.send(t, http.MethodPost, withdrawals, `{"cents":30}`, "Idempotency-Key: "+c.code, async))
		q.edit(id, func(op *bus.Operation) { op.State, op.Code, op.Reason = bus.OperationRefused, c.code, "why" })
		p, _ := w.send(t, http.MethodGet, "/operations/"+id.String(), "").body["problem"].(map[string]any)
		if p["type"] != "urn:bank:"+c.kind || p["status"] != c.status || strings.Join(asked, " ") != c.asked {
			t.Errorf("%s: %v, asked about %q", c.code, p, asked)
		}
	}
	for i, c := range []struct {
		reply  bus.Reply
		err    error
		status int
		kind   string
		asked  string
	}{
		{bus.Reply{}, errFunds, 422, "funds", "funds|" + errFunds.Error()},
		{bus.Reply{Refused: true}, errTooBig, 422, "rule", "|" + errTooBig.Error()},
		{bus.Reply{}, &aggregate.RefusedError{Code: "funds", Text: "why"}, 422, "funds", "funds|why"},
		{bus.Reply{}, errTooBig, 500, "fault", ""},
		{bus.Reply{}, eventstore.ErrBusy, 503, "busy", ""},
		{bus.Reply{}, &aggregate.VersionError{Want: eventstore.Exactly(1), Have: 2}, 412, "precondition", ""},
		{bus.Reply{}, &eventstore.ClosedError{}, 409, "closed", ""},
	} {
		asked = nil
		w.handle = func(context.Context, anything) (bus.Reply, error) { return c.reply, c.err }
		a := w.send(t, http.MethodPost, "/anything", `{}`, fmt.Sprint("Idempotency-Key: a", i))
		a.says(t, c.status, map[string]any{"type": "urn:bank:" + c.kind})
		if strings.Join(asked, " ") != c.asked {
			t.Errorf("%v: asked about %q", c.err, asked)
		}
	}
}

// A first refusal has the code under which it is stored, also where the registry does not know the error itself.
func TestACodeIsEnough(t *testing.T) {
	t.Parallel()
	var asked []string
	w := newWorld(t, func(_ *world, c *commandhttp.Config) {
		c.Problems = commandhttp.NewProblems("urn:bank:", commandhttp.ProblemType{Name: "no-funds", Title: "Not enough money", Code: "funds"})
		c.ExplainRefusal = func(code, _ string) *commandhttp.Problem {
			asked = append(asked, code)
			return nil
		}
	})
	first := w.send(t, http.MethodPost, withdrawals, `{"cents":3000}`, "Idempotency-Key: a")
	first.says(t, http.StatusUnprocessableEntity, map[string]any{"type": "urn:bank:no-funds", "rule": "funds"})
	if again := w.send(t, http.MethodPost, withdrawals, `{"cents":3000}`, "Idempotency-Key: a"); again.text != first.text {
		t.Errorf("the repeat is %s, the first was %s", again.text, first.text)
	}
	if fmt.Sprint(asked) != "[funds funds]" {
		t.Errorf("it was asked about %q", asked)
	}
}
