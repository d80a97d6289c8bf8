package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/govalues/decimal"
)

// columns are the places of the fields that are read.
type columns struct {
	txnidx, date, description, account, amount, commodity int
}

func (rd *reader) findColumns(line int) error {
	for _, want := range []struct {
		name  string
		place *int
	}{
		{"txnidx", &rd.cols.txnidx},
		{"date", &rd.cols.date},
		{"description", &rd.cols.description},
		{"account", &rd.cols.account},
		{"amount", &rd.cols.amount},
		{"commodity", &rd.cols.commodity},
	} {
		*want.place = slices.Index(rd.header, want.name)
		if *want.place < 0 {
			return rd.bad(line, want.name, "", "the header has no such column", exportAgain)
		}
		if slices.Contains(rd.header[*want.place+1:], want.name) {
			return rd.bad(line, want.name, "", "the header has this column twice", "rename or remove one of them")
		}
	}
	return nil
}

// checkShape looks at what every field of a row must be, also in the columns
// that are not read: a stray NUL there says the file is damaged.
func (rd *reader) checkShape() error {
	if have, want := len(rd.row), len(rd.header); have != want {
		line := rd.rowLine()
		reason := fmt.Sprintf("the row has %d fields and the header %d", have, want)
		if have < want {
			if _, err := rd.csv.Read(); err == io.EOF {
				return rd.bad(line, "", "", reason, "the file seems cut off in its last row: "+exportAgain)
			}
		}
		return rd.bad(line, "", "", reason, "give the row as many fields as the header, and put a field that contains a comma in quotes")
	}
	for i, field := range rd.row {
		if fault, remedy := badText(field); fault != "" {
			return rd.badField(i, "the field has "+fault, remedy)
		}
	}
	return nil
}

func badText(s string) (fault, remedy string) {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return "a NUL byte", "the file is damaged or is not text: " + exportAgain
	case !utf8.ValidString(s):
		return "bytes that are not UTF-8", "save the file as UTF-8"
	}
	return "", ""
}

// txnidx is a number in every export. That it must be one keeps the record of
// those already seen small.
func (rd *reader) txnidx() (uint64, error) {
	text := rd.row[rd.cols.txnidx]
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil || !allDigits(text) {
		return 0, rd.badField(rd.cols.txnidx, "not a whole number", "number the entries, the same number in each row of an entry")
	}
	return number, nil
}

func (rd *reader) addPosting() error {
	e := &rd.entry
	if len(e.Postings) >= MaxPostings {
		return rd.bad(rd.rowLine(), "", "", fmt.Sprintf("the entry that began at line %d has more than %d postings", e.Line, MaxPostings),
			"split it into several entries, or give each entry a txnidx of its own")
	}
	const agree = "rows with the same txnidx are one entry: make them agree, or give each entry a txnidx of its own"
	if date := rd.row[rd.cols.date]; date != e.Date.String() {
		return rd.badField(rd.cols.date, fmt.Sprintf("differs from %s at line %d", e.Date, e.Line), agree)
	}
	if rd.row[rd.cols.description] != e.Description {
		return rd.badField(rd.cols.description, fmt.Sprintf("differs from %q at line %d", show(e.Description), e.Line), agree)
	}
	amount, err := ParseAmount(rd.row[rd.cols.amount])
	if err != nil {
		return rd.badAmount(err)
	}
	e.Postings = append(e.Postings, Posting{
		Line:      rd.rowLine(),
		Account:   strings.Clone(rd.row[rd.cols.account]),
		Amount:    amount,
		Commodity: strings.Clone(rd.row[rd.cols.commodity]),
	})
	return nil
}

func (rd *reader) badAmount(err error) error {
	switch {
	case rd.row[rd.cols.amount] == "":
		return rd.badField(rd.cols.amount, "the amount is empty", "write it, or let hledger fill it in: hledger print -x -O csv")
	case errors.Is(err, errDigits):
		return rd.badField(rd.cols.amount, fmt.Sprintf("the number has more than %d digits", decimal.MaxPrec),
			"round it in the journal, or split the posting")
	}
	return rd.badField(rd.cols.amount, "not a plain number", "write digits with at most one point, such as -1000.00")
}

// rowLine is the line on which the current row begins.
func (rd *reader) rowLine() int {
	line, _ := rd.csv.FieldPos(0)
	return line
}

func (rd *reader) columnName(i int) string {
	if i < len(rd.header) {
		return show(rd.header[i])
	}
	return ""
}

// badField is a fault of one field of the current row.
func (rd *reader) badField(i int, reason, remedy string) error {
	line, _ := rd.csv.FieldPos(i)
	return rd.bad(line, rd.columnName(i), show(rd.row[i]), reason, remedy)
}

func (rd *reader) bad(line int, column, value, reason, remedy string) error {
	return &SyntaxError{File: rd.file, Line: line, Column: column, Value: value, Reason: reason, Remedy: remedy}
}
