package journal

import (
	"errors"
	"strings"
	"testing"

	"github.com/govalues/decimal"
)

// entry makes an entry of postings written "account amount commodity".
func entry(postings ...string) Entry {
	e := Entry{Line: 10, Index: "1", Date: Date{2025, 1, 31}, Description: "test"}
	for i, text := range postings {
		part := strings.Split(text, " ")
		amount, err := ParseAmount(part[1])
		if err != nil {
			panic(err)
		}
		e.Postings = append(e.Postings, Posting{Line: 10 + i, Account: part[0], Amount: amount, Commodity: part[2]})
	}
	return e
}

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]Entry{
		"two sides":            entry("a 1.10 EUR", "b -1.1 EUR"),
		"three":                entry("a 0.1 EUR", "b 0.2 EUR", "c -0.3 EUR"),
		"exchange":             entry("a 10 EUR", "b -9 USD"),
		"exchange and pair":    entry("a 10 EUR", "b -10 EUR", "c 1 h", "d -1 h"),
		"zero and its pair":    entry("a 0.00 EUR", "b 0 EUR"),
		"one posting of zero":  entry("a 0 EUR"),
		"zeros of two":         entry("a 0 EUR", "b 0 USD"),
		"a zero beside":        entry("a 5 EUR", "b -5 EUR", "c 0.00 USD"),
		"same account twice":   entry("a 5 EUR", "a -5 EUR"),
		"no commodity":         entry("a 5 ", "b -5 "),
		"too large on the way": entry("a 9999999999999999999 EUR", "b 9999999999999999999 EUR", "c -9999999999999999999 EUR", "d -9999999999999999999 EUR"),
		"large and fine":       entry("a 1234567890123456789 EUR", "b 0.1234567890123456789 EUR", "c -1234567890123456789 EUR", "d -0.1234567890123456789 EUR"),
	} {
		if err := Check(e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	with := func(change func(*Entry)) Entry {
		e := entry("a 1 EUR", "b -1 EUR")
		change(&e)
		return e
	}
	for name, tc := range map[string]struct {
		entry  Entry
		rule   string
		line   int
		detail string
	}{
		"nothing":             {entry(), RulePostings, 10, "no posting"},
		"a cent":              {entry("a 1.00 EUR", "b -0.99 EUR"), RuleZeroSum, 10, "the 2 postings sum to 0.01 EUR"},
		"the last digit":      {entry("a 1234567890123456789 EUR", "b -1234567890123456789 EUR", "c -0.0000000000000000001 EUR"), RuleZeroSum, 10, "sum to -0.0000000000000000001 EUR"},
		"too large a sum":     {entry("a 9999999999999999999 EUR", "b 9999999999999999999 EUR"), RuleZeroSum, 10, "19999999999999999998 EUR"},
		"one posting":         {entry("a 1 EUR"), RuleZeroSum, 10, "1 EUR"},
		"excused by a zero":   {entry("a 1 EUR", "b 0 USD"), RuleZeroSum, 10, "1 EUR"},
		"only received":       {entry("a 1 EUR", "b 1 USD"), RuleBothSides, 10, "below zero"},
		"only given":          {entry("a -1 EUR", "b -1 USD", "c 0 h"), RuleBothSides, 10, "above zero"},
		"no account":          {with(func(e *Entry) { e.Postings[1].Account = "" }), RuleAccount, 11, "no name"},
		"blank account":       {with(func(e *Entry) { e.Postings[1].Account = " \t" }), RuleAccount, 11, "no name"},
		"space around":        {with(func(e *Entry) { e.Postings[1].Account = "b " }), RuleAccount, 11, "space around"},
		"long account":        {with(func(e *Entry) { e.Postings[1].Account = strings.Repeat("b", MaxAccount+1) }), RuleAccount, 11, "401 bytes"},
		"control in account":  {with(func(e *Entry) { e.Postings[1].Account = "b\x1b[2J" }), RuleText, 11, `account "b\x1b[2J"`},
		"line in commodity":   {with(func(e *Entry) { e.Postings[0].Commodity = "EU\nR" }), RuleText, 10, `commodity "EU\nR"`},
		"NUL in description":  {with(func(e *Entry) { e.Description = "\x00" }), RuleText, 10, `description "\x00"`},
		"broken UTF-8":        {with(func(e *Entry) { e.Description = "\xff" }), RuleText, 10, `description "\xff"`},
		"next line in a name": {with(func(e *Entry) { e.Postings[0].Account = "a\u0085b" }), RuleText, 10, `account`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Check(tc.entry)
			var rule *RuleError
			if !errors.As(err, &rule) || !errors.Is(err, ErrRule) || errors.Is(err, ErrSyntax) {
				t.Fatalf("error is %v; want a *RuleError", err)
			}
			if rule.Rule != tc.rule || rule.Line != tc.line || !strings.Contains(rule.Detail, tc.detail) || rule.Remedy == "" {
				t.Errorf("error is %+v; want rule %s, line %d, detail %q", *rule, tc.rule, tc.line, tc.detail)
			}
		})
	}
}

