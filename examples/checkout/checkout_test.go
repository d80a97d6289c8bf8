package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/examples/checkout/audit"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/internal/testscale"
)

// many is how many orders a test places: 2,000 at full size.
func many() int {
	if testscale.Factor() >= 1 {
		return 2000
	}
	return 60
}

// What the program prints of 60 orders, up to the explanation, in a first run and in a second one on the same database.
const (
	outcomesOf60 = `outcome                                  orders    items          money
confirmed                                    53      130       3,911.16
cancelled: out of stock                       2        2         109.30
cancelled: card declined                      3        8         250.93
cancelled: no answer about the payment        1        2          23.00
cancelled: no carrier                         1        3         179.97
stuck                                         0        0           0.00
`
	firstOf60 = "run 1: 60 orders\n\n" + outcomesOf60 + `
all runs, 1 so far: 60 orders

stock  143 received = 13 available + 0 reserved + 130 shipped
money  3,911.16 held by the provider = 3,911.16 taken less refunded = 3,911.16 of confirmed orders
`
	secondOf60 = "run 2: 60 orders\n\n" + outcomesOf60 + `
all runs, 2 so far: 120 orders

stock  286 received = 26 available + 0 reserved + 260 shipped
money  7,822.32 held by the provider = 7,822.32 taken less refunded = 7,822.32 of confirmed orders
`
)

// What an order goes through that no carrier takes, as the program prints it. How often the provider is asked before it has
// the money depends on how busy the machine is.
var (
	explanation = regexp.MustCompile(`checkout "(\d+-\d+)" was compensated at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, after \S+, because hand-over was refused \(shipping\.refused\); undone: \S+, \S+\.\n`)
	line        = regexp.MustCompile(`^  \d\d:\d\d:\d\d\.\d{3}  (\S+( again)?)( +(\S+)( .*)?)?$`)
	mustSay     = []string{
		"started", "sent reserve-stock", "answered reserve-stock", "sent take-payment", "answered take-payment", "sent hand-over",
		"refused hand-over", "undo take-payment", "undone take-payment", "undo reserve-stock", "undone reserve-stock", "sent compensated",
		"answered compensated", "compensated",
	}
)

// ends are the orders of a run and how they ended, by their places in it.
func (s shell) ends(t *testing.T, run int) map[string]string {
	t.Helper()
	store, err := postgres.New(t.Context(), s.pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	books, err := audit.Read(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for id, o := range books.Orders {
		if place, ok := strings.CutPrefix(id, strconv.Itoa(run)+"-"); ok {
			ends[place] = fmt.Sprintf("%+v: %s %s", o.Placed, o.Status, o.Reason)
		}
	}
	return ends
}

// Every order ends, with and without workers that are killed, and it is the same end.
func TestOutcomesAreTheSameUnderChaos(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Empty(t) // the program installs what it needs
	s := shell{url: postgrestest.URL(pool), pool: pool}
	orders := many()
	first := s.must(t, "-orders", strconv.Itoa(orders))
	second := s.must(t, "-chaos", "-orders", strconv.Itoa(orders))
	if killed := regexp.MustCompile(`(?m)^[1-9]\d* workers were killed meanwhile$`); !killed.MatchString(second.notes) {
		t.Errorf("no worker was killed:\n%s", second.notes)
	}
	quiet, chaotic := s.ends(t, 1), s.ends(t, 2)
	if len(quiet) != orders || !maps.Equal(quiet, chaotic) {
		t.Errorf("of %d orders %d and %d ended", orders, len(quiet), len(chaotic))
		for place, end := range quiet {
			if chaotic[place] != end {
				t.Errorf("order %s:\n%s\n%s", place, end, chaotic[place])
			}
		}
	}
	for run, out := range []string{first.out, second.out} {
		checkOutput(t, run+1, orders, out)
	}
}

func checkOutput(t *testing.T, run, orders int, out string) {
	t.Helper()
	top, rest, found := strings.Cut(out, "audit  ")
	if want := map[int]string{1: firstOf60, 2: secondOf60}[run]; orders == 60 && top != want {
		t.Errorf("run %d printed\n%s\nwant\n%s", run, top, want)
	}
	says := regexp.MustCompile(fmt.Sprintf(`^%s orders, 13 kinds of items, [\d,]+ charges: nothing is missing, nothing is there twice\n\n`, grouped(int64(run*orders))))
	if !found || !says.MatchString(rest) {
		t.Errorf("run %d: the audit says\n%s", run, rest)
	}
	rest = says.ReplaceAllString(rest, "")
	sentence := explanation.FindStringIndex(rest)
	if sentence == nil || sentence[0] != 0 {
		t.Fatalf("run %d: the explanation is\n%s", run, rest)
	}
	story, diagram, _ := strings.Cut(rest[sentence[1]:], "\n\n")
	checkStory(t, story)
	if want := aboutDiagram + "\n\n" + strings.TrimSpace(checkout.Definition.Diagram()) + "\n"; diagram != want {
		t.Errorf("run %d: the diagram is\n%s\nwant\n%s", run, diagram, want)
	}
}

func checkStory(t *testing.T, story string) {
	t.Helper()
	left := slices.Clone(mustSay)
	for text := range strings.Lines(story) {
		m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		if m == nil {
			t.Errorf("the line %q has another form", text)
			continue
		}
		said := strings.TrimSpace(m[1] + " " + m[4])
		if len(left) > 0 && (said == left[0] || m[1] == left[0]) {
			left = left[1:]
		}
	}
	if len(left) > 0 {
		t.Errorf("the story misses %q:\n%s", left, story)
	}
}

// What is interrupted goes on with the next run. And a cent that the provider gave back to somebody is found.
func TestGoesOnAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	const placed = 8
	cmd, out, notes := s.command(t.Context(), "-orders", strconv.Itoa(placed))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.until(t, "order.placed", placed)
	s.until(t, "payment.taken", 1)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(notes.String(), "interrupted; the next run goes on") {
		t.Fatalf("interrupted, it ended with %v:\n%s\n%s", err, out, notes)
	}
	const steal = "UPDATE payment_provider.charges SET refunded = refunded + 1 WHERE charge = (SELECT min(charge) FROM payment_provider.webhooks JOIN payment_provider.charges USING (charge))"
	if _, err := s.pool.Exec(t.Context(), steal); err != nil {
		t.Fatal(err)
	}
	r := s.run(t, orders(t, "ann,sold-out,1,895,visa,DE"))
	// Of everything that was under way nothing else is wrong.
	if r.code != 1 || !strings.Contains(r.notes, "the audit found 1 fault\norder 1-000") || !strings.Contains(r.notes, "cents refunded, as the shop knows it, is 0, and must be 1") {
		t.Errorf("with a cent less it ended with %d, and said\n%s", r.code, r.notes)
	}
	if !strings.HasPrefix(r.out, "run 2: 1 order\n\noutcome") || strings.Contains(r.out, "audit") {
		t.Errorf("it printed\n%s", r.out)
	}
	ends := s.ends(t, 1)
	for place, end := range ends {
		if !strings.HasSuffix(end, ": confirmed ") {
			t.Errorf("order %s: %s", place, end)
		}
	}
	if len(ends) != placed {
		t.Errorf("%d orders of the first run are there", len(ends))
	}
}
