package api

import (
	"net/http"
	"strings"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
)

const (
	// CallerHeader names who asks. The proxy in front sets it, and takes away what a stranger put there.
	CallerHeader = "X-Caller"
	// PriorityHeader is that of RFC 9218.
	PriorityHeader = "Priority"

	anonymous = "anonymous"
	maxCaller = 100
)

// callerOf says who asks. Each caller has keys, operations and a share of the queue of its own.
func callerOf(r *http.Request) (commandhttp.Caller, error) {
	name := strings.TrimSpace(r.Header.Get(CallerHeader))
	if len(name) > maxCaller || strings.ContainsFunc(name, func(c rune) bool { return c < '!' || c > '~' }) {
		return commandhttp.Caller{}, &commandhttp.Problem{
			Kind: "syntax", Field: CallerHeader, Value: commandhttp.Shorten(name), Detail: "it is no name",
			Remedy: "send 1 to 100 visible characters of ASCII without blanks, or leave it out",
		}
	}
	class := classOf(r.Header.Values(PriorityHeader))
	if name == "" {
		name = anonymous
		if class == admission.Critical {
			class = admission.Normal // whoever nobody vouches for
		}
	}
	return commandhttp.Caller{Tenant: name, Actor: name, Scope: name, Class: class}, nil
}

// classOf maps the urgency of RFC 9218, from 0 to 7 and 3 by default: 0 and 1 are critical, 5 to 7 are bulk. What cannot be
// read is ignored, as the RFC wants it.
func classOf(values []string) admission.Class {
	urgency := byte('3')
	for _, part := range strings.Split(strings.Join(values, ","), ",") {
		part, _, _ = strings.Cut(part, ";")
		if value, ok := strings.CutPrefix(strings.TrimSpace(part), "u="); ok && len(value) == 1 && value[0] >= '0' && value[0] <= '7' {
			urgency = value[0] // the last counts, as in every dictionary of RFC 9651
		}
	}
	switch {
	case urgency <= '1':
		return admission.Critical
	case urgency >= '5':
		return admission.Bulk
	}
	return admission.Normal
}