func TestRuleErrorText(t *testing.T) {
	t.Parallel()
	const want = "journal: check entry at line 10: rule zero-sum: the 2 postings sum to 0.01 EUR: " +
		"correct an amount or add the missing posting, so that they sum to zero"
	if err := Check(entry("a 1 EUR", "b -0.99 EUR")); err == nil || err.Error() != want {
		t.Errorf("error is %v; want %s", err, want)
	}
}

func TestParseAmount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"5": "5", "-5.00": "-5.00", "0.00": "0.00", "-0.00": "0.00", "007.50": "7.50", "-0.5": "-0.5",
		"4.862000000000":                  "4.862000000000",
		"9999999999999999999":             "9999999999999999999",
		"0.1234567890123456789":           "0.1234567890123456789",
		"12345678.000000000000000":        "12345678",
		"-12345678.120000000000000000000": "-12345678.12",
		"0.00000000000000000000000":       "0",
		"00000000000000000000000000001":   "1",
	} {
		if d, err := ParseAmount(text); err != nil || d.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", "-", "+1", ".5", "5.", "1.2.3", "1e5", "1E5", "NaN", "Infinity", "1,000.00", "1_000", "0x10", "--1", "1-", "١", " 1", "1 ",
		"10000000000000000000", "0.00000000000000000001", "1.0000000000000000001", strings.Repeat("9", 1000), "0." + strings.Repeat("0", 1000) + "1"} {
		if d, err := ParseAmount(text); err == nil {
			t.Errorf("%q: accepted as %s", show(text), d)
		}
	}
}

func TestAddIsExact(t *testing.T) {
	t.Parallel()
	for _, tc := range [][3]string{
		{"0.1", "0.2", "0.3"}, {"1.00", "-1", "0.00"}, {"5", "2.500", "7.500"},
		{"9999999999999999998", "1.000", "9999999999999999999"},
		{"9999999999999999999", "1", ""}, {"1234567890123456789", "0.1", ""}, {"-9999999999999999999", "-0.5", ""},
	} {
		sum, err := Add(decimal.MustParse(tc[0]), decimal.MustParse(tc[1]))
		if (tc[2] == "") != (err != nil) || err == nil && sum.String() != tc[2] {
			t.Errorf("%s + %s = %s, %v; want %q", tc[0], tc[1], sum, err, tc[2])
		}
	}
}

func TestDate(t *testing.T) {
	t.Parallel()
	early, late := Date{2012, 2, 29}, Date{2012, 12, 1}
	if !early.Before(late) || late.Before(early) || early.Before(early) || early.Compare(early) != 0 {
		t.Error("2012-02-29 is before 2012-12-01 and not before itself")
	}
	text, err := early.MarshalText()
	if err != nil || string(text) != "2012-02-29" {
		t.Errorf("text is %s, %v", text, err)
	}
	var back Date
	if err := back.UnmarshalText(text); err != nil || back != early {
		t.Errorf("read back %s, %v", back, err)
	}
	if err := back.UnmarshalText([]byte("2013-02-29")); err == nil || back != early {
		t.Errorf("2013-02-29 accepted or value changed: %s, %v", back, err)
	}
	if err := back.UnmarshalText(nil); err != nil || !back.IsZero() {
		t.Errorf("nothing is the zero date, got %s, %v", back, err)
	}
	for _, text := range []string{"2012-2-03", "2012-02-03 ", "12012-02-03", "2012-02-03T00:00:00Z", "-001-01-01"} {
		if d, err := ParseDate(text); err == nil {
			t.Errorf("%q accepted as %s", text, d)
		}
	}
}
