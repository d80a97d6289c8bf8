package journal

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const header = "txnidx,date,description,account,amount,commodity\n"

// collect reads everything up to the end or the first error.
func collect(r io.Reader) ([]Entry, error) {
	var entries []Entry
	for e, err := range Read(r, "test.csv") {
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func TestReadFormsEntries(t *testing.T) {
	t.Parallel()
	input := "comment,commodity,amount,account,txnidx,description,date\n" +
		"\"two\nlines\",EUR,-5.00,assets:cash,7,\"Tea, \"\"green\"\"\",2025-01-31\n" +
		",EUR,5,expenses:tea,7,\"Tea, \"\"green\"\"\",2025-01-31\n" +
		"\n" +
		"\"\",,0.00,a,3,,2024-02-29\n"
	for name, variant := range map[string]string{
		"LF": input, "CRLF": strings.ReplaceAll(input, "\n", "\r\n"),
		"BOM": "\ufeff" + input, "no newline at the end": strings.TrimSuffix(input, "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries, err := collect(iotest.OneByteReader(strings.NewReader(variant)))
			if err != nil || len(entries) != 2 {
				t.Fatalf("%d entries, error %v; want 2 entries", len(entries), err)
			}
			tea, zero := entries[0], entries[1]
			if tea.Line != 2 || tea.Index != "7" || tea.Description != `Tea, "green"` || tea.Date.String() != "2025-01-31" {
				t.Errorf("first entry is %+v", tea)
			}
			if len(tea.Postings) != 2 || tea.Postings[0].Line != 2 || tea.Postings[1].Line != 4 {
				t.Fatalf("postings are %+v; want lines 2 and 4", tea.Postings)
			}
			if p := tea.Postings[0]; p.Account != "assets:cash" || p.Amount.String() != "-5.00" || p.Commodity != "EUR" {
				t.Errorf("first posting is %+v", p)
			}
			if zero.Line != 6 || len(zero.Postings) != 1 || zero.Postings[0].Commodity != "" || zero.Date.String() != "2024-02-29" {
				t.Errorf("second entry is %+v", zero)
			}
		})
	}
}

func TestReadHeaderOnlyIsAnEmptyJournal(t *testing.T) {
	t.Parallel()
	for _, input := range []string{header, strings.TrimSuffix(header, "\n"), "\r\n" + header + "\r\n"} {
		if entries, err := collect(strings.NewReader(input)); err != nil || len(entries) != 0 {
			t.Errorf("%q: %d entries, error %v", input, len(entries), err)
		}
	}
}

// good is an entry before the bad row: it is delivered unless the bad row may
// belong to it.
const good = "1,2025-01-01,ok,a,1,EUR\n1,2025-01-01,ok,b,-1,EUR\n"

type badInput struct {
	name, input   string
	entries, line int
	column, value string
	reason        string
	remedy        string
}

func row(date, amount string) string {
	return header + good + "2," + date + ",x,a," + amount + ",EUR\n"
}

var badInputs = []badInput{
	{"empty file", "", 0, 1, "", "", "the file is empty", "export"},
	{"only a mark", "\ufeff", 0, 1, "", "", "the file is empty", "export"},
	{"blank lines", "\n\r\n\n", 0, 1, "", "", "the file is empty", "export"},
	{"UTF-16", "\xff\xfet\x00x\x00", 0, 1, "", "", "UTF-16", "UTF-8"},
	{"missing column", "txnidx,date,description,account,commodity\n", 0, 1, "amount", "", "no such column", "hledger print -O csv"},
	{"doubled column", "date," + header, 0, 1, "date", "", "twice", "rename"},
	{"semicolons", strings.ReplaceAll(header+good, ",", ";"), 0, 1, "", "", "semicolons", "commas"},
	{"quoted semicolons", "\"txnidx\";\"date, day\";\"account\"\n", 0, 1, "", "", "semicolons", "commas"},
	{"tabs", strings.ReplaceAll(header+good, ",", "\t"), 0, 1, "", "", "tabs", "commas"},
	{"NUL in the header", "a\x00," + header, 0, 1, "", `a\x00`, "NUL", "damaged"},
	{"exponent", row("2025-01-02", "1e5"), 1, 4, "amount", "1e5", "not a plain number", "digits"},
	{"not a number", row("2025-01-02", "NaN"), 1, 4, "amount", "NaN", "not a plain number", "digits"},
	{"infinite", row("2025-01-02", "-Inf"), 1, 4, "amount", "-Inf", "not a plain number", "digits"},
	{"thousands", row("2025-01-02", `"1,000.00"`), 1, 4, "amount", "1,000.00", "not a plain number", "digits"},
	{"decimal comma", row("2025-01-02", `"1000,00"`), 1, 4, "amount", "1000,00", "not a plain number", "digits"},
	{"space in the number", row("2025-01-02", " 1"), 1, 4, "amount", " 1", "not a plain number", "digits"},
	{"empty amount", row("2025-01-02", ""), 1, 4, "amount", "", "empty", "hledger print -x"},
	{"too many digits", row("2025-01-02", "12345678901234567890"), 1, 4, "amount", "12345678901234567890", "more than 19 digits", "split"},
	{"too fine", row("2025-01-02", "0.12345678901234567891"), 1, 4, "amount", "0.12345678901234567891", "more than 19 digits", "round"},
	{"month 13", row("2012-13-01", "1"), 1, 4, "date", "2012-13-01", "not a day", "YYYY-MM-DD"},
	{"February 30", row("2012-02-30", "1"), 1, 4, "date", "2012-02-30", "not a day", "YYYY-MM-DD"},
	{"slashes", row("2012/02/03", "1"), 1, 4, "date", "2012/02/03", "not a day", "YYYY-MM-DD"},
	{"empty date", row("", "1"), 1, 4, "date", "", "not a day", "YYYY-MM-DD"},
	{"year 0", row("0000-01-01", "1"), 1, 4, "date", "0000-01-01", "not a day", "YYYY-MM-DD"},
	{"bad posting of the same entry", header + good + "1,2025-01-01,ok,c,x,EUR\n", 0, 4, "amount", "x", "not a plain number", "digits"},
	{"another date", header + good + "1,2025-01-02,ok,c,0,EUR\n", 0, 4, "date", "2025-01-02", "differs from 2025-01-01 at line 2", "txnidx"},
	{"another description", header + good + "1,2025-01-01,no,c,0,EUR\n", 0, 4, "description", "no", `differs from "ok" at line 2`, "txnidx"},
	{"txnidx empty", header + good + ",2025-01-01,ok,c,0,EUR\n", 0, 4, "txnidx", "", "not a whole number", "number the entries"},
	{"txnidx signed", header + good + "+2,2025-01-01,ok,c,0,EUR\n", 0, 4, "txnidx", "+2", "not a whole number", "number the entries"},
	{"txnidx comes back", header + good + "2,2025-01-01,x,a,0,EUR\n1,2025-01-01,ok,a,0,EUR\n", 2, 5, "txnidx", "1", "began at line 2", "together"},
	{"open quote", header + good + "2,2025-01-02,\"x\ny,a,1,EUR\n", 0, 4, "description", `x\ny,a,1,EUR\n`, "ends inside a quoted field", "cut off"},
	{"cut in a quote of the last field", header + good + "2,2025-01-02,x,a,1,\"EU", 0, 4, "commodity", "EU", "ends inside a quoted field", "cut off"},
	{"cut in the last row", header + good + "2,2025-01-02,x", 0, 4, "", "", "3 fields and the header 6", "cut off in its last row"},
	{"row too short", header + "2,2025-01-02,x\n" + good, 0, 2, "", "", "3 fields and the header 6", "as many fields"},
	{"row too long", header + good + "2,2025-01-02,x,a,1,EUR,\n", 0, 4, "", "", "7 fields and the header 6", "as many fields"},
	{"bare quote", header + good + "2,2025-01-02,x \"y\",a,1,EUR\n", 0, 4, "", "", "a quote stands in the wrong place", "double the quotes"},
	{"quote in a quoted field", header + good + "2,2025-01-02,\"x\"y\",a,1,EUR\n3,2025-01-02,x,a,1,EUR\n", 0, 4, "", "", "a quote stands in the wrong place", "double the quotes"},
	{"NUL", header + good + "2,2025-01-02,\"x\n\x00\",a,1,EUR\n", 0, 4, "description", `x\n\x00`, "NUL", "damaged"},
	{"invalid UTF-8", header + good + "2,2025-01-02,x,caf\xe9,1,EUR\n", 0, 4, "account", `caf\xe9`, "not UTF-8", "UTF-8"},
	{"a long field", header + good + "2,2025-01-02," + strings.Repeat("y", 1<<20) + ",a,1,EUR\n", 0, 4, "description", strings.Repeat("y", 40) + "…", "longer than 64 KiB", "quote"},
	{"a long quoted field", header + good + "2,2025-01-02,\"" + strings.Repeat("\n", 1<<20) + "\",a,1,EUR\n", 0, 4, "description", strings.Repeat(`\n`, 40) + "…", "longer than 64 KiB", "quote"},
	{"a long row", header + good + strings.Repeat(",", 1<<20), 0, 4, "", "", "longer than 256 KiB", "quote"},
	{"a quote before a long field", header + good + "2,2025-01-02,x \"y\",a,1,EUR\n3,2025-01-02," + strings.Repeat("y", MaxField+1), 0, 4, "", "", "a quote stands in the wrong place", "double the quotes"},
	{"bad row after lines in quotes", header + "2,2025-01-02,\"a\nb\nc\",a,1,EUR\n3,2025-01-02,x,\"y\n\",z,EUR\n", 1, 6, "amount", "z", "not a plain number", "digits"},
	{"many postings", header + strings.Repeat("1,2025-01-01,ok,a,0,EUR\n", MaxPostings+1), 0, MaxPostings + 2, "", "", "more than 1000 postings", "split"},
}

func TestReadRefusesBadInput(t *testing.T) {
	t.Parallel()
	for _, bad := range badInputs {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			entries, err := collect(strings.NewReader(bad.input))
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || !errors.Is(err, ErrSyntax) {
				t.Fatalf("error is %v; want a *SyntaxError", err)
			}
			if len(entries) != bad.entries {
				t.Errorf("%d entries before the error; want %d", len(entries), bad.entries)
			}
			if syntax.File != "test.csv" || syntax.Line != bad.line || syntax.Column != bad.column || syntax.Value != bad.value {
				t.Errorf("error is %+v; want line %d, column %q, value %q", *syntax, bad.line, bad.column, bad.value)
			}
			if !strings.Contains(syntax.Reason, bad.reason) || !strings.Contains(syntax.Remedy, bad.remedy) {
				t.Errorf("%v: want reason %q and remedy %q", err, bad.reason, bad.remedy)
			}
			if text := err.Error(); len(text) > 500 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0xfffd }) {
				t.Errorf("%q is not fit for a terminal", text)
			}
		})
	}
}

