package eventstore

import (
	"time"
)

// msgpackReader goes through MessagePack bytes. No method reads behind the data or believes a length that the data
// cannot hold.
type msgpackReader struct {
	data []byte
	pos  int
}

func (r *msgpackReader) peek() (byte, error) {
	if r.pos >= len(r.data) {
		return 0, errTruncated
	}
	return r.data[r.pos], nil
}

// take returns the next n bytes.
func (r *msgpackReader) take(n int) ([]byte, error) {
	if n > len(r.data)-r.pos {
		return nil, errTruncated
	}
	b := r.data[r.pos : r.pos+n]
	r.pos += n
	return b, nil
}

func bigEndian(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// size reads a code and the width bytes of length behind it.
func (r *msgpackReader) size(width int) (int, error) {
	b, err := r.take(1 + width)
	if err != nil {
		return 0, err
	}
	return int(bigEndian(b[1:])), nil
}

// number reads the integer that begins with code. A negative one is returned as the bits of its int64.
func (r *msgpackReader) number(code byte) (n uint64, negative bool, err error) {
	switch {
	case code <= 0x7f:
		r.pos++
		return uint64(code), false, nil
	case code >= 0xe0:
		r.pos++
		return uint64(int64(int8(code))), true, nil
	case code >= codeUint8 && code <= codeUint64:
		b, err := r.take(1 + 1<<(code-codeUint8))
		if err != nil {
			return 0, false, err
		}
		return bigEndian(b[1:]), false, nil
	case code >= codeInt8 && code <= codeInt64:
		width := 1 << (code - codeInt8)
		b, err := r.take(1 + width)
		if err != nil {
			return 0, false, err
		}
		shift := 64 - 8*width
		signed := int64(bigEndian(b[1:])<<shift) >> shift
		return uint64(signed), signed < 0, nil
	}
	return 0, false, errCode
}

// text reads text or bytes, whose codes stand for each other.
func (r *msgpackReader) text() ([]byte, error) {
	code, err := r.peek()
	if err != nil {
		return nil, err
	}
	var n int
	switch {
	case code >= 0xa0 && code <= 0xbf:
		r.pos++
		return r.take(int(code & 0x1f))
	case code >= codeStr8 && code <= codeStr32:
		n, err = r.size(1 << (code - codeStr8))
	case code >= codeBin8 && code <= codeBin32:
		n, err = r.size(1 << (code - codeBin8))
	default:
		return nil, errCode
	}
	if err != nil {
		return nil, err
	}
	return r.take(n)
}

// length reads the head of an array or map; each element takes at least perElement bytes.
func (r *msgpackReader) length(code, fix, code16 byte, perElement int) (int, error) {
	n := 0
	switch {
	case code >= fix && code < fix+16:
		r.pos++
		n = int(code & 0x0f)
	case code == code16 || code == code16+1:
		var err error
		if n, err = r.size(2 << (code - code16)); err != nil {
			return 0, err
		}
	default:
		return 0, errCode
	}
	if n > (len(r.data)-r.pos)/perElement {
		return 0, errTooMany
	}
	return n, nil
}

// extension reads the head of an extension and returns its type and data.
func (r *msgpackReader) extension(code byte) (byte, []byte, error) {
	n := 0
	switch {
	case code >= codeFixExt1 && code <= codeFixExt16:
		r.pos++
		n = 1 << (code - codeFixExt1)
	case code >= codeExt8 && code <= codeExt32:
		var err error
		if n, err = r.size(1 << (code - codeExt8)); err != nil {
			return 0, nil, err
		}
	default:
		return 0, nil, errCode
	}
	b, err := r.take(n + 1)
	if err != nil {
		return 0, nil, err
	}
	return b[0], b[1:], nil
}

func (r *msgpackReader) time() (time.Time, error) {
	kind, b, err := r.extension(r.data[r.pos])
	if err != nil {
		return time.Time{}, err
	}
	var sec, nsec uint64
	switch {
	case kind != extTime:
		return time.Time{}, errCode
	case len(b) == 4:
		sec = bigEndian(b)
	case len(b) == 8:
		sec, nsec = bigEndian(b)&(1<<34-1), bigEndian(b)>>34
	case len(b) == 12:
		sec, nsec = bigEndian(b[4:]), bigEndian(b[:4])
	default:
		return time.Time{}, errCode
	}
	if nsec >= uint64(time.Second) {
		return time.Time{}, errCode
	}
	return time.Unix(int64(sec), int64(nsec)).UTC(), nil
}

// skip goes over one value of any kind.
func (r *msgpackReader) skip(depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	code, err := r.peek()
	if err != nil {
		return err
	}
	items := 0
	switch {
	case code <= 0x7f, code >= 0xe0, code == codeNil, code == codeFalse, code == codeTrue:
		r.pos++
	case code >= 0x80 && code <= 0x8f, code == codeMap16, code == codeMap32:
		items, err = r.length(code, 0x80, codeMap16, 2)
		items *= 2
	case code >= 0x90 && code <= 0x9f, code == codeArray16, code == codeArray32:
		items, err = r.length(code, 0x90, codeArray16, 1)
	case code == codeFloat32, code == codeFloat64:
		_, err = r.take(1 + 4<<(code-codeFloat32))
	case code >= codeUint8 && code <= codeInt64:
		_, _, err = r.number(code)
	case code >= codeFixExt1 && code <= codeFixExt16, code >= codeExt8 && code <= codeExt32:
		_, _, err = r.extension(code)
	default:
		_, err = r.text()
	}
	for range items {
		if err != nil {
			break
		}
		err = r.skip(depth + 1)
	}
	return err
}

// codeName names the kind of value that a code begins.
func codeName(code byte) string {
	switch {
	case code <= 0x7f, code >= 0xe0, code >= codeUint8 && code <= codeInt64:
		return "integer"
	case code <= 0x8f, code == codeMap16, code == codeMap32:
		return "map"
	case code <= 0x9f, code == codeArray16, code == codeArray32:
		return "array"
	case code <= 0xbf, code >= codeStr8 && code <= codeStr32:
		return "text"
	case code >= codeBin8 && code <= codeBin32:
		return "byte string"
	case code == codeFloat32, code == codeFloat64:
		return "float"
	case code == codeTrue, code == codeFalse:
		return "boolean"
	case code == codeNil:
		return "nil"
	default:
		return "extension"
	}
}
