package api

import (
	"net/http"
	"testing"

	"github.com/daybook-go/daybook/aggregate/admission"
)

func TestClassOfARequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		caller, priority string
		want             admission.Class
	}{
		{"ann", "", admission.Normal}, {"ann", "u=3", admission.Normal}, {"ann", "i", admission.Normal},
		{"ann", "u=0", admission.Critical}, {"ann", "i, u=1", admission.Critical}, {"ann", "u=2", admission.Normal},
		{"ann", "u=4;x=1", admission.Normal}, {"ann", "u=5", admission.Bulk}, {"ann", "u=7, i", admission.Bulk},
		{"ann", "u=8", admission.Normal}, {"ann", "u=-1", admission.Normal}, {"ann", "u=07", admission.Normal}, {"ann", "u=1, u=6", admission.Bulk},
		{"", "u=0", admission.Normal}, {"", "u=7", admission.Bulk}, {"", "", admission.Normal},
	} {
		r := &http.Request{Header: http.Header{}}
		if c.caller != "" {
			r.Header.Set(CallerHeader, c.caller)
		}
		if c.priority != "" {
			r.Header.Set(PriorityHeader, c.priority)
		}
		caller, err := callerOf(r)
		if err != nil || caller.Class != c.want || caller.Scope == "" {
			t.Errorf("%q, %q: %+v, %v; want class %v", c.caller, c.priority, caller, err, c.want)
		}
	}
}
