package outbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// Relays are killed at the broker, each a message further, while it refuses one of two keys of a partition; and then while
// that is redriven and what queues behind it goes on. Everything arrives: of each key in order, with markers in between, and
// a subscription has all of it once.
func TestRelayKilledWhileMessagesAreRefused(t *testing.T) {
	t.Parallel()
	const each, refused = 12, 4
	w := newRelayWorld(t)
	w.keep()
	keys := keysOf(7, 64, 2)
	for i := 1; i <= each; i++ { // the payloads of the first key are below 100, those of the other one are not
		w.enqueue("t", keys[0], i, i)
		w.enqueue("t", keys[1], 100+i, 100+i)
	}
	var tapes relayTapes
	last := func(opts, what string, is func() bool) {
		t.Helper()
		p := w.spawnRelay(t, tapes.add(), "", opts)
		livetest.Eventually(t, what, is)
		p.Kill()
		p.Dies()
	}
	const mended = "300ms 8"
	refusing := fmt.Sprint(mended, " ", refused)
	at, redriven := []int{3, 2*refused - 1, 2 * refused, 2*refused + 1, 2*refused + 3}, []int{1, 2, 3, 4, 5} // the marker, the message, and so on
	if testscale.Factor() < 1 {
		at, redriven = []int{2*refused - 1, 2*refused + 1}, []int{1, 2, 4}
	}
	for _, visit := range at {
		w.spawnRelay(t, tapes.add(), fmt.Sprintf("%s:%d:kill", atBroker, visit), refusing).Dies()
	}
	head := w.head()
	last(refusing, "all is sent or set aside", func() bool { return w.cursor() >= head })
	if w.aside("parked") != 1 || w.aside("") != 1 {
		t.Fatalf("%d sequences are set aside, %d wait for people, want 1", w.aside(""), w.aside("parked"))
	}

	w.redrive("t", keys[0])
	for _, visit := range redriven {
		p := w.spawnRelay(t, tapes.add(), fmt.Sprintf("%s:%d:kill", atBroker, visit), mended)
		p.Dies()
		if w.aside("") != 1 {
			t.Fatalf("the sequence is released by a relay that was killed at message %d", visit)
		}
	}
	last(mended, "the sequence is released", func() bool { return w.aside("") == 0 })
	if n := relayAsk[int](w, "SELECT count(*)::int FROM daybook.redrives WHERE state = 'done'"); n != 1 {
		t.Error("the plan is not done")
	}

	// In the order in which the relays published: a plain subscriber gets each message, and for the first time in order.
	var sent []taken
	for _, tape := range tapes.all() {
		sent = append(sent, tape...)
	}
	first := map[string][]int{}
	markers := 0
	for _, g := range sent {
		if g.kind == KindSkip {
			markers++
		}
		if !g.kind.IsMessage() {
			continue
		}
		n, err := strconv.Atoi(g.payload)
		if err != nil {
			t.Fatal(err)
		}
		if key := g.event.PartitionKey; !slices.Contains(first[key], n) {
			first[key] = append(first[key], n)
		}
	}
	for i, key := range keys {
		var want []int
		for n := 1; n <= each; n++ {
			want = append(want, 100*i+n)
		}
		if !slices.Equal(first[key], want) {
			t.Errorf("key %s: %v arrived, want %v", key, first[key], want)
		}
	}
	if markers < 2*(each-refused+1) {
		t.Errorf("%d markers, want one in the place of each message and one before each redriven one", markers)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w.followed(sent, 2*each, seed)
}
