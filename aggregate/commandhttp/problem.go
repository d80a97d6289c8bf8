package commandhttp

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Problem is an answer of 400 and above, as RFC 9457 has it. It is an error, so that every function of an endpoint may
// return one. What is left empty is filled from its Kind, one of the registry's types; see [Problems].
//
// A Problem is shown to the caller as it is, but for RetryAfter, Header and Err. It must not be changed once returned.
type Problem struct {
	// Kind is the name of its type in the registry. Default: "rule".
	Kind string
	// Type is the URI of the type, Title its short text, Status the status of the answer. Default: those of the Kind.
	Type, Title string
	Status      int
	// Detail says what is wrong this time; Instance is a URI for this occurrence.
	Detail, Instance string
	// Field and Value say what was wrong, Rule which rule it broke, Remedy what to do.
	Field, Value, Rule, Remedy string
	// Extensions are further members of the JSON object. Names that this type has itself are left out.
	Extensions map[string]any
	// RetryAfter becomes the header Retry-After, in whole seconds, rounded up, at least 1. Zero: no header.
	RetryAfter time.Duration
	// Header holds further headers of the answer.
	Header http.Header
	// Err is what caused it. It is logged, and never shown.
	Err error
}

// Error is the title and the detail.
func (p *Problem) Error() string {
	text := p.Title
	if text == "" {
		text = p.Kind
	}
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return "commandhttp: " + text
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// MarshalJSON writes the members in the order of RFC 9457, then the extensions by name.
func (p *Problem) MarshalJSON() ([]byte, error) {
	out, err := json.Marshal(struct {
		Type     string `json:"type"`
		Title    string `json:"title"`
		Status   int    `json:"status"`
		Detail   string `json:"detail,omitempty"`
		Instance string `json:"instance,omitempty"`
		Field    string `json:"field,omitempty"`
		Value    string `json:"value,omitempty"`
		Rule     string `json:"rule,omitempty"`
		Remedy   string `json:"remedy,omitempty"`
	}{p.Type, p.Title, p.Status, p.Detail, p.Instance, p.Field, p.Value, p.Rule, p.Remedy})
	if err != nil || len(p.Extensions) == 0 {
		return out, err
	}
	own := []string{"type", "title", "status", "detail", "instance", "field", "value", "rule", "remedy"}
	out = out[:len(out)-1]
	for _, name := range slices.Sorted(maps.Keys(p.Extensions)) {
		if slices.Contains(own, name) {
			continue
		}
		value, err := json.Marshal(map[string]any{name: p.Extensions[name]})
		if err != nil {
			return nil, fmt.Errorf("commandhttp: extension %q of a problem: %w", name, err)
		}
		out = append(append(out, ','), value[1:len(value)-1]...)
	}
	return append(out, '}'), nil
}

// ProblemType is one kind of problem. Programs tell problems apart by the URI of their type, so that names are for ever.
type ProblemType struct {
	// Name ends the URI of the type: lower case letters, digits and dashes.
	Name string
	// Status is the status of the answers, 400 to 599. Default: 422.
	Status int
	// Title says in a few words what the type is about, Remedy what to do.
	Title, Remedy string
	// For is the error of the domain that is answered with the type, asked with [errors.Is]. Nil: the type is for
	// problems that name it as their Kind.
	For error
	// Code is the one under which [aggregate.Refuses] declares the error. It is shown as the problem's rule, and it is
	// how the refusal of an operation finds its type. May be empty.
	Code string
}

// Problems is the one list of the types of problems that an API answers with: those of this package, which are always
// there, and those of the program. It is immutable and safe for concurrent use. The API shows it at GET /problems.
type Problems struct {
	base  string
	types []ProblemType
	index map[string]int
}

// NewProblems returns the registry. The URI of a type is base followed by its name: a URN such as "urn:bank:problem:", or
// an address at which the list can be read, such as "https://api.example.com/problems/"; empty is "urn:daybook:problem:".
// Types are asked in the order given, so that of two sentinels that both match the first counts. A type with the name of
// one of this package's replaces its texts; its status stays.
//
// It panics on a name that is bad or there twice, a status that is none, and a missing title: it runs while package
// variables are set up.
func NewProblems(base string, types ...ProblemType) *Problems {
	if base == "" {
		base = "urn:daybook:problem:"
	}
	p := &Problems{base: base, index: make(map[string]int)}
	given := make(map[string]bool)
	ours := builtin()
	for _, t := range types {
		if !isName(t.Name) {
			panic(fmt.Sprintf("commandhttp: problem type %q: the name must be lower case letters, digits and dashes", t.Name))
		}
		if given[t.Name] {
			panic(fmt.Sprintf("commandhttp: problem type %q is there twice", t.Name))
		}
		given[t.Name] = true
		at := slices.IndexFunc(ours, func(o ProblemType) bool { return o.Name == t.Name })
		switch {
		case at >= 0 && t.Status != 0 && t.Status != ours[at].Status:
			panic(fmt.Sprintf("commandhttp: problem type %q has status %d, and cannot have %d: use another name", t.Name, ours[at].Status, t.Status))
		case at >= 0:
			t.Status = ours[at].Status
			t.Title, t.Remedy = or(t.Title, ours[at].Title), or(t.Remedy, ours[at].Remedy)
			ours = slices.Delete(ours, at, at+1)
		case t.Status == 0:
			t.Status = http.StatusUnprocessableEntity
		}
		if t.Status < 400 || t.Status > 599 {
			panic(fmt.Sprintf("commandhttp: problem type %q: status %d is none of a problem: use 400 to 599", t.Name, t.Status))
		}
		if t.Title == "" {
			panic(fmt.Sprintf("commandhttp: problem type %q has no title", t.Name))
		}
		p.types = append(p.types, t)
	}
	p.types = append(p.types, ours...)
	for i, t := range p.types {
		p.index[t.Name] = i
	}
	return p
}

// Types returns the list, the program's own first.
func (p *Problems) Types() []ProblemType { return slices.Clone(p.types) }

// URI returns the URI of a type.
func (p *Problems) URI(name string) string { return p.base + name }

// complete returns the problem with what its kind says where it says nothing itself.
func (p *Problems) complete(in *Problem) *Problem {
	out := *in
	kind := or(out.Kind, kindRule)
	i, known := p.index[kind]
	if !known {
		out = Problem{Err: fmt.Errorf("commandhttp: a problem of kind %q is not in the registry: add it to NewProblems (%w)", kind, in)}
		kind, i = kindFault, p.index[kindFault]
	}
	t := p.types[i]
	out.Kind, out.Type, out.Title = kind, or(out.Type, p.URI(t.Name)), or(out.Title, t.Title)
	out.Remedy = or(out.Remedy, t.Remedy)
	if out.Status == 0 {
		out.Status = t.Status
	}
	return &out
}

// typeView is a type as GET /problems shows it.
type typeView struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Remedy string `json:"remedy,omitempty"`
}

