package testscale_test

import (
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/testscale"
)

func TestScale(t *testing.T) {
	for _, c := range []struct {
		scale, full string
		n           int
		d           time.Duration
	}{
		{"", "", 1000, 3 * time.Second},
		{"", "1", 10_000, 30 * time.Second},
		{"0.5", "1", 5000, 15 * time.Second}, // the number wins
		{"2", "", 20_000, time.Minute},
		{"0.00001", "", 1, 100 * time.Millisecond},
	} {
		t.Setenv("DAYBOOK_TEST_SCALE", c.scale)
		t.Setenv("FULL", c.full)
		if got := testscale.N(10_000); got != c.n {
			t.Errorf("scale %q, full %q: N is %d, want %d", c.scale, c.full, got, c.n)
		}
		if got := testscale.Duration(30 * time.Second); got != c.d {
			t.Errorf("scale %q, full %q: Duration is %s, want %s", c.scale, c.full, got, c.d)
		}
	}
	t.Setenv("DAYBOOK_TEST_SCALE", "0.1")
	if n, d := testscale.N(0), testscale.Duration(time.Millisecond); n != 0 || d != time.Millisecond {
		t.Errorf("small values grow: %d, %s", n, d)
	}
}

func TestBadScalePanics(t *testing.T) {
	for _, text := range []string{"full", "0", "-1", "NaN", "Inf"} {
		t.Setenv("DAYBOOK_TEST_SCALE", text)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is accepted", text)
				}
			}()
			testscale.Factor()
		}()
	}
}
