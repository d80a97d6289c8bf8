package commandhttp

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// lateBody is how long a body may take before the time of its request says nothing about the server.
const lateBody = 100 * time.Millisecond

// readBody reads the body of a request, which must be JSON.
func (v *visit) readBody(w http.ResponseWriter) ([]byte, error) {
	r, cfg := v.r, v.api.cfg
	// A header that is there twice says two things, of which a proxy may have heeded the other.
	sent := strings.Join(r.Header.Values("Content-Type"), ", ")
	kind, params, err := mime.ParseMediaType(sent)
	charset := params["charset"]
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, &Problem{Kind: kindMediaType, Field: "Content-Type", Value: Shorten(sent)}
	}
	if coding := strings.Join(r.Header.Values("Content-Encoding"), ", "); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &Problem{Kind: kindMediaType, Field: "Content-Encoding", Value: Shorten(coding)}
	}
	tooLarge := &Problem{Kind: kindTooLarge, Detail: fmt.Sprintf("it has more than %d bytes", cfg.MaxBody)}
	if r.ContentLength > cfg.MaxBody {
		return nil, tooLarge
	}
	began := time.Now()
	// A sender that trickles must not keep its place. Not every ResponseWriter knows deadlines.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(began.Add(cfg.BodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, cfg.MaxBody))
	v.odd = v.odd || time.Since(began) > lateBody
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case err != nil:
		return nil, &Problem{Kind: kindSyntax, Detail: "the body ended early, or took too long", Remedy: "send all of it"}
	case !utf8.Valid(body):
		return nil, &Problem{Kind: kindSyntax, Detail: "the body is not UTF-8", Remedy: "encode it in UTF-8"}
	}
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}

// noBody refuses a body where none is expected: whoever sends one means something by it.
func (v *visit) noBody(w http.ResponseWriter) error {
	var one [1]byte
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(v.api.cfg.BodyTime))
	n, err := io.ReadFull(v.r.Body, one[:])
	if n > 0 || err != nil && !errors.Is(err, io.EOF) {
		return &Problem{Kind: kindSyntax, Detail: "the request has a body, and needs none", Remedy: "send it without a body"}
	}
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// DecodeJSON reads one JSON value and nothing behind it; members that C does not have are refused. The error is a
// [*Problem] of 400 that names what is wrong. A Problem that an UnmarshalJSON returns comes back as it is.
func DecodeJSON[C any](body []byte) (C, error) {
	var out C
	if string(bytes.TrimSpace(body)) == "null" { // which would be a command of empty members
		return out, &Problem{Kind: kindSyntax, Detail: "the body is null", Remedy: "send the members of the command"}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return out, unreadable(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return out, &Problem{Kind: kindSyntax, Detail: "something follows behind the JSON value", Remedy: "send one value"}
	}
	return out, nil
}

// withArticle names what encoding/json calls a value.
func withArticle(what string) string {
	switch what {
	case "bool":
		return "a boolean"
	case "array", "object":
		return "an " + what
	}
	return "a " + what
}

// wanted says in the words of JSON what a Go type is read from.
func wanted(t reflect.Type) string {
	if t == nil {
		return "another type"
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer of at most %d bits", t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return fmt.Sprintf("an integer of at most %d bits, 0 or more", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.String:
		return "a string"
	}
	return "another type"
}

func unreadable(err error) error {
	var own *Problem
	var kind *json.UnmarshalTypeError
	var text *json.SyntaxError
	switch {
	case errors.As(err, &own): // of an UnmarshalJSON
		return own
	case errors.As(err, &kind):
		what, literal, _ := strings.Cut(kind.Value, " ")
		p := &Problem{
			Kind: kindSyntax, Field: Shorten(kind.Field), Detail: withArticle(what) + " stands where none can", Remedy: "write " + wanted(kind.Type),
		}
		if literal != "" {
			p.Detail = "the number " + Shorten(literal) + " does not fit"
		}
		return p
	case errors.Is(err, io.EOF):
		return &Problem{Kind: kindSyntax, Detail: "the body is empty", Remedy: "send JSON"}
	case errors.As(err, &text), errors.Is(err, io.ErrUnexpectedEOF):
		return &Problem{Kind: kindSyntax, Detail: "it is not JSON: " + err.Error(), Remedy: "send JSON"}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &Problem{Kind: kindSyntax, Field: Shorten(strings.Trim(name, `"`)), Detail: "there is no such member", Remedy: "leave it out"}
	}
	return &Problem{Kind: kindSyntax, Detail: Shorten(strings.TrimPrefix(err.Error(), "json: ")), Remedy: "write it in the form of the API"}
}
