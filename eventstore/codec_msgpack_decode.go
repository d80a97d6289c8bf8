package eventstore

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

var (
	errTruncated = &constError{"the data ends in the middle of a value"}
	errTrailing  = &constError{"there is more data behind the value"}
	errTooMany   = &constError{"it claims more elements than there is data"}
	errCode      = &constError{"the data is no MessagePack value"}
	errNoValue   = &constError{"there is no value, only nil"}
)

// constError is a cause without further facts.
type constError struct{ text string }

func (e *constError) Error() string { return e.text }

func (c *msgpackCodec) Unmarshal(data []byte, v any) error {
	value, p, err := c.target(v)
	if err != nil {
		return err
	}
	if p.shape == shapeStruct && len(data) > 0 && data[0] == codeNil {
		return errNoValue
	}
	r := msgpackReader{data: data}
	if err := r.value(p, value, 0); err != nil {
		return err
	}
	if r.pos != len(data) {
		return errTrailing
	}
	return nil
}

func mismatch(p *plan, code byte) error {
	return &fieldError{reason: fmt.Sprintf("a stored %s does not fit %s", codeName(code), p.typ)}
}

// value decodes the next value into v, which is zero.
func (r *msgpackReader) value(p *plan, v reflect.Value, depth int) error {
	code, err := r.peek()
	if err != nil {
		return err
	}
	if code == codeNil && p.shape != shapeOwn && p.shape != shapeWrap {
		r.pos++
		v.SetZero()
		return nil
	}
	switch p.shape {
	case shapeBool:
		r.pos++
		if code != codeTrue && code != codeFalse {
			return mismatch(p, code)
		}
		v.SetBool(code == codeTrue)
		return nil
	case shapeInt, shapeUint:
		return r.integer(p, v, code)
	case shapeFloat32, shapeFloat64:
		return r.float(p, v, code)
	case shapeString:
		text, err := r.text()
		if err != nil {
			return r.reason(p, code, err)
		}
		v.SetString(string(text))
		return nil
	case shapeBytes:
		data, err := r.text()
		if err != nil {
			return r.reason(p, code, err)
		}
		kept := make([]byte, len(data))
		copy(kept, data)
		v.SetBytes(kept)
		return nil
	case shapeByteArray:
		data, err := r.text()
		if err != nil {
			return r.reason(p, code, err)
		}
		if len(data) > v.Len() {
			return &fieldError{reason: fmt.Sprintf("%d stored bytes do not fit %s", len(data), p.typ)}
		}
		copy(v.Bytes(), data)
		return nil
	case shapeTime:
		t, err := r.time()
		if err != nil {
			return r.reason(p, code, err)
		}
		*v.Addr().Interface().(*time.Time) = t
		return nil
	case shapeOwn:
		return r.own(p, v, code, depth)
	case shapeWrap:
		return r.value(p.elem, v.Field(0), depth)
	case shapePointer:
		v.Set(reflect.New(p.elem.typ))
		return r.value(p.elem, v.Elem(), depth)
	}
	if depth >= maxDepth {
		return errDepth
	}
	switch p.shape {
	case shapeStruct:
		return r.structure(p, v, code, depth+1)
	case shapeMap:
		return r.mapping(p, v, code, depth+1)
	case shapeSlice:
		return r.slice(p, v, code, depth+1)
	default:
		return r.array(p, v, code, depth+1)
	}
}

// reason says what is wrong with the value that begins with code: a code of another kind, or broken data.
func (r *msgpackReader) reason(p *plan, code byte, err error) error {
	if errors.Is(err, errCode) {
		return mismatch(p, code)
	}
	return err
}

func (r *msgpackReader) integer(p *plan, v reflect.Value, code byte) error {
	n, negative, err := r.number(code)
	if err != nil {
		return r.reason(p, code, err)
	}
	fits := false
	if p.shape == shapeInt {
		signed := int64(n)
		if fits = (negative || n <= math.MaxInt64) && !v.OverflowInt(signed); fits {
			v.SetInt(signed)
		}
	} else if fits = !negative && !v.OverflowUint(n); fits {
		v.SetUint(n)
	}
	if !fits {
		return &fieldError{reason: fmt.Sprintf("a stored integer does not fit %s", p.typ)}
	}
	return nil
}

func (r *msgpackReader) float(p *plan, v reflect.Value, code byte) error {
	switch code {
	case codeFloat32:
		raw, err := r.take(5)
		if err != nil {
			return err
		}
		v.SetFloat(float64(math.Float32frombits(uint32(bigEndian(raw[1:])))))
		return nil
	case codeFloat64:
		if p.shape == shapeFloat32 {
			return &fieldError{reason: fmt.Sprintf("a stored float of 64 bits does not fit %s", p.typ)}
		}
		raw, err := r.take(9)
		if err != nil {
			return err
		}
		v.SetFloat(math.Float64frombits(bigEndian(raw[1:])))
		return nil
	}
	n, negative, err := r.number(code)
	if err != nil {
		return r.reason(p, code, err)
	}
	exact := uint64(1) << 53
	if p.shape == shapeFloat32 {
		exact = 1 << 24
	}
	if size := n; negative && -int64(size) > int64(exact) || !negative && size > exact {
		return &fieldError{reason: fmt.Sprintf("a stored integer is not exact as %s", p.typ)}
	}
	if negative {
		v.SetFloat(float64(int64(n)))
	} else {
		v.SetFloat(float64(n))
	}
	return nil
}