func TestSyntaxErrorText(t *testing.T) {
	t.Parallel()
	_, err := collect(strings.NewReader(row("2012-02-30", "1")))
	const want = `journal: read test.csv: line 4, column "date", value "2012-02-30": not a day of the calendar: write it YYYY-MM-DD, such as 2012-02-29`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v; want %s", err, want)
	}
}

// endless never ends its field. A reader without limits would take it all.
type endless struct{ given int }

func (e *endless) Read(p []byte) (int, error) {
	if e.given > 16<<20 {
		return 0, errors.New("asked for more than 16 MiB of one field")
	}
	for i := range p {
		p[i] = 'x'
	}
	e.given += len(p)
	return len(p), nil
}

func TestReadStopsAtTheLimit(t *testing.T) {
	t.Parallel()
	source := &endless{}
	_, err := collect(io.MultiReader(strings.NewReader(header+"1,2025-01-01,\""), source))
	if !errors.Is(err, ErrSyntax) {
		t.Fatalf("error is %v; want ErrSyntax", err)
	}
	if source.given > 2*MaxField {
		t.Errorf("read %d bytes of a field that may have %d", source.given, MaxField)
	}
}

func TestReadReportsFailedReads(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	for _, start := range []string{"", header, header + good, header + good + "2,2025-", header + good + "2,2025-01-01,\"", header + strings.Repeat("\n", 8<<10) + good} {
		for _, cause := range []error{broken, io.ErrUnexpectedEOF, errors.Join(broken, io.EOF)} {
			entries, err := collect(io.MultiReader(strings.NewReader(start), iotest.ErrReader(cause)))
			if !errors.Is(err, cause) || errors.Is(err, ErrSyntax) {
				t.Errorf("after %q: error is %v; want %v", start, err, cause)
			}
			if len(entries) != 0 {
				t.Errorf("after %q: %d entries, though the file may go on", start, len(entries))
			}
		}
	}
}

// TestReadTellsStrayQuotesFromCutFiles has the end of the file arrive together
// with the row of a stray quote, while more rows follow it.
func TestReadTellsStrayQuotesFromCutFiles(t *testing.T) {
	t.Parallel()
	aligned := header + strings.Repeat("\n", 4096-len(header)) // the next read is the last
	input := aligned + "2,2025-01-02,\"x\"y\",a,1,EUR\n3,2025-01-02,x,a,1,EUR\n"
	_, err := collect(iotest.DataErrReader(strings.NewReader(input)))
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || !strings.Contains(syntax.Reason, "wrong place") || syntax.Line != 4096-len(header)+2 {
		t.Errorf("error is %v; want a quote in the wrong place at line %d", err, 4096-len(header)+2)
	}
}

func TestReadStopsEarly(t *testing.T) {
	t.Parallel()
	count := 0
	for range Read(strings.NewReader(row("2025-01-02", "1")+"3,2025-01-02,x,a,bad,EUR\n"), "test.csv") {
		count++
		break
	}
	if count != 1 {
		t.Errorf("%d entries; want to stop after 1", count)
	}
}
