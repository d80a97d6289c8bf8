package eventstore

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// msgpackCodec writes and reads MessagePack by its own plans, not by the reflection of the msgpack library: the library
// wraps integers that do not fit, writes maps in random order, makes slices as long as hostile bytes claim, and brings
// nil embedded pointers back as structs. The library serves types that write to its encoder themselves, and names,
// tags and byte layout are the same.
type msgpackCodec struct{ planner }

func (c *msgpackCodec) ContentType() string { return "application/msgpack" }

var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// maxScratch keeps one huge event from staying in memory for ever.
const maxScratch = 64 << 10

func (c *msgpackCodec) Marshal(v any) ([]byte, error) {
	value, p, err := c.source(v)
	if err != nil {
		return nil, err
	}
	buf := scratch.Get().(*[]byte)
	written, err := appendValue((*buf)[:0], p, value, 0)
	var data []byte
	if err == nil {
		data = bytes.Clone(written)
	}
	if cap(written) <= maxScratch && written != nil {
		*buf = written
	}
	scratch.Put(buf)
	return data, err
}

var errDepth = fmt.Errorf("values are nested deeper than %d", maxDepth)

func appendValue(b []byte, p *plan, v reflect.Value, depth int) ([]byte, error) {
	switch p.shape {
	case shapeBool:
		if v.Bool() {
			return append(b, codeTrue), nil
		}
		return append(b, codeFalse), nil
	case shapeInt:
		return appendInt(b, v.Int()), nil
	case shapeUint:
		return appendUint(b, v.Uint()), nil
	case shapeFloat32:
		return binary.BigEndian.AppendUint32(append(b, codeFloat32), math.Float32bits(float32(v.Float()))), nil
	case shapeFloat64:
		return binary.BigEndian.AppendUint64(append(b, codeFloat64), math.Float64bits(v.Float())), nil
	case shapeString:
		return appendText(b, v.String()), nil
	case shapeBytes:
		if v.IsNil() {
			return append(b, codeNil), nil
		}
		return appendBytes(b, v.Bytes()), nil
	case shapeByteArray:
		return appendBytes(b, v.Bytes()), nil
	case shapeTime:
		return appendTime(b, v.Interface().(time.Time)), nil
	case shapeOwn:
		return appendOwn(b, p, v)
	case shapeWrap:
		return appendValue(b, p.elem, v.Field(0), depth)
	case shapePointer:
		if v.IsNil() {
			return append(b, codeNil), nil
		}
		return appendValue(b, p.elem, v.Elem(), depth)
	}
	if depth >= maxDepth {
		return b, &fieldError{reason: "is a cycle or nested too deep", err: errDepth}
	}
	switch p.shape {
	case shapeStruct:
		return appendStruct(b, p, v, depth+1)
	case shapeMap:
		return appendMap(b, p, v, depth+1)
	case shapeSlice:
		if v.IsNil() {
			return append(b, codeNil), nil
		}
		return appendElements(b, p, v, depth+1)
	default:
		return appendElements(b, p, v, depth+1)
	}
}

func appendStruct(b []byte, p *plan, v reflect.Value, depth int) ([]byte, error) {
	count := len(p.fields)
	for i := range p.fields {
		if f := &p.fields[i]; f.omit && isEmpty(fieldOf(v, f)) {
			count--
		}
	}
	b = appendLen(b, count, 0x80, 16, codeMap16)
	var err error
	for i := range p.fields {
		f := &p.fields[i]
		inside := fieldOf(v, f)
		if f.omit && isEmpty(inside) {
			continue
		}
		b = append(b, f.header...)
		if b, err = appendValue(b, f.plan, inside, depth); err != nil {
			return b, at("."+f.goName, err)
		}
	}
	return b, nil
}

func fieldOf(v reflect.Value, f *fieldPlan) reflect.Value {
	if len(f.index) == 1 {
		return v.Field(f.index[0])
	}
	return v.FieldByIndex(f.index)
}

