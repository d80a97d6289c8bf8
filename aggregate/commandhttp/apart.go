package commandhttp

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/bus"
)

// operationPath is where an operation is shown.
func (a *API) operationPath(id string) string { return a.cfg.Prefix + "/operations/" + id }

// apart has the command carried out apart from the request, and answers with where to ask for it: or with what became of
// it, if the caller waits and that comes in time.
func (e Endpoint[C]) apart(v *visit, w http.ResponseWriter, q asked, c C, opts []bus.SendOption) error {
	// What cannot be right is told at once, as it would be without the preference.
	if err := validate(&c); err != nil {
		return &bus.InvalidCommandError{Err: err}
	}
	if len(q.claims) == 1 {
		opts = append(opts, bus.IfVersion(q.claims[0]))
	}
	if e.Within > 0 {
		opts = append(opts, bus.WithDeadline(time.Now().Add(e.Within)))
	}
	// The deadline of the request is none of the command's, which may wait.
	prepared, err := v.api.cfg.Bus.Prepare(context.WithoutCancel(v.r.Context()), c, opts...)
	if err != nil {
		return err
	}
	ctx, cancel := v.api.working(v.r.Context())
	defer cancel()
	id, err := v.api.cfg.Operations.Enqueue(ctx, prepared)
	if err != nil {
		return err
	}
	op, err := v.api.cfg.Operations.Operation(ctx, v.caller.scope(), id)
	if err != nil {
		return err
	}
	v.leave(nil) // what follows is waiting
	q.done.note("respond-async")
	if q.prefer.waits {
		q.done.wait(q.fresh.wait)
		if q.fresh.wait > 0 && !op.Finished() {
			op = v.api.watchFor(v.r.Context(), op, q.fresh.wait)
		}
	}
	h := w.Header()
	q.done.write(h)
	if q.prefer.waits && op.Finished() {
		return e.ended(v, w, c, op)
	}
	h.Set("Location", v.api.operationPath(id.String()))
	h.Set("ETag", revisionETag(op))
	return writeJSON(w, http.StatusAccepted, v.api.view(op))
}

// validate asks a command that has a method Validate, on the value or on its pointer, as [bus.Validate] does.
func validate[C any](c *C) error {
	if v, ok := any(c).(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// ended answers as if the request had been carried out itself.
func (e Endpoint[C]) ended(v *visit, w http.ResponseWriter, c C, op bus.Operation) error {
	if op.State != bus.OperationDone {
		return v.api.problemOfOperation(op)
	}
	reply := bus.Reply{Stream: op.Stream, Version: op.Version, Token: op.Token}
	switch {
	case len(op.Result) == 0:
	case e.Result != nil:
		result, err := e.Result(op.ContentType, op.Result)
		if err != nil {
			return err
		}
		reply.Result = result
	case isJSON(op):
		reply.Result = json.RawMessage(op.Result)
	}
	return e.show(v, w, c, reply)
}

// watchFor waits for the end of an operation for so long, and returns what was seen last. That the wait ends otherwise
// than well is no matter: the caller can ask again.
func (a *API) watchFor(ctx context.Context, op bus.Operation, wait time.Duration) bus.Operation {
	_ = a.apart(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		for seen, err := range a.cfg.Operations.Watch(ctx, op.Scope, op.ID) {
			if err != nil {
				return err
			}
			op = seen
			if op.Finished() {
				return nil
			}
		}
		return nil
	})
	return op
}

// problemOfOperation is the problem of an operation that was not carried out. It is the one that the request would have
// been answered with.
func (a *API) problemOfOperation(op bus.Operation) *Problem {
	switch op.State {
	case bus.OperationExpired:
		return &Problem{Kind: kindExpired}
	case bus.OperationRefused:
		switch {
		case op.Code == "version":
			return &Problem{Kind: kindPrecondition, Field: "If-Match"}
		case op.Code == "forbidden":
			return &Problem{Kind: kindForbidden}
		case op.Code == "stream_closed":
			return &Problem{Kind: kindClosed}
		}
		if a.cfg.ExplainRefusal != nil {
			if p := a.cfg.ExplainRefusal(op.Code, op.Reason); p != nil {
				return p
			}
		}
		if t, ok := a.cfg.Problems.byCode(op.Code); ok {
			return t.refuse(op.Reason)
		}
		return &Problem{Kind: kindRule, Detail: op.Reason}
	}
	switch op.Code {
	case "reused_key":
		return &Problem{Kind: kindKeyUsed, Field: KeyHeader}
	case "invalid":
		return notValid(op.Reason)
	}
	// The reason is a fault's own text, which the dispatcher has logged.
	return &Problem{Kind: kindFault, Err: errors.New("commandhttp: operation " + op.ID.String() + " failed: " + op.Code)}
}

// notValid is the problem of a command that says of itself that it is not valid, which is for whoever gave it.
func notValid(reason string) *Problem {
	p := &Problem{Kind: kindRule, Title: "The request is not valid", Detail: reason, Remedy: "see detail"}
	if reason == "" {
		p.Remedy = "check its members"
	}
	return p
}

// byCode finds the type for the code of a refusal.
func (p *Problems) byCode(code string) (ProblemType, bool) {
	for _, t := range p.types {
		if code != "" && t.Code == code {
			return t, true
		}
	}
	return ProblemType{}, false
}

func isJSON(op bus.Operation) bool {
	kind, _, err := mime.ParseMediaType(op.ContentType)
	return err == nil && kind == "application/json" && json.Valid(op.Result)
}

// operationView is an operation as JSON.
type operationView struct {
	ID       uuid.UUID          `json:"id"`
	State    bus.OperationState `json:"state"`
	Progress float64            `json:"progress"`
	Note     string             `json:"note,omitempty"`
	Result   json.RawMessage    `json:"result,omitempty"`
	Problem  *Problem           `json:"problem,omitempty"`
	Token    string             `json:"token,omitempty"`
	ETag     string             `json:"etag,omitempty"`
	Accepted time.Time          `json:"accepted"`
	Started  *time.Time         `json:"started,omitempty"`
	Changed  *time.Time         `json:"changed,omitempty"`
	Finished *time.Time         `json:"finished,omitempty"`
	Deadline *time.Time         `json:"deadline,omitempty"`
	Links    operationLinks     `json:"links"`
}

type operationLinks struct {
	Self string `json:"self"`
}

func (a *API) view(op bus.Operation) operationView {
	out := operationView{
		ID: op.ID, State: op.State, Progress: min(max(op.Progress, 0), 1), Note: op.Note, Token: op.Token.String(), ETag: ETag(op.Version),
		Accepted: op.AcceptedAt.UTC(), Started: instant(op.StartedAt), Changed: instant(op.ChangedAt), Finished: instant(op.FinishedAt),
		Deadline: instant(op.Deadline), Links: operationLinks{Self: a.operationPath(op.ID.String())},
	}
	switch {
	case !op.Finished():
	case op.State != bus.OperationDone:
		out.Problem = a.cfg.Problems.complete(a.problemOfOperation(op))
	case isJSON(op):
		out.Result = op.Result
	}
	return out
}

// instant is a time as JSON, or nil of none.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