func (p *Problems) view(i int) typeView {
	t := p.types[i]
	return typeView{Type: p.URI(t.Name), Title: t.Title, Status: t.Status, Remedy: t.Remedy}
}

// list answers GET /problems.
func (p *Problems) list(w http.ResponseWriter, _ *http.Request) error {
	out := struct {
		Problems []typeView `json:"problems"`
	}{make([]typeView, len(p.types))}
	for i := range p.types {
		out.Problems[i] = p.view(i)
	}
	return writeJSON(w, http.StatusOK, out)
}

// one answers GET /problems/{name}.
func (p *Problems) one(w http.ResponseWriter, r *http.Request) error {
	i, known := p.index[r.PathValue("name")]
	if !known {
		return &Problem{Kind: kindNotFound, Field: "name", Value: Shorten(r.PathValue("name")), Remedy: "use a name of the list"}
	}
	return writeJSON(w, http.StatusOK, p.view(i))
}

// Shorten makes a text from outside safe to show: at most 60 bytes of it, with what cannot be printed escaped as in Go.
// Quotes stay as they are, since the JSON of a problem escapes them itself.
func Shorten(text string) string {
	const limit = 60
	more := ""
	if len(text) > limit {
		text, more = strings.ToValidUTF8(text[:limit], ""), "…"
	}
	var out strings.Builder
	for i, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case strconv.IsPrint(r):
			out.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return out.String() + more
}

func isName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
