package eventstore

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/google/uuid"
)

// maxTokenStreams is the number of stream hashes that a mark keeps. More streams in one partition are kept as "any".
const maxTokenStreams = 16

// Token is what a command returns and a read waits for: it says how far a read model must have come to show what was
// written. It holds the epoch of the store and, for each partition written, the position reached and which streams.
//
// A token is a small immutable value and safe for concurrent use. Its text form is opaque and safe in headers and
// URLs. The zero Token asks for nothing. Tokens of several commands [Token.Merge] into one.
type Token struct {
	epoch uuid.UUID
	marks []Mark // by partition
}

// Mark is one partition's part of a token. It is for engines and waiters.
type Mark struct {
	Partition int
	Position  Position
	// Streams holds the [StreamHash] of each stream written, at most 16, sorted; nil stands for any stream.
	Streams []uint32
}

// StreamHash is FNV-1a (32 bit) of the stream's text form, by which a token names a stream.
func StreamHash(s StreamID) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s.String()))
	return h.Sum32()
}

// MakeToken is for engines: it makes the token of an append. Marks of one partition are joined.
func MakeToken(epoch uuid.UUID, marks ...Mark) Token {
	t := Token{epoch: epoch}
	for _, m := range marks {
		t.marks = insertMark(t.marks, m)
	}
	return t
}

// Epoch identifies the history of the store that the token belongs to.
func (t Token) Epoch() uuid.UUID { return t.epoch }

// Marks returns the parts of the token by partition; the caller must not change them.
func (t Token) Marks() []Mark { return t.marks }

// IsZero reports whether the token asks for nothing.
func (t Token) IsZero() bool { return len(t.marks) == 0 }

// Merge returns a token that asks for what t and other ask for. Tokens of two epochs cannot both be met: the error is
// a [*HistoryError], and the older token should be dropped.
func (t Token) Merge(other Token) (Token, error) {
	switch {
	case other.IsZero():
		return t, nil
	case t.IsZero():
		return other, nil
	case t.epoch != other.epoch:
		return Token{}, &HistoryError{
			Reason: "tokens of two epochs were merged",
			Remedy: "keep the token of the latest command and drop the other",
		}
	}
	merged := Token{epoch: t.epoch, marks: slices.Clone(t.marks)}
	for _, m := range other.marks {
		merged.marks = insertMark(merged.marks, m)
	}
	return merged, nil
}

func insertMark(marks []Mark, m Mark) []Mark {
	m.Streams = slices.Clone(m.Streams)
	slices.Sort(m.Streams)
	m.Streams = slices.Compact(m.Streams)
	if n := len(m.Streams); n == 0 || n > maxTokenStreams {
		m.Streams = nil // an empty list means what nil means, or the text form would change it
	}
	at, found := slices.BinarySearchFunc(marks, m, func(a, b Mark) int { return a.Partition - b.Partition })
	if !found {
		return slices.Insert(marks, at, m)
	}
	old := marks[at]
	joined := Mark{Partition: m.Partition, Position: old.Position}
	if m.Position.After(old.Position) {
		joined.Position = m.Position
	}
	if old.Streams != nil && m.Streams != nil {
		joined.Streams = append(slices.Clone(old.Streams), m.Streams...)
		slices.Sort(joined.Streams)
		joined.Streams = slices.Compact(joined.Streams)
		if len(joined.Streams) > maxTokenStreams {
			joined.Streams = nil
		}
	}
	marks[at] = joined
	return marks
}

// tokenFormat is the first byte of the binary form: format 1 is the epoch (16 bytes), then for each partition its
// number, its position and the number of hashes as unsigned varints, and the hashes with 4 bytes each, little endian.
const tokenFormat = 1

// String returns the text form: base64url without padding of the binary form, or "" for the zero Token.
func (t Token) String() string {
	if t.IsZero() {
		return ""
	}
	b := append(make([]byte, 0, 64), tokenFormat)
	b = append(b, t.epoch[:]...)
	for _, m := range t.marks {
		b = binary.AppendUvarint(b, uint64(m.Partition))
		b = binary.AppendUvarint(b, uint64(m.Position.ordinal))
		b = binary.AppendUvarint(b, uint64(len(m.Streams)))
		for _, h := range m.Streams {
			b = binary.LittleEndian.AppendUint32(b, h)
		}
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// MarshalText returns the text form.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the text form; see [ParseToken].
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// ParseToken reads what [Token.String] wrote; "" is the zero Token. The error is an [*InvalidError].
func ParseToken(text string) (Token, error) {
	if text == "" {
		return Token{}, nil
	}
	invalid := func(reason string) (Token, error) {
		return Token{}, &InvalidError{
			Field: "token", Value: text, Reason: reason, Remedy: "pass on the token of a command unchanged",
		}
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 1+len(uuid.UUID{}) {
		return invalid("is not a token")
	}
	if b[0] != tokenFormat {
		return invalid("has a format that this release does not know")
	}
	t := Token{}
	b = b[1+copy(t.epoch[:], b[1:]):]
	for len(b) > 0 {
		var fields [3]uint64
		for i := range fields {
			v, n := binary.Uvarint(b)
			if n <= 0 || v > 1<<62 {
				return invalid("is damaged")
			}
			fields[i], b = v, b[n:]
		}
		hashes := int(fields[2])
		if fields[0] > 1<<20 || hashes > maxTokenStreams || len(b) < 4*hashes {
			return invalid("is damaged")
		}
		m := Mark{Partition: int(fields[0]), Position: Position{int64(fields[1])}}
		if n := len(t.marks); n > 0 && t.marks[n-1].Partition >= m.Partition {
			return invalid("is damaged") // also keeps a hostile text from costing quadratic time
		}
		for range hashes {
			m.Streams, b = append(m.Streams, binary.LittleEndian.Uint32(b)), b[4:]
		}
		t.marks = insertMark(t.marks, m)
	}
	if t.IsZero() {
		return invalid("is empty")
	}
	if t.String() != text {
		return invalid("is damaged")
	}
	return t, nil
}
