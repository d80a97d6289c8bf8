package basket_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/examples/checkout/basket"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/order"
)

func TestGenerateHasItsShares(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]map[string]int{
		2000: {"": 1780, checkout.Declined: 100, checkout.OutOfStock: 60, checkout.NoAnswer: 40, checkout.NoCarrier: 20},
		60:   {"": 53, checkout.Declined: 3, checkout.OutOfStock: 2, checkout.NoAnswer: 1, checkout.NoCarrier: 1},
		1:    {"": 1},
	} {
		for seed := range uint64(3) {
			got := map[string]int{}
			for _, p := range basket.Generate(n, seed) {
				if _, err := p.Decide(order.Order{}); err != nil {
					t.Fatal(err)
				}
				got[basket.Expect(order.Placed(p))]++
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d orders of seed %d end as %v, want %v", n, seed, got, want)
			}
		}
	}
}

func TestGenerateIsOfItsSeed(t *testing.T) {
	t.Parallel()
	if !slices.Equal(basket.Generate(50, 7), basket.Generate(50, 7)) {
		t.Error("the same seed gives other orders")
	}
	if slices.Equal(basket.Generate(50, 7), basket.Generate(50, 8)) {
		t.Error("another seed gives the same orders")
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	got := basket.Needs([]order.Place{{SKU: "cup", Quantity: 2}, {SKU: basket.SoldOut, Quantity: 1}, {SKU: "cup", Quantity: 1}, {SKU: "jar", Quantity: 4}})
	if want := map[string]int64{"cup": 3, "jar": 4}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	t.Parallel()
	want := []order.Place{
		{Account: "ann", SKU: "cup", Quantity: 2, Cents: 1790, Card: "visa", Country: "DE"},
		{Account: "bob", SKU: "sold-out", Quantity: 1, Cents: 500, Card: "declined", Country: "AQ"},
	}
	for name, text := range map[string]string{
		"orders.csv":  "sku,account,cents, quantity,country,card\ncup,ann,1790,2,DE,visa\nsold-out,bob,500,1,AQ,declined\n",
		"orders.JSON": `[{"account":"ann","sku":"cup","quantity":2,"cents":1790,"card":"visa","country":"DE"},{"account":"bob","sku":"sold-out","quantity":1,"cents":500,"card":"declined","country":"AQ"}]`,
	} {
		if got, err := basket.Read(file(t, name, text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	const header = "account,sku,quantity,cents,card,country\n"
	for name, c := range map[string]struct {
		file, text, says string
		row              int
	}{
		"kind of file":  {"orders.txt", "", "rename the file", 0},
		"empty":         {"orders.csv", "", "its first line must name", 0},
		"no orders":     {"orders.csv", header, "no order", 0},
		"column":        {"orders.csv", "account,sku\nann,cup\n", "quantity", 0},
		"number":        {"orders.csv", header + "ann,cup,2,1790,visa,DE\nann,cup,two,1790,visa,DE\n", "whole numbers", 2},
		"no account":    {"orders.csv", header + ",cup,2,1790,visa,DE\n", "must not be empty", 1},
		"few fields":    {"orders.csv", header + "ann,cup\n", "wrong number of fields", 1},
		"no array":      {"orders.json", `{"account":"ann"}`, "array", 0},
		"unknown field": {"orders.json", `[{"acount":"ann"}]`, "acount", 0},
		"no price":      {"orders.json", `[{"account":"ann","sku":"cup","quantity":2}]`, "price 0", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := basket.Read(file(t, c.file, c.text))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v", err)
			}
			var row *basket.RowError
			if errors.As(err, &row) != (c.row > 0) || row != nil && row.Row != c.row {
				t.Errorf("the error %v is not about row %d", err, c.row)
			}
		})
	}
	if _, err := basket.Read(filepath.Join(t.TempDir(), "none.csv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
