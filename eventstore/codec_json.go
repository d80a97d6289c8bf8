package eventstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// jsonCodec is encoding/json between two walks: one before writing refuses what JSON would alter, one after reading
// sets the location of times.
type jsonCodec struct{ planner }

func (c *jsonCodec) ContentType() string { return "application/json" }

type jsonWriter struct {
	buf bytes.Buffer
	enc *json.Encoder
}

var jsonWriters = sync.Pool{New: func() any {
	w := &jsonWriter{}
	w.enc = json.NewEncoder(&w.buf)
	w.enc.SetEscapeHTML(false)
	return w
}}

func (c *jsonCodec) Marshal(v any) ([]byte, error) {
	value, p, err := c.source(v)
	if err != nil {
		return nil, err
	}
	if err := checkJSON(p, value, 0); err != nil {
		return nil, err
	}
	if value.CanAddr() {
		v = value.Addr().Interface()
	}
	w := jsonWriters.Get().(*jsonWriter)
	w.buf.Reset()
	err = w.enc.Encode(v)
	var data []byte
	if err == nil {
		data = bytes.Clone(bytes.TrimSuffix(w.buf.Bytes(), []byte("\n")))
	}
	if w.buf.Cap() <= maxScratch {
		jsonWriters.Put(w)
	}
	if err != nil {
		return nil, err
	}
	// encoding/json writes U+FFFD itself as three bytes, and this escape only for bytes that are no UTF-8. checkJSON has
	// looked at all text but that of types which marshal themselves.
	if hasEscape(data, func(n uint64, _ []byte) bool { return n == utf8.RuneError }) {
		return nil, &fieldError{
			reason: "a type that marshals itself wrote text that is not valid UTF-8",
			remedy: "encode it, for example as base64, or store the type with Msgpack",
		}
	}
	return data, nil
}

// checkJSON refuses what encoding/json would alter, naming the field.
func checkJSON(p *plan, v reflect.Value, depth int) error {
	switch p.shape {
	case shapeString:
		if !utf8.ValidString(v.String()) {
			return &fieldError{reason: "text is not valid UTF-8", remedy: "use []byte, or store the type with Msgpack"}
		}
	case shapeFloat32, shapeFloat64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return &fieldError{reason: "is not a finite number", remedy: "use a pointer, or store the type with Msgpack"}
		}
	case shapeTime:
		t := v.Interface().(time.Time)
		if _, offset := t.Zone(); offset%60 != 0 {
			return &fieldError{reason: "the time's zone has an offset with seconds, which JSON cuts off", remedy: "call UTC() on it"}
		}
	case shapeWrap:
		return checkJSON(p.elem, v.Field(0), depth)
	case shapePointer:
		if !v.IsNil() {
			return checkJSON(p.elem, v.Elem(), depth)
		}
	case shapeStruct, shapeMap, shapeSlice, shapeArray:
		if depth >= maxDepth {
			return &fieldError{reason: "is a cycle or nested too deep", err: errDepth}
		}
		return checkJSONInside(p, v, depth+1)
	}
	return nil
}

func checkJSONInside(p *plan, v reflect.Value, depth int) error {
	switch p.shape {
	case shapeStruct:
		for i := range p.fields {
			f := &p.fields[i]
			if err := checkJSON(f.plan, fieldOf(v, f), depth); err != nil {
				return at("."+f.goName, err)
			}
		}
	case shapeMap:
		iter := v.MapRange()
		for iter.Next() {
			if err := checkJSON(p.key, iter.Key(), depth); err != nil {
				return at("[key]", err)
			}
			if err := checkJSON(p.elem, iter.Value(), depth); err != nil {
				return at("[value]", err)
			}
		}
	default:
		if p.elem.shape <= shapeUint {
			return nil
		}
		for i := range v.Len() {
			if err := checkJSON(p.elem, v.Index(i), depth); err != nil {
				return at(fmt.Sprintf("[%d]", i), err)
			}
		}
	}
	return nil
}

func (c *jsonCodec) Unmarshal(data []byte, v any) error {
	value, p, err := c.target(v)
	if err != nil {
		return err
	}
	if p.shape == shapeStruct && bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return errNoValue
	}
	if !utf8.Valid(data) {
		return &fieldError{reason: "the data is not valid UTF-8"}
	}
	if hasEscape(data, loneSurrogate) {
		return &fieldError{reason: "the data has half of a surrogate pair, which JSON would replace"}
	}
	if err := json.Unmarshal(data, v); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			// Value may hold the stored number itself; only its kind is told.
			kind, _, _ := strings.Cut(wrong.Value, " ")
			return &fieldError{path: wrong.Field, reason: fmt.Sprintf("a stored %s does not fit %s", kind, wrong.Type)}
		}
		return err
	}
	if p.times {
		setUTC(p, value)
	}
	return nil
}

// hasEscape reports whether an escape \uXXXX in data satisfies is, which gets its number and the bytes behind it.
func hasEscape(data []byte, is func(n uint64, rest []byte) bool) bool {
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 || i+1 >= len(data) {
			return false
		}
		if n, ok := escape(data[i:]); ok {
			if is(n, data[i+6:]) {
				return true
			}
			// The second half of a pair was looked at with the first.
			if _, low := escape(data[i+6:]); low && n >= 0xd800 && n < 0xdc00 {
				i += 6
			}
			data = data[i+6:]
			continue
		}
		data = data[i+2:]
	}
}

// escape returns the number of the escape \uXXXX that data begins with.
func escape(data []byte) (uint64, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	var n uint64
	for _, c := range data[2:6] {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n = n<<4 | uint64(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

func loneSurrogate(n uint64, rest []byte) bool {
	switch {
	case n >= 0xdc00 && n < 0xe000:
		return true
	case n >= 0xd800 && n < 0xdc00:
		low, ok := escape(rest)
		return !ok || low < 0xdc00 || low >= 0xe000
	}
	return false
}

// setUTC gives every time in v the location UTC. v is addressable and was just decoded, so it has no cycles.
func setUTC(p *plan, v reflect.Value) {
	if !p.times {
		return
	}
	switch p.shape {
	case shapeTime:
		t := v.Addr().Interface().(*time.Time)
		*t = t.UTC()
	case shapeWrap:
		setUTC(p.elem, v.Field(0))
	case shapePointer:
		if !v.IsNil() {
			setUTC(p.elem, v.Elem())
		}
	case shapeSlice, shapeArray:
		for i := range v.Len() {
			setUTC(p.elem, v.Index(i))
		}
	case shapeMap:
		for _, key := range v.MapKeys() {
			inside := reflect.New(p.elem.typ).Elem()
			inside.Set(v.MapIndex(key))
			setUTC(p.elem, inside)
			v.SetMapIndex(key, inside)
		}
	case shapeStruct:
		for i := range p.fields {
			setUTC(p.fields[i].plan, fieldOf(v, &p.fields[i]))
		}
	}
}
