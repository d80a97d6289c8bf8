package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzRead gives Read any bytes: it ends, it never panics, an error says where
// and what to do, and an entry holds text only.
func FuzzRead(f *testing.F) {
	for _, bad := range badInputs {
		if len(bad.input) < 4096 {
			f.Add([]byte(bad.input))
		}
	}
	data, err := os.ReadFile(filepath.Join("..", "testdata", "journal.csv"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:bytes.LastIndexByte(data[:3000], '\n')+1])
	f.Add([]byte("\ufeff" + strings.ReplaceAll(header+good, "\n", "\r\n")))
	f.Fuzz(func(t *testing.T, input []byte) {
		postings, failed := 0, false
		keyer, keys := NewKeyer(), make(map[string]bool)
		lines := bytes.Count(input, []byte("\n")) + 1
		line := 1
		for e, err := range Read(bytes.NewReader(input), "fuzz.csv") {
			if failed {
				t.Fatal("something came after an error")
			}
			if err != nil {
				failed = true
				checkSyntaxError(t, err, lines)
				continue
			}
			if e.Line <= line || len(e.Postings) == 0 || len(e.Postings) > MaxPostings {
				t.Fatalf("entry at line %d behind line %d has %d postings", e.Line, line, len(e.Postings))
			}
			checkText := func(s string) {
				if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 || len(s) > MaxField {
					t.Fatalf("entry at line %d holds %q", e.Line, s)
				}
			}
			checkText(e.Description)
			for _, p := range e.Postings {
				if p.Line <= line {
					t.Fatalf("posting at line %d behind line %d", p.Line, line)
				}
				line = p.Line
				checkText(p.Account)
				checkText(p.Commodity)
			}
			if d, err := ParseDate(e.Date.String()); err != nil || d != e.Date {
				t.Fatalf("date %v is no date", e.Date)
			}
			postings += len(e.Postings)
			key := keyer.Key(e)
			if keys[key] {
				t.Fatalf("entry at line %d has the key of another", e.Line)
			}
			keys[key] = true
			if err := Check(e); err != nil && !errors.Is(err, ErrRule) {
				t.Fatalf("check: %v", err)
			}
		}
		if postings > lines {
			t.Fatalf("%d postings in %d lines", postings, lines)
		}
	})
}

func checkSyntaxError(t *testing.T, err error, lines int) {
	t.Helper()
	var syntax *SyntaxError
	if !errors.As(err, &syntax) {
		t.Fatalf("error is %v; want a *SyntaxError", err)
	}
	if syntax.Line < 1 || syntax.Line > lines || syntax.File == "" || syntax.Reason == "" || syntax.Remedy == "" {
		t.Fatalf("error is %+v in %d lines", *syntax, lines)
	}
	if text := err.Error(); !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		t.Fatalf("error %q is not fit for a terminal", text)
	}
}

// FuzzParseAmount holds the amount against its canonical text.
func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"0", "-0.00", "5.00", "9999999999999999999", "0.1234567890123456789", "12345678.000000000000000", "1e5", "NaN", "1,000.00", ".5", "00.10"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseAmount(s)
		if err != nil {
			return
		}
		again, err := ParseAmount(CanonicalAmount(d))
		if err != nil || again.Cmp(d) != 0 {
			t.Fatalf("%q: canonical %q is %s, %v", s, CanonicalAmount(d), again, err)
		}
		if want := plain(s); CanonicalAmount(d) != want {
			t.Fatalf("%q: canonical %q; want %q", s, CanonicalAmount(d), want)
		}
	})
}

// plain is the canonical text by editing text alone.
func plain(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	whole, fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if whole == "" {
		whole = "0"
	}
	if fraction != "" {
		return sign + whole + "." + fraction
	}
	if whole == "0" {
		return "0"
	}
	return sign + whole
}
