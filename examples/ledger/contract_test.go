package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/daybook-go/daybook/examples/ledger/api"
)

func init() {
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.FileBodyDecoder)
	checks = append(checks, asDescribed)
}

// description is what clients are told of the API.
var description = sync.OnceValues(func() (routers.Router, error) {
	d, err := openapi3.NewLoader().LoadFromData(api.Description)
	if err != nil {
		return nil, err
	}
	if err := d.Validate(context.Background()); err != nil {
		return nil, err
	}
	return legacy.NewRouter(d)
})

func TestDescriptionIsValid(t *testing.T) {
	t.Parallel()
	if _, err := description(); err != nil {
		t.Fatal(err)
	}
}

// Whatever asks for a place may be badly asked for, be sent away, and meet a fault: that is described for all of them.
func TestDescriptionHasWhatAllMayMeet(t *testing.T) {
	t.Parallel()
	d, err := openapi3.NewLoader().LoadFromData(api.Description)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{"/healthz": true, "/readyz": true, "/openapi.yaml": true, "/problems": true}
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			if open[path] {
				continue
			}
			for _, status := range []int{400, 429, 500, 503} {
				if operation.Responses.Status(status) == nil {
					t.Errorf("%s %s: %d is not described", method, path, status)
				}
			}
			names := map[string]bool{}
			for _, p := range operation.Parameters {
				names[p.Value.Name] = true
			}
			if !names[api.CallerHeader] || !names[api.PriorityHeader] || names[api.TokenHeader] && operation.Responses.Status(410) == nil {
				t.Errorf("%s %s: %v, and a token of another history is answered with 410", method, path, names)
			}
		}
	}
}

// asDescribed holds a request and its answer against the description.
func asDescribed(t *testing.T, r *http.Request, asked []byte, response *http.Response, body []byte) {
	router, err := description()
	if err != nil {
		t.Errorf("the description is not valid: %v", err)
		return
	}
	sent := r.Clone(context.WithoutCancel(r.Context()))
	sent.Body = io.NopCloser(bytes.NewReader(asked))
	route, params, err := router.FindRoute(sent)
	if err != nil {
		t.Errorf("%s %s is not described: %v", r.Method, r.URL.Path, err)
		return
	}
	in := &openapi3filter.RequestValidationInput{Request: sent, PathParams: params, Route: route}
	if r.Context().Value(wrongly{}) == nil {
		if err := openapi3filter.ValidateRequest(sent.Context(), in); err != nil {
			t.Errorf("%s %s: the request is not as described: %v", r.Method, r.URL.Path, err)
		}
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		body = []byte("events")
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: response.StatusCode, Header: response.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	out.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(sent.Context(), out); err != nil {
		t.Errorf("%s %s: the answer %d is not as described: %v\n%v\n%s", r.Method, r.URL.Path, response.StatusCode, err, response.Header, body)
	}
}
