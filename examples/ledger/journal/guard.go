package journal

import (
	"errors"
	"io"
)

const (
	// MaxField is the longest field in bytes, quotes included.
	MaxField = 64 << 10
	// MaxRow is the longest row in bytes, all its lines together.
	MaxRow = 256 << 10
	// MaxPostings is the largest number of postings in one entry.
	MaxPostings = 1000
)

var errLimit = errors.New("journal: limit reached")

// guard stands before the CSV parser, which reads a row of any length into
// memory, and ends the input where a field or a row grows past its limit. It
// follows quotes only, which is all it takes: in well-formed CSV an odd number
// of them means "inside a field", and the parser refuses any other.
type guard struct {
	src io.Reader

	line      int    // current line, from 1
	field     int    // index of the current field in its row
	fieldLine int    // line on which the current field began
	fieldSize int    // bytes of the current field so far
	rowSize   int    // bytes of the current row so far
	head      []byte // the first bytes of the current field
	quoted    bool   // inside quotes
	last      byte   // the byte read last

	over  string // the limit that was reached
	eof   bool
	cause error // the source's own error
}

func newGuard(src io.Reader) *guard {
	return &guard{src: src, line: 1, fieldLine: 1, head: make([]byte, 0, shownBytes+1)}
}

func (g *guard) Read(p []byte) (int, error) {
	switch {
	case g.over != "":
		return 0, errLimit
	case g.eof:
		return 0, io.EOF
	case g.cause != nil:
		return 0, g.cause
	}
	n, err := g.src.Read(p)
	for i, c := range p[:n] {
		if g.next(c); g.over != "" {
			return i, errLimit
		}
	}
	if err == io.EOF {
		g.eof = true
	} else if err != nil {
		g.cause = err
	}
	return n, err
}

func (g *guard) next(c byte) {
	g.last = c
	if c == '"' {
		g.quoted = !g.quoted
	}
	if c == '\n' {
		g.line++
	}
	if !g.quoted && (c == ',' || c == '\n') {
		g.field++
		g.rowSize++
		if c == '\n' {
			g.field, g.rowSize = 0, 0
		}
		g.fieldLine, g.fieldSize, g.head = g.line, 0, g.head[:0]
	} else {
		if len(g.head) < cap(g.head) && (c != '"' || g.fieldSize > 0) {
			g.head = append(g.head, c)
		}
		g.fieldSize++
		g.rowSize++
	}
	switch {
	case g.fieldSize > MaxField:
		g.over = "field"
	case g.rowSize > MaxRow:
		g.over = "row"
	}
}

// lastLine is the number of the last line that has any byte.
func (g *guard) lastLine() int {
	if g.last == '\n' {
		return g.line - 1
	}
	return g.line
}
