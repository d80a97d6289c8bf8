package journal

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The vectors were computed by another program from the description of the
// format. Keys are stored: a change here makes every imported entry new.
func TestKeyVectors(t *testing.T) {
	t.Parallel()
	espresso := entry("expenses:coffee 2.80 EUR", "assets:cash -2.8 EUR")
	espresso.Date, espresso.Description = Date{2025, 1, 11}, "Café | Espresso"
	bare := Entry{Date: Date{2012, 2, 29}, Postings: []Posting{{Account: "a"}}}

	for _, tc := range []struct {
		entry     Entry
		canonical string
		keys      [2]string
	}{
		{
			espresso,
			"23:daybook-journal-entry-110:2025-01-1116:Café | Espresso1:215:expenses:coffee3:2.83:EUR11:assets:cash4:-2.83:EUR",
			[2]string{
				"2aa29af9c2f849664b88a1741c48c15eef278f6c26421016f303db8ceff3be3c",
				"4c558b0aeb1788cef286cfe6f83d9c22965d1eadd5e611b4c2f91d240b818ca3",
			},
		},
		{
			bare,
			"23:daybook-journal-entry-110:2012-02-290:1:11:a1:00:",
			[2]string{
				"c7a06ba3fd764b00aeb549dcab1243933a48ed3518f4cc5d8b48bb9abc40dfe5",
				"d22dfb99c7f28e0941ee8744cf2e47b8e54051c4d523da0cbca34464de313bbd",
			},
		},
	} {
		if got := string(Canonical(tc.entry)); got != tc.canonical {
			t.Errorf("canonical bytes are\n%s; want\n%s", got, tc.canonical)
		}
		keyer := NewKeyer()
		for i, want := range tc.keys {
			if got := keyer.Key(tc.entry); got != want {
				t.Errorf("key %d is %s; want %s", i+1, got, want)
			}
		}
	}
}

func TestKeyIgnoresSpelling(t *testing.T) {
	t.Parallel()
	e := entry("a 5.00 EUR", "b -5 EUR")
	want := NewKeyer().Key(e)
	other := entry("a 005 EUR", "b -5.0000 EUR")
	other.Line, other.Index, other.Postings[0].Line = 77, "99", 78
	if got := NewKeyer().Key(other); got != want {
		t.Errorf("line, txnidx or zeros behind the point changed the key: %s, %s", got, want)
	}
}

func TestKeyTellsContentsApart(t *testing.T) {
	t.Parallel()
	entries := map[string]Entry{
		"base":                entry("a 5 EUR", "b -5 EUR"),
		"other order":         entry("b -5 EUR", "a 5 EUR"),
		"other amount":        entry("a 50 EUR", "b -50 EUR"),
		"other account":       entry("a 5 EUR", "c -5 EUR"),
		"other commodity":     entry("a 5 EUR", "b -5 USD"),
		"one more":            entry("a 5 EUR", "b -5 EUR", "b 0 EUR"),
		"names run together":  entry("a5 5 EUR", "b -5 EUR"),
		"commodity and name":  entry("a 5 EURb", " -5 EUR"),
		"a length as content": entry("a1:5 5 EUR", "b -5 EUR"),
	}
	dated := entry("a 5 EUR", "b -5 EUR")
	dated.Date.Day = 30
	entries["other date"] = dated
	described := entry("a 5 EUR", "b -5 EUR")
	described.Description = "test1"
	entries["other description"] = described

	seen := make(map[string]string)
	for name, e := range entries {
		key := NewKeyer().Key(e)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the same key", name, other)
		}
		seen[key] = name
	}
}

func keysOf(t *testing.T, input string) []string {
	t.Helper()
	entries, err := collect(strings.NewReader(input))
	if err != nil {
		t.Fatal(err)
	}
	keyer, keys := NewKeyer(), []string(nil)
	for _, e := range entries {
		keys = append(keys, keyer.Key(e))
	}
	return keys
}

// TestKeysOfAFile writes the journal again in other ways that say the same.
func TestKeysOfAFile(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "journal.csv"))
	if err != nil {
		t.Fatal(err)
	}
	input := string(data)
	want := keysOf(t, input)
	if len(want) != 48 {
		t.Fatalf("%d keys; want 48", len(want))
	}
	if want[0] != "918d58abac19df2d67147488bfc0e5ebe7d5c13bd4d6cd588c9d1b40ca4983ff" {
		t.Errorf("first key is %s", want[0])
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(want))); len(distinct) != len(want) {
		t.Errorf("%d distinct keys of %d", len(distinct), len(want))
	}

	rows, err := csv.NewReader(strings.NewReader(input)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var mirrored strings.Builder
	w := csv.NewWriter(&mirrored)
	for _, row := range rows {
		slices.Reverse(row)
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	for name, variant := range map[string]string{
		"again":         input,
		"CRLF":          strings.ReplaceAll(input, "\n", "\r\n"),
		"BOM":           "\ufeff" + input,
		"columns":       mirrored.String(),
		"other txnidx":  strings.ReplaceAll(input, "\n\"", "\n\"9"),
		"zeros":         strings.ReplaceAll(input, `.00","EUR"`, `.0000","EUR"`),
		"extra entries": input + "\"1000\",\"2026-01-01\",\"\",\"\",\"\",\"later\",\"\",\"a\",\"0\",\"\",\"\",\"\",\"\",\"\"\n",
	} {
		if got := keysOf(t, variant); !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s: the keys changed", name)
		}
	}
}
