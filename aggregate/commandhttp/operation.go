package commandhttp

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
)

const (
	streamType      = "text/event-stream"
	operationRemedy = "use the Location of the answer that accepted it; what ended long ago is removed"
)

func revisionETag(op bus.Operation) string { return `"r` + strconv.FormatInt(op.Revision, 10) + `"` }

// operation answers GET /operations/{id}: with the operation as it is, after it has ended if the caller waits for that, or
// with each change as it comes.
func (a *API) operation(w http.ResponseWriter, r *http.Request) (err error) {
	v, err := a.enter(r, admission.Normal, false)
	if err != nil {
		return err
	}
	defer func() { v.leave(err) }()
	match, err := tagsOf(r.Header, "If-Match")
	if err != nil {
		return err
	}
	none, err := tagsOf(r.Header, "If-None-Match")
	if err != nil {
		return err
	}
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil || id.String() != r.PathValue("id") {
		return &bus.NoOperationError{Scope: v.caller.scope()}
	}
	op, err := a.cfg.Operations.Operation(v.r.Context(), v.caller.scope(), id)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept, Prefer")
	form, ok := accepts(r.Header)
	switch {
	case !ok:
		return &Problem{Kind: kindAcceptable, Field: "Accept", Value: Shorten(r.Header.Get("Accept")), Remedy: "accept application/json or " + streamType}
	case form == streamType:
		v.leave(nil)
		return a.stream(w, v, op)
	}
	var done applied
	if prefer := preferencesOf(r.Header); prefer.waits && !op.Finished() {
		wait := min(prefer.wait, a.cfg.MaxPatience)
		v.odd = true
		v.leave(nil)
		done.wait(wait)
		op = a.watchFor(v.r.Context(), op, wait)
	}
	done.write(w.Header())
	if !op.Token.IsZero() {
		w.Header().Set(TokenHeader, op.Token.String())
	}
	return conditional(w, match, none, revisionETag(op), func() error { return writeJSON(w, http.StatusOK, a.view(op)) })
}

// conditional answers a read as its preconditions say (RFC 9110, section 13.2.2).
func conditional(w http.ResponseWriter, match, none tagList, tag string, show func() error) error {
	if tag != "" {
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", "private, no-cache")
	}
	switch {
	case match.present && !match.matches(tag, false):
		return &Problem{Kind: kindPrecondition, Field: "If-Match", Remedy: "read it without If-Match"}
	case none.present && none.matches(tag, true):
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return show()
}

// accepts returns the form that the caller likes best, and false when it likes none.
func accepts(h http.Header) (form string, ok bool) {
	values := h.Values("Accept")
	if len(values) == 0 {
		return "", true
	}
	asJSON, asStream := quality(values, "application", "json"), quality(values, "text", "event-stream")
	switch {
	case asStream > asJSON, asStream > 0 && asStream == asJSON && names(values, streamType):
		return streamType, true
	}
	return "", asJSON > 0
}

// names reports whether a header mentions a type in full.
func names(values []string, kind string) bool {
	return strings.Contains(strings.ToLower(strings.Join(values, ",")), kind)
}

// quality is how much a type is liked, from 0 to 1000; the closest range counts.
func quality(values []string, kind, sub string) int {
	best, closest := 0, 0
	for part := range strings.SplitSeq(strings.ToLower(strings.Join(values, ",")), ",") {
		media, params, _ := strings.Cut(part, ";")
		how := 0
		switch strings.TrimSpace(media) {
		case kind + "/" + sub:
			how = 3
		case kind + "/*":
			how = 2
		case "*/*":
			how = 1
		}
		if how <= closest {
			continue
		}
		closest, best = how, 1000
		for p := range strings.SplitSeq(params, ";") {
			name, text, _ := strings.Cut(p, "=")
			if q, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil && strings.TrimSpace(name) == "q" && q >= 0 && q <= 1 {
				best = int(q * 1000)
			}
		}
	}
	return best
}