func (r *msgpackReader) structure(p *plan, v reflect.Value, code byte, depth int) error {
	n, err := r.length(code, 0x80, codeMap16, 2)
	if err != nil {
		return r.reason(p, code, err)
	}
	next := 0
	for range n {
		name, err := r.text()
		if err != nil {
			if errors.Is(err, errCode) {
				return &fieldError{reason: "a field's name is not text"}
			}
			return err
		}
		// Fields mostly come in the order in which they were written, so the map is a second try.
		i := next
		if i >= len(p.fields) || p.fields[i].name != string(name) {
			known := false
			if i, known = p.byName[string(name)]; !known {
				if err := r.skip(depth); err != nil {
					return err
				}
				continue
			}
		}
		next = i + 1
		f := &p.fields[i]
		if err := r.value(f.plan, fieldOf(v, f), depth); err != nil {
			return at("."+f.goName, err)
		}
	}
	return nil
}

// firstChunk is how many elements get memory before their bytes have been seen: hostile data must not buy much memory
// with a few bytes.
func firstChunk(n int, t reflect.Type) int {
	return min(n, max(16, 64<<10/max(1, int(t.Size()))))
}

func (r *msgpackReader) slice(p *plan, v reflect.Value, code byte, depth int) error {
	n, err := r.length(code, 0x90, codeArray16, 1)
	if err != nil {
		return r.reason(p, code, err)
	}
	v.Set(reflect.MakeSlice(p.typ, 0, firstChunk(n, p.elem.typ)))
	for i := range n {
		if i == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(i + 1)
		elem := v.Index(i)
		if err := r.value(p.elem, elem, depth); err != nil {
			return at(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

func (r *msgpackReader) array(p *plan, v reflect.Value, code byte, depth int) error {
	n, err := r.length(code, 0x90, codeArray16, 1)
	if err != nil {
		return r.reason(p, code, err)
	}
	if n > v.Len() {
		return &fieldError{reason: fmt.Sprintf("%d stored elements do not fit %s", n, p.typ)}
	}
	for i := range n {
		if err := r.value(p.elem, v.Index(i), depth); err != nil {
			return at(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

func (r *msgpackReader) mapping(p *plan, v reflect.Value, code byte, depth int) error {
	n, err := r.length(code, 0x80, codeMap16, 2)
	if err != nil {
		return r.reason(p, code, err)
	}
	v.Set(reflect.MakeMapWithSize(p.typ, firstChunk(n, p.typ.Elem())))
	if n == 0 {
		return nil
	}
	key, inside := reflect.New(p.key.typ).Elem(), reflect.New(p.elem.typ).Elem()
	for range n {
		key.SetZero()
		inside.SetZero()
		if err := r.value(p.key, key, depth); err != nil {
			return at("[key]", err)
		}
		if err := r.value(p.elem, inside, depth); err != nil {
			return at("[value]", err)
		}
		v.SetMapIndex(key, inside)
	}
	return nil
}

// own lets the value read itself. Which of its pairs wrote it shows in the code, so that a type may get another pair
// later.
func (r *msgpackReader) own(p *plan, v reflect.Value, code byte, depth int) error {
	start := r.pos
	if err := r.skip(depth); err != nil {
		return err
	}
	if code == codeNil {
		return nil
	}
	x := v.Addr().Interface()
	kind := p.own.kind
	if kind == ownBinary || kind == ownText {
		isText := code >= 0xa0 && code <= 0xbf || code >= codeStr8 && code <= codeStr32
		isBin := code >= codeBin8 && code <= codeBin32
		switch {
		case !isText && !isBin:
			return mismatch(p, code)
		case isText && p.own.text:
			kind = ownText
		case isBin && p.own.binary:
			kind = ownBinary
		}
	}
	var err error
	switch kind {
	case ownStream:
		dec := msgpack.GetDecoder()
		dec.Reset(bytes.NewReader(r.data[start:r.pos]))
		err = x.(msgpack.CustomDecoder).DecodeMsgpack(dec)
		if _, more := dec.PeekCode(); err == nil && more == nil {
			err = errTrailing
		}
		msgpack.PutDecoder(dec)
	case ownMsgpack:
		err = x.(msgpack.Unmarshaler).UnmarshalMsgpack(bytes.Clone(r.data[start:r.pos]))
	default:
		whole := msgpackReader{data: r.data[start:r.pos]}
		var data []byte
		if data, err = whole.text(); err == nil && kind == ownText {
			err = x.(encoding.TextUnmarshaler).UnmarshalText(data)
		} else if err == nil {
			err = x.(encoding.BinaryUnmarshaler).UnmarshalBinary(data)
		}
	}
	if err != nil {
		return &fieldError{reason: fmt.Sprintf("%s cannot read itself", p.typ), err: err}
	}
	return nil
}
