package eventstore

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Codec turns Go values into payload bytes and back. [Msgpack] and [JSON] come with the package; another one is given
// to a type with [EncodedAs].
//
// The bytes are stored for ever, so a codec must read whatever it has ever written under its content type, write equal
// values as equal bytes (a repeated append is recognised by its content), and be safe for concurrent use.
type Codec interface {
	// ContentType is stored with every event and chooses the codec that reads it back.
	ContentType() string
	// Marshal returns the bytes of v, which the caller owns. v is a value or a pointer to one, and is not changed.
	Marshal(v any) ([]byte, error)
	// Unmarshal replaces what v points to by the value in data. It keeps neither data nor v.
	Unmarshal(data []byte, v any) error
}

// The codecs that every catalog can read. Both keep the same rules, and refuse a type when it is registered rather
// than lose a part of its values later:
//
//	what                          rule
//	field names                   the Go field's name, or the name in the codec's own tag (`msgpack:"x"`, `json:"x"`)
//	unknown / missing fields      ignored / zero, so fields can be added and removed
//	integers                      every value of the Go type; a stored one that does not fit is an error, never wrapped
//	floats                        every value; stored integers are accepted if they are exact. JSON refuses NaN and infinities
//	text                          any bytes; JSON refuses invalid UTF-8 when writing, and lone surrogates when reading
//	time.Time                     the instant, to the nanosecond; always UTC afterwards, the zone is not kept
//	nil and empty                 kept apart for slices, maps, []byte; nil pointers stay nil; a stored nil is a zero scalar
//	omitempty                     the user's own choice: empty comes back as nil
//	maps                          keys: text, integers, or types that marshal themselves; written in order of their keys
//	embedded structs              their fields are stored as if they were the outer struct's; pointers need a name (below)
//	types with own marshalling    both directions are required; in msgpack EncodeMsgpack, MarshalMsgpack, MarshalBinary or
//	                              MarshalText (in this order), in JSON MarshalJSON or MarshalText
//	trailing or truncated bytes   an error, like values nested deeper than 1000
//	refused                       interfaces (the concrete type is not on the wire), channels, functions, complex numbers,
//	                              pointers to pointers, slices or maps (nil would be ambiguous), unexported fields (unless
//	                              tagged "-"), two fields of one name, times as map keys, big.Float (its text loses digits)
//
// An embedded pointer is stored under a name: `msgpack:",noinline"` or `json:"name"`.
//
// Three things differ in JSON because encoding/json does so, all of them only after a type was changed: surplus elements
// of a stored array longer than the Go array are dropped, a stored integer beyond 2^53 is rounded in a float field, and
// a field name is matched without regard to case when no exact one exists.
var (
	// Msgpack is the default codec, content type application/msgpack.
	Msgpack Codec = &msgpackCodec{planner{dialect: dialectMsgpack}}
	// JSON is for payloads that people or other systems read in the database, content type application/json.
	JSON Codec = &jsonCodec{planner{dialect: dialectJSON}}
)

// maxDepth bounds how deep values may be nested, in both directions: what can be written can be read, a cycle of
// pointers ends in an error, and hostile bytes cannot exhaust the stack.
const maxDepth = 1000

// typeChecker is a codec that can say beforehand whether it stores every value of a type.
type typeChecker interface {
	checkType(t reflect.Type) error
}

// planner makes and keeps the plans of one codec.
type planner struct {
	dialect dialect
	plans   sync.Map // reflect.Type -> *planned
}

type planned struct {
	plan *plan
	err  error
}

func (p *planner) checkType(t reflect.Type) error {
	_, err := p.planOf(t)
	return err
}

func (p *planner) planOf(t reflect.Type) (*plan, error) {
	if known, ok := p.plans.Load(t); ok {
		found := known.(*planned)
		return found.plan, found.err
	}
	made := &planned{}
	made.plan, made.err = buildPlan(t, p.dialect)
	kept, _ := p.plans.LoadOrStore(t, made)
	found := kept.(*planned)
	return found.plan, found.err
}

// source returns the value to encode and its plan.
func (p *planner) source(v any) (reflect.Value, *plan, error) {
	value := reflect.ValueOf(v)
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if !value.IsValid() {
		return value, nil, &InvalidError{Field: "value", Value: fmt.Sprintf("%T", v), Reason: "is nil", Remedy: "pass a value"}
	}
	plan, err := p.planOf(value.Type())
	if err != nil {
		return value, nil, err
	}
	if plan.addressed && !value.CanAddr() {
		copied := reflect.New(value.Type()).Elem()
		copied.Set(value)
		value = copied
	}
	return value, plan, nil
}

// target returns the value to decode into, set to zero, and its plan.
func (p *planner) target(v any) (reflect.Value, *plan, error) {
	pointer := reflect.ValueOf(v)
	if pointer.Kind() != reflect.Pointer || pointer.IsNil() {
		return pointer, nil, &InvalidError{
			Field: "target", Value: fmt.Sprintf("%T", v), Reason: "is not a pointer to a value",
			Remedy: "pass the address of a variable",
		}
	}
	value := pointer.Elem()
	plan, err := p.planOf(value.Type())
	if err != nil {
		return value, nil, err
	}
	value.SetZero()
	return value, plan, nil
}

// maxPath bounds the path in an error's text, which is long where values are nested deep.
const maxPath = 256

// fieldError is an error at a place inside a value. The path grows from the inside out while the error is returned.
type fieldError struct {
	path   string
	reason string
	remedy string
	err    error
}

func (e *fieldError) Error() string {
	var text strings.Builder
	if e.path != "" {
		path := strings.TrimPrefix(e.path, ".")
		if len(path) > maxPath {
			path = path[:maxPath] + "…"
		}
		text.WriteString("field " + path + ": ")
	}
	text.WriteString(e.reason)
	if e.err != nil {
		text.WriteString(": " + e.err.Error())
	}
	if e.remedy != "" {
		text.WriteString(": " + e.remedy)
	}
	return text.String()
}

func (e *fieldError) Unwrap() error { return e.err }

// at puts a step in front of the path of err: ".Name" or "[3]".
func at(step string, err error) error {
	if inner, ok := err.(*fieldError); ok {
		inner.path = step + inner.path
		return inner
	}
	return &fieldError{path: step, reason: "cannot be stored or read", err: err}
}
