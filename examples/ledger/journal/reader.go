package journal

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
)

const exportAgain = "export the journal again with: hledger print -O csv"

// Read delivers the entries of r in the order of the file; file is the name
// that errors carry. The first error ends the sequence and comes with a zero
// Entry. The sequence reads r as it goes, so it can be ranged over once, and
// stopping early leaves r somewhere in the middle. Read never closes r.
func Read(r io.Reader, file string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		rd := &reader{file: file, seen: make(map[uint64]int)}
		if err := rd.open(r); err != nil {
			yield(Entry{}, err)
			return
		}
		for {
			err := rd.next()
			if rd.completes(err) && !yield(rd.take(), nil) {
				return
			}
			if errors.Is(err, errNextEntry) {
				err = rd.begin()
			}
			if errors.Is(err, errEnd) {
				return
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
		}
	}
}

var (
	// errNextEntry says that the row just read begins another entry.
	errNextEntry = errors.New("journal: next entry")
	// errEnd stands for io.EOF, which the cause of a failed read may wrap.
	errEnd = errors.New("journal: end of file")
)

type reader struct {
	file   string
	guard  *guard
	csv    *csv.Reader
	header []string
	cols   columns

	row    []string
	seen   map[uint64]int // txnidx: line of its first row
	number uint64         // txnidx of the entry being collected
	entry  Entry
}

// open skips the byte order mark and reads the header.
func (rd *reader) open(r io.Reader) error {
	buffered := bufio.NewReader(r)
	start, err := buffered.Peek(buffered.Size())
	if err != nil && err != io.EOF {
		return rd.failed(err)
	}
	if bytes.HasPrefix(start, []byte("\xff\xfe")) || bytes.HasPrefix(start, []byte("\xfe\xff")) {
		return rd.bad(1, "", "", "the file is UTF-16", "save it as UTF-8")
	}
	if mark := []byte("\xef\xbb\xbf"); bytes.HasPrefix(start, mark) {
		if _, err := buffered.Discard(len(mark)); err != nil {
			return rd.failed(err)
		}
		start = start[len(mark):]
	}
	if name := foreignSeparator(start); name != "" {
		return rd.bad(1, "", "", name+" separate the fields", "separate them by commas: "+exportAgain)
	}
	rd.guard = newGuard(buffered)
	rd.csv = csv.NewReader(rd.guard)
	rd.csv.FieldsPerRecord = -1
	rd.csv.ReuseRecord = true

	row, err := rd.csv.Read()
	if err == io.EOF { // exactly: a failed read may wrap it
		return rd.bad(1, "", "", "the file is empty", exportAgain)
	}
	if err != nil {
		return rd.parseFailed(err)
	}
	line, _ := rd.csv.FieldPos(0)
	for i, name := range row {
		if fault, remedy := badText(name); fault != "" {
			return rd.bad(line, "", show(name), "the header's field "+strconv.Itoa(i+1)+" has "+fault, remedy)
		}
	}
	rd.header = slices.Clone(row)
	return rd.findColumns(line)
}

// foreignSeparator names what separates the fields of the first line when that
// is not commas. The parser alone would complain about a quote.
func foreignSeparator(start []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimLeft(start, "\r\n"), []byte("\n"))
	quoted, semicolons, tabs := false, 0, 0
	for _, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ',':
			return ""
		case c == ';':
			semicolons++
		case c == '\t':
			tabs++
		}
	}
	switch {
	case semicolons > 0:
		return "semicolons"
	case tabs > 0:
		return "tabs"
	}
	return ""
}

// next reads one row into the entry being collected. It returns errNextEntry
// when the row belongs to another entry, and errEnd behind the last row.
func (rd *reader) next() error {
	row, err := rd.csv.Read()
	if err == io.EOF { // exactly: a failed read may wrap it
		return errEnd
	}
	if err != nil {
		return rd.parseFailed(err)
	}
	rd.row = row
	if err := rd.checkShape(); err != nil {
		return err
	}
	number, err := rd.txnidx()
	if err != nil {
		return err
	}
	if len(rd.entry.Postings) > 0 && number == rd.number {
		return rd.addPosting()
	}
	rd.number = number
	if len(rd.entry.Postings) > 0 {
		return errNextEntry
	}
	return rd.begin()
}

// begin starts an entry with the current row.
func (rd *reader) begin() error {
	line := rd.rowLine()
	if first, ok := rd.seen[rd.number]; ok {
		return rd.badField(rd.cols.txnidx, fmt.Sprintf("the entry that began at line %d comes back after another entry", first),
			"keep the rows of an entry together and give each entry a txnidx of its own")
	}
	rd.seen[rd.number] = line
	date, err := ParseDate(rd.row[rd.cols.date])
	if err != nil {
		return rd.badField(rd.cols.date, "not a day of the calendar", "write it YYYY-MM-DD, such as 2012-02-29")
	}
	rd.entry = Entry{
		Line:        line,
		Index:       strings.Clone(rd.row[rd.cols.txnidx]),
		Date:        date,
		Description: strings.Clone(rd.row[rd.cols.description]),
	}
	return rd.addPosting()
}

// completes reports whether what next returned completes the collected entry.
func (rd *reader) completes(err error) bool {
	return errors.Is(err, errNextEntry) || errors.Is(err, errEnd) && len(rd.entry.Postings) > 0
}

// take hands out the collected entry and forgets it.
func (rd *reader) take() Entry {
	e := rd.entry
	rd.entry = Entry{}
	return e
}

// parseFailed translates an error of the CSV parser.
func (rd *reader) parseFailed(err error) error {
	g := rd.guard
	if rd.guard.cause != nil && errors.Is(err, g.cause) {
		return rd.failed(err)
	}
	var parse *csv.ParseError
	isParse := errors.As(err, &parse)
	switch {
	case g.over != "":
		// The limit lies further from the last whole row than the parser reads
		// ahead, so what the parser says is about the row that was cut.
		return rd.overLimit()
	case !isParse:
		return rd.failed(err)
	case errors.Is(parse.Err, csv.ErrQuote) && g.eof && g.quoted && parse.Line >= g.lastLine():
		return rd.bad(g.fieldLine, rd.columnName(g.field), show(string(g.head)),
			"the file ends inside a quoted field", "the file seems cut off, or a quote is missing: "+exportAgain)
	}
	return rd.bad(parse.Line, "", "", fmt.Sprintf("a quote stands in the wrong place (byte %d of the line)", parse.Column),
		"put the whole field in quotes and double the quotes inside it")
}

func (rd *reader) overLimit() error {
	g := rd.guard
	if g.over == "row" {
		return rd.bad(g.line, "", "", fmt.Sprintf("the row is longer than %d KiB", MaxRow>>10), "shorten it, or look for a missing quote")
	}
	return rd.bad(g.fieldLine, rd.columnName(g.field), show(string(g.head)),
		fmt.Sprintf("the field is longer than %d KiB", MaxField>>10), "shorten it, or look for a missing quote")
}

func (rd *reader) failed(err error) error {
	return fmt.Errorf("journal: read %s: %w", rd.file, err)
}
