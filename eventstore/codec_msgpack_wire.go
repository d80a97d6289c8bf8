package eventstore

import (
	"encoding/binary"
	"math"
	"time"
)

// The codes of the MessagePack format that carry a meaning of their own; ranges are written where they are used.
const (
	codeNil      = 0xc0
	codeFalse    = 0xc2
	codeTrue     = 0xc3
	codeBin8     = 0xc4
	codeBin32    = 0xc6
	codeExt8     = 0xc7
	codeExt32    = 0xc9
	codeFloat32  = 0xca
	codeFloat64  = 0xcb
	codeUint8    = 0xcc
	codeUint16   = 0xcd
	codeUint32   = 0xce
	codeUint64   = 0xcf
	codeInt8     = 0xd0
	codeInt16    = 0xd1
	codeInt32    = 0xd2
	codeInt64    = 0xd3
	codeFixExt1  = 0xd4
	codeFixExt4  = 0xd6
	codeFixExt8  = 0xd7
	codeFixExt16 = 0xd8
	codeStr8     = 0xd9
	codeStr16    = 0xda
	codeStr32    = 0xdb
	codeArray16  = 0xdc
	codeArray32  = 0xdd
	codeMap16    = 0xde
	codeMap32    = 0xdf

	extTime = 0xff // extension type -1
)

// appendInt writes n in its shortest form.
func appendInt(b []byte, n int64) []byte {
	switch {
	case n >= 0:
		return appendUint(b, uint64(n))
	case n >= -32:
		return append(b, byte(n))
	case n >= math.MinInt8:
		return append(b, codeInt8, byte(n))
	case n >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, codeInt16), uint16(n))
	case n >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, codeInt32), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, codeInt64), uint64(n))
	}
}

func appendUint(b []byte, n uint64) []byte {
	switch {
	case n <= math.MaxInt8:
		return append(b, byte(n))
	case n <= math.MaxUint8:
		return append(b, codeUint8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, codeUint16), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, codeUint32), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, codeUint64), n)
	}
}

func appendText[T string | []byte](b []byte, text T) []byte {
	switch n := len(text); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, codeStr8, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, codeStr16), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, codeStr32), uint32(n))
	}
	return append(b, text...)
}

func appendBytes(b, data []byte) []byte {
	switch n := len(data); {
	case n <= math.MaxUint8:
		b = append(b, codeBin8, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, codeBin8+1), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, codeBin32), uint32(n))
	}
	return append(b, data...)
}

// appendLen writes the head of an array or map: fix is the code of the short form, which has room below limit, code16
// that of the form with 16 bits.
func appendLen(b []byte, n int, fix byte, limit int, code16 byte) []byte {
	switch {
	case n < limit:
		return append(b, fix|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, code16), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, code16+1), uint32(n))
	}
}

// appendTime writes the timestamp extension of the MessagePack format in its shortest form.
func appendTime(b []byte, t time.Time) []byte {
	sec, nsec := t.Unix(), t.Nanosecond()
	switch {
	case uint64(sec)>>34 != 0:
		b = binary.BigEndian.AppendUint32(append(b, codeExt8, 12, extTime), uint32(nsec))
		return binary.BigEndian.AppendUint64(b, uint64(sec))
	case nsec == 0 && sec <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, codeFixExt4, extTime), uint32(sec))
	default:
		return binary.BigEndian.AppendUint64(append(b, codeFixExt8, extTime), uint64(nsec)<<34|uint64(sec))
	}
}
