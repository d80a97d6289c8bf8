package eventstore

import (
	"cmp"
	"strconv"
)

// Position is the place of an event in the whole log. Positions order events; they have gaps, and their distance means
// nothing. A position belongs to one store: comparing positions of two stores is meaningless.
//
// The zero Position lies before every event. Position is comparable with ==, and opaque: keep its text form, not a
// number.
type Position struct{ ordinal int64 }

// PositionAt makes a position from an engine's own number. It is for engines and for code that keeps positions in a
// database column; domain code gets positions from the store.
func PositionAt(ordinal int64) Position { return Position{ordinal} }

// Ordinal returns the engine's own number of the position; see [PositionAt].
func (p Position) Ordinal() int64 { return p.ordinal }

// IsZero reports whether p lies before every event.
func (p Position) IsZero() bool { return p.ordinal == 0 }

// Compare returns -1, 0 or +1 as p lies before, at or after q.
func (p Position) Compare(q Position) int { return cmp.Compare(p.ordinal, q.ordinal) }

// Before reports whether p lies before q.
func (p Position) Before(q Position) bool { return p.ordinal < q.ordinal }

// After reports whether p lies after q.
func (p Position) After(q Position) bool { return p.ordinal > q.ordinal }

// String returns the text form, which [ParsePosition] reads.
func (p Position) String() string { return strconv.FormatInt(p.ordinal, 10) }

// MarshalText returns the text form.
func (p Position) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, p.ordinal, 10), nil }

// UnmarshalText reads the text form; see [ParsePosition].
func (p *Position) UnmarshalText(text []byte) error {
	parsed, err := ParsePosition(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// ParsePosition reads what [Position.String] wrote. The error is an [*InvalidError].
func ParsePosition(text string) (Position, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return Position{}, &InvalidError{
			Field: "position", Value: text, Reason: "is not a position",
			Remedy: "pass on the text of a position unchanged",
		}
	}
	return Position{n}, nil
}
