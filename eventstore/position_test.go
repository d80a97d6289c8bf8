package eventstore_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

func TestPositionOrder(t *testing.T) {
	t.Parallel()
	ordered := []eventstore.Position{{}, eventstore.PositionAt(1), eventstore.PositionAt(2), eventstore.PositionAt(math.MaxInt64)}
	for i, p := range ordered {
		for k, q := range ordered {
			want := 0
			switch {
			case i < k:
				want = -1
			case i > k:
				want = 1
			}
			if got := p.Compare(q); got != want {
				t.Errorf("%s.Compare(%s) = %d, want %d", p, q, got, want)
			}
			if p.Before(q) != (i < k) || p.After(q) != (i > k) || (p == q) != (i == k) {
				t.Errorf("Before, After and == of %s and %s disagree with their order", p, q)
			}
		}
		if p.IsZero() != (i == 0) {
			t.Errorf("IsZero of %s is %v", p, p.IsZero())
		}
	}
}

func TestPositionText(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{0, 1, 10, math.MaxInt64} {
		p := eventstore.PositionAt(n)
		got, err := eventstore.ParsePosition(p.String())
		if err != nil || got != p || got.Ordinal() != n {
			t.Errorf("ParsePosition(%q) = %v, %v", p.String(), got, err)
		}
		text, err := json.Marshal(p)
		var back eventstore.Position
		if err != nil || json.Unmarshal(text, &back) != nil || back != p {
			t.Errorf("%s through JSON: %s, %v, back %s", p, text, err, back)
		}
	}
	for _, text := range []string{"", " 1", "1 ", "+1", "-1", "-0", "01", "1.0", "0x1", "1_000", "9223372036854775808", "१", "1\x00"} {
		_, err := eventstore.ParsePosition(text)
		wantInvalid(t, err, "position")
	}
	kept := eventstore.PositionAt(5)
	if err := kept.UnmarshalText([]byte("five")); err == nil || kept != eventstore.PositionAt(5) {
		t.Errorf("a bad text must leave the position alone: %v, %s", err, kept)
	}
}

func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"0", "1", "9223372036854775807", "-1", "007", "", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := eventstore.ParsePosition(text)
		if err != nil {
			if !errors.Is(err, eventstore.ErrInvalid) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if p.String() != text || p.Ordinal() < 0 {
			t.Fatalf("%q became %s", text, p)
		}
	})
}
