package main

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/daybook-go/daybook/internal/testscale"
)

// Whether commands are read from the outbox or come through relay, broker and subscription: orders end in the same way. The
// second run takes over from the first in the midst of the topic.
func TestOutcomesAreTheSameOverTheBroker(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	rows := slices.Repeat([]string{"ann,cup,1,895,visa,DE", "bob,lamp,2,17880,visa,FR"}, 2+testscale.N(4))
	rows = append(rows, "cem,cup,1,895,declined,DE", "dan,sold-out,1,895,visa,DE", "eva,tray,1,1990,silent,DE", "fay,jar,3,3450,visa,AQ")
	file := orders(t, rows...)
	s.must(t, file)
	published := s.must(t, "-broker", file)
	// What a broker does not bring is read from the outbox in the end. That must not be what happens to all.
	came := regexp.MustCompile(`(?m)^of the topic of commands \S+ messages came through the broker, heads included, and (\d+) had to be read$`).
		FindStringSubmatch(published.notes)
	if came == nil {
		t.Fatalf("nothing came through the broker:\n%s", published.notes)
	}
	var sent int
	if err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM daybook.saga_commands WHERE key LIKE '2-%'").Scan(&sent); err != nil {
		t.Fatal(err)
	}
	if read, err := strconv.Atoi(came[1]); err != nil || read > sent/2 {
		t.Errorf("of %d commands %s did not come through the broker: %v", sent, came[1], err)
	}
	direct, over := s.ends(t, 1), s.ends(t, 2)
	if len(direct) != len(rows) || !maps.Equal(direct, over) {
		t.Errorf("of %d orders %d ended like this:\n%v\nand over the broker %d like this:\n%v", len(rows), len(direct), direct, len(over), over)
	}
}