// isEmpty says what omitempty leaves out: what is zero, what has no elements, and what says so by its IsZero method.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	}
	if v.IsZero() {
		return true
	}
	if v.Kind() == reflect.Pointer {
		return false
	}
	zeroer, ok := v.Interface().(interface{ IsZero() bool })
	return ok && zeroer.IsZero()
}

func appendElements(b []byte, p *plan, v reflect.Value, depth int) ([]byte, error) {
	b = appendLen(b, v.Len(), 0x90, 16, codeArray16)
	var err error
	for i := range v.Len() {
		if b, err = appendValue(b, p.elem, v.Index(i), depth); err != nil {
			return b, at(fmt.Sprintf("[%d]", i), err)
		}
	}
	return b, nil
}

// appendMap writes the pairs in the order of their keys, so that equal maps are equal bytes.
func appendMap(b []byte, p *plan, v reflect.Value, depth int) ([]byte, error) {
	if v.IsNil() {
		return append(b, codeNil), nil
	}
	b = appendLen(b, v.Len(), 0x80, 16, codeMap16)
	if v.Len() == 0 {
		return b, nil
	}
	type pair struct {
		key   reflect.Value
		bytes []byte
	}
	pairs := make([]pair, 0, v.Len())
	for _, key := range v.MapKeys() {
		written, err := appendValue(nil, p.key, key, depth)
		if err != nil {
			return b, at("[key]", err)
		}
		pairs = append(pairs, pair{key, written})
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		switch p.key.shape {
		case shapeInt:
			return cmp.Compare(x.key.Int(), y.key.Int())
		case shapeUint:
			return cmp.Compare(x.key.Uint(), y.key.Uint())
		case shapeString:
			return cmp.Compare(x.key.String(), y.key.String())
		}
		return bytes.Compare(x.bytes, y.bytes)
	})
	for i, pair := range pairs {
		if i > 0 && bytes.Equal(pair.bytes, pairs[i-1].bytes) {
			return b, &fieldError{reason: "has two keys with one stored form", remedy: "use keys that marshal differently"}
		}
		inside := v.MapIndex(pair.key)
		if p.elem.addressed {
			copied := reflect.New(inside.Type()).Elem()
			copied.Set(inside)
			inside = copied
		}
		var err error
		if b, err = appendValue(append(b, pair.bytes...), p.elem, inside, depth); err != nil {
			return b, at("[value]", err)
		}
	}
	return b, nil
}

var errNotOne = errors.New("did not write exactly one MessagePack value")

// appendOwn lets the value write itself.
func appendOwn(b []byte, p *plan, v reflect.Value) ([]byte, error) {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		if v.IsNil() {
			return append(b, codeNil), nil
		}
	}
	if p.own.addressed {
		v = v.Addr()
	}
	var data []byte
	var err error
	switch x := v.Interface(); p.own.kind {
	case ownStream:
		var out bytes.Buffer
		enc := msgpack.GetEncoder()
		enc.Reset(&out)
		enc.UseCompactInts(true)
		enc.SetSortMapKeys(true)
		err = x.(msgpack.CustomEncoder).EncodeMsgpack(enc)
		msgpack.PutEncoder(enc)
		data = out.Bytes()
	case ownMsgpack:
		data, err = x.(msgpack.Marshaler).MarshalMsgpack()
	case ownBinary:
		if data, err = x.(encoding.BinaryMarshaler).MarshalBinary(); err == nil {
			return appendBytes(b, data), nil
		}
	default:
		if data, err = x.(encoding.TextMarshaler).MarshalText(); err == nil {
			return appendText(b, data), nil
		}
	}
	if err == nil {
		if r := (&msgpackReader{data: data}); r.skip(0) != nil || r.pos != len(data) {
			err = errNotOne
		}
	}
	if err != nil {
		return b, &fieldError{reason: fmt.Sprintf("%s cannot marshal itself", p.typ), err: err}
	}
	return append(b, data...), nil
}
