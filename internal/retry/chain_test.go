package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/daybook-go/daybook/internal/retry"
)

// broken is an error whose methods cannot be called.
type broken struct{ text string }

func (b *broken) Error() string    { return b.text }
func (b *broken) Unwrap() error    { return errors.New(b.text) }
func (b *broken) SQLState() string { return b.text }

// loop wraps itself.
type loop struct{}

func (loop) Error() string { return "loop" }
func (l loop) Unwrap() error {
	return fmt.Errorf("around: %w", l)
}

// holes wraps nothing beside something.
type holes struct{}

func (holes) Error() string   { return "holes" }
func (holes) Unwrap() []error { return []error{nil, io.EOF, nil} }

type nothing struct{}

func (nothing) Error() string { return "nothing" }
func (nothing) Unwrap() error { return nil }

func TestChain(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"nil":     {nil, nil},
		"one":     {cause, []string{"cause"}},
		"wrapped": {fmt.Errorf("b: %w", fmt.Errorf("a: %w", cause)), []string{"b: a: cause", "a: cause", "cause"}},
		"joined": {fmt.Errorf("all: %w", errors.Join(fmt.Errorf("a: %w", cause), context.Canceled)),
			[]string{"all: a: cause\ncontext canceled", "a: cause\ncontext canceled", "a: cause", "cause", "context canceled"}},
		"two verbs":     {fmt.Errorf("%w: %w", io.EOF, cause), []string{"EOF: cause", "EOF", "cause"}},
		"same text":     {fmt.Errorf("%w", fmt.Errorf("%w", cause)), []string{"cause"}},
		"same again":    {errors.Join(errors.Join(cause, cause), cause), []string{"cause\ncause\ncause", "cause\ncause", "cause"}},
		"holes":         {holes{}, []string{"holes", "EOF"}},
		"wraps nothing": {nothing{}, []string{"nothing"}},
		"empty":         {errors.New(""), []string{""}},
		"nil pointer": {fmt.Errorf("%w", (*broken)(nil)),
			[]string{"<nil>", "(a *retry_test.broken that cannot say what it is)"}},
		"not UTF-8": {errors.New("a\xff\xfe\x00b"), []string{"a\ufffd\ufffdb"}},
	} {
		got := retry.Chain(c.err)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestChainIsBounded(t *testing.T) {
	t.Parallel()
	long := errors.New("innermost")
	for i := range 50 {
		long = fmt.Errorf("%d: %w", i, long)
	}
	got := retry.Chain(long)
	if len(got) != 20 || !strings.HasPrefix(got[0], "49: 48:") || !strings.HasPrefix(got[18], "31: ") || got[19] != "innermost" {
		t.Errorf("%d texts: %q … %q", len(got), got[0], got[len(got)-1])
	}
	rows := make([]error, 18)
	for i := range rows {
		rows[i] = fmt.Errorf("row %d", i)
	}
	got = retry.Chain(errors.Join(append(rows, errors.New("the 20th"), errors.New("row 17"))...))
	if len(got) != 20 || got[18] != "row 17" || got[19] != "the 20th" {
		t.Errorf("%d texts, which end with %q", len(got), got[len(got)-2:])
	}
	wide := make([]error, 100_000)
	for i := range wide {
		wide[i] = fmt.Errorf("row %d", i)
	}
	for name, err := range map[string]error{
		"loop":   loop{},
		"wide":   errors.Join(wide...),
		"text":   fmt.Errorf("x: %w", errors.New(strings.Repeat("é", 1<<20))),
		"odd":    errors.New("a" + strings.Repeat("é", 1000)),
		"zeros":  errors.New(strings.Repeat("\x00", 1000)),
		"broken": errors.New(strings.Repeat("\xff\x00", 10_000)),
		"four":   errors.New(strings.Repeat("𝄞", 999)),
		"exact":  errors.New(strings.Repeat("x", 1000)),
		"over":   errors.New(strings.Repeat("x", 1001)),
	} {
		texts := retry.Chain(err)
		if len(texts) == 0 || len(texts) > 20 {
			t.Errorf("%s: %d texts", name, len(texts))
		}
		for i, text := range texts {
			if len(text) > 1000 || !utf8.ValidString(text) || strings.ContainsRune(text, 0) || i > 0 && texts[i-1] == text {
				t.Errorf("%s: text %d of %d bytes: %.60q", name, i, len(text), text)
			}
		}
	}
	if got := retry.Chain(errors.New(strings.Repeat("x", 1000)))[0]; got != strings.Repeat("x", 1000) {
		t.Errorf("a text of the greatest length was cut: %d", len(got))
	}
	if got := retry.Chain(errors.New(strings.Repeat("x", 1001)))[0]; got != strings.Repeat("x", 997)+"…" {
		t.Errorf("a longer text: %d bytes, ends with %q", len(got), got[len(got)-4:])
	}
}

func FuzzChain(f *testing.F) {
	f.Add("a\x00b", 3)
	f.Add(strings.Repeat("\xf0\x9d\x84", 400), 30)
	f.Add(`row 1: "x`, 0)
	f.Fuzz(func(t *testing.T, text string, depth int) {
		err := errors.New(text)
		for i := range depth % 64 {
			if err = fmt.Errorf("%s: %w", text, err); i%7 == 0 {
				err = errors.Join(err, errors.New(text))
			}
		}
		texts := retry.Chain(err)
		if len(texts) == 0 || len(texts) > 20 {
			t.Fatalf("%d texts", len(texts))
		}
		for i, s := range texts {
			if len(s) > 1000 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) || i > 0 && texts[i-1] == s {
				t.Fatalf("text %d: %q", i, s)
			}
		}
		if a, b := retry.Fingerprint("h", 0, err), retry.Fingerprint("h", 0, err); a != b || len(a) != 16 {
			t.Fatalf("%q and %q", a, b)
		}
	})
}
