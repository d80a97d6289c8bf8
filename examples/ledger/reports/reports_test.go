package reports_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/examples/ledger/reports"
	"github.com/daybook-go/daybook/projection"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	want := []reports.Line{
		{Account: "Assets"},
		{Account: "Assets:US", Commodity: "EUR"},
		{Account: "Assets:US", Commodity: "USD"},
		{Account: "Assets:US:Bank"},
		{Account: "Assets:US Bank"}, // not below Assets:US
		{Account: "assets:cash"},
		{Account: "Liabilities:Card"},
		{Account: "Equity"},
		{Account: "Income:Salary"},
		{Account: "Revenues"},
		{Account: "Expenses:Food"},
		{Account: "Aside"},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, reports.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("in order they are\n%v\nwant\n%v", got, want)
	}
}

func TestFindEntry(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	if err := projection.Install(t.Context(), pool, reports.All()...); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"abcd" + strings.Repeat("0", 60), "abce" + strings.Repeat("f", 60), strings.Repeat("f", 64)} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO readmodels.entries VALUES ($1, '2025-01-01', '', 2, '', '')`, key); err != nil {
			t.Fatal(err)
		}
	}
	for beginning, want := range map[string]error{
		"abcd": nil, "abce": nil, "ffff": nil, strings.Repeat("f", 64): nil,
		"abc": reports.ErrManyEntries, "abcf": reports.ErrNoEntry, "0000": reports.ErrNoEntry,
	} {
		key, err := reports.FindEntry(t.Context(), pool, beginning)
		if !errors.Is(err, want) || err == nil && !strings.HasPrefix(key, beginning) {
			t.Errorf("%s: %s, %v; want %v", beginning, key, err, want)
		}
	}
}
