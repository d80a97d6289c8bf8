package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-go/daybook/examples/checkout/audit"
	"github.com/daybook-go/daybook/examples/checkout/basket"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/saga"
)

// outcomes are the ways in which orders end, in the order in which they are printed.
var outcomes = []struct{ why, text string }{
	{"", "confirmed"},
	{checkout.OutOfStock, "cancelled: " + checkout.OutOfStock},
	{checkout.Declined, "cancelled: " + checkout.Declined},
	{checkout.NoAnswer, "cancelled: " + checkout.NoAnswer},
	{checkout.NoCarrier, "cancelled: " + checkout.NoCarrier},
	{checkout.NotPaid, "cancelled: " + checkout.NotPaid},
}

// report prints how the orders of this run ended and that everything of all runs adds up, or returns what does not; then it
// explains an order that was cancelled, and draws the saga.
func (r *running) report(ctx context.Context, books *audit.Books) error {
	bookings, err := r.provider.Bookings(ctx)
	if err != nil {
		return err
	}
	prefix := r.prefix()
	stuck, err := r.outcomes(ctx, books)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "\nall runs, %s so far: %s\n\n", grouped(r.number), count(len(books.Orders), "order"))
	printTotals(r.out, books, bookings)
	if stuck > 0 { // since all had ended
		return fmt.Errorf("%s got stuck", count(stuck, "order"))
	}
	if faults := append(books.Faults(bookings), books.Surprises(prefix)...); len(faults) > 0 {
		return wrong(faults)
	}
	fmt.Fprintf(r.out, "audit  %s, %s of items, %s: nothing is missing, nothing is there twice\n",
		count(len(books.Orders), "order"), count(len(books.Items), "kind"), count(len(bookings), "charge"))
	if err := r.explain(ctx, books, prefix); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "\n%s\n\n%s\n", aboutDiagram, strings.TrimSpace(checkout.Definition.Diagram()))
	return nil
}

const aboutDiagram = "the saga that every order went through, in the language of Mermaid (https://mermaid.live draws it, and so does GitHub):"

// prefix is what the ids of this run's orders begin with, which are the keys of their sagas too.
func (r *running) prefix() string { return fmt.Sprintf("%d-", r.number) }

// outcomes prints how many orders of this run ended in which way, and how many are stuck, which it returns.
func (r *running) outcomes(ctx context.Context, books *audit.Books) (int, error) {
	stuck, err := r.stuck(ctx, books)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(r.out, "run %d: %s\n\n", r.number, count(len(r.places), "order"))
	printOutcomes(r.out, books.Outcomes(r.prefix()), stuck)
	return stuck.Orders, nil
}

// stuck are the orders of this run whose sagas do not go on by themselves.
func (r *running) stuck(ctx context.Context, books *audit.Books) (sum audit.Outcome, err error) {
	f := saga.Filter{Saga: checkout.Definition.Name(), Stuck: true}
	for {
		page, err := saga.List(ctx, r.pool, f)
		if err != nil {
			return sum, err
		}
		for _, s := range page.Sagas {
			if !strings.HasPrefix(s.Key, r.prefix()) {
				continue
			}
			o := books.Orders[s.Key]
			sum.Orders++
			sum.Items += int(o.Quantity)
			sum.Cents += o.Cents
		}
		if f.After = page.Next; f.After == "" {
			return sum, nil
		}
	}
}

func printOutcomes(out io.Writer, sums map[string]audit.Outcome, stuck audit.Outcome) {
	const line = "%-38s %8s %8s %14s\n"
	fmt.Fprintf(out, line, "outcome", "orders", "items", "money")
	for _, o := range outcomes {
		if sum := sums[o.why]; sum.Orders > 0 {
			fmt.Fprintf(out, line, o.text, grouped(int64(sum.Orders)), grouped(int64(sum.Items)), money(sum.Cents))
		}
	}
	fmt.Fprintf(out, line, "stuck", grouped(int64(stuck.Orders)), grouped(int64(stuck.Items)), money(stuck.Cents))
}

func printTotals(out io.Writer, books *audit.Books, bookings []provider.Booking) {
	t := books.Totals()
	var held int64
	for _, b := range bookings {
		held += b.Cents - b.Refunded
	}
	fmt.Fprintf(out, "stock  %s received = %s available + %s reserved + %s shipped\n",
		grouped(t.Received), grouped(t.Available), grouped(t.Reserved), grouped(t.Shipped))
	fmt.Fprintf(out, "money  %s held by the provider = %s taken less refunded = %s of confirmed orders\n",
		money(held), money(t.Taken-t.Refunded), money(t.Confirmed))
}

// shown is how many faults are printed.
const shown = 20

func wrong(faults []string) error {
	text := "the audit found " + count(len(faults), "fault")
	if len(faults) > shown {
		text += fmt.Sprintf(", the first %d of which are", shown)
		faults = faults[:shown]
	}
	return errors.New(text + "\n" + strings.Join(faults, "\n"))
}

// explain tells the story of one order that was cancelled, if possible of one of which everything had to be undone.
func (r *running) explain(ctx context.Context, books *audit.Books, prefix string) error {
	id := ""
	for _, why := range []string{checkout.NoCarrier, checkout.NoAnswer, checkout.Declined, checkout.OutOfStock} {
		for _, candidate := range slices.Sorted(maps.Keys(books.Orders)) {
			if o := books.Orders[candidate]; id == "" && strings.HasPrefix(candidate, prefix) && basket.Expect(o.Placed) == why {
				id = candidate
			}
		}
	}
	if id == "" {
		return nil // all were confirmed
	}
	e, err := saga.Explain(ctx, r.pool, checkout.Definition.Name(), id)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "\n%s\n", e.Sentence)
	for _, entry := range e.Timeline {
		line := fmt.Sprintf("%s  %-11s  %-13s  %s", entry.At.UTC().Format("15:04:05.000"), entry.Kind, entry.Step, entry.Text)
		fmt.Fprintf(r.out, "  %s\n", strings.TrimSpace(line))
	}
	return nil
}

// count is a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return grouped(int64(n)) + " " + thing
}

// grouped is a number with a comma between thousands.
func grouped(n int64) string {
	if n < 0 {
		return "-" + grouped(-n)
	}
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// money is an amount of cents.
func money(cents int64) string {
	if cents < 0 {
		return "-" + money(-cents)
	}
	return fmt.Sprintf("%s.%02d", grouped(cents/100), cents%100)
}
