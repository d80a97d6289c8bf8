package inbox

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/outbox/deadletter"
)

// Messages that cannot be read take room like all that is set aside: an inbox that gets nothing else stops, and what it has
// written by then is there to be looked at.
func TestUnreadableMessagesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broker.lanes = 50
	cfg := w.config()
	cfg.MaxParked = 3
	letters, err := deadletter.New(w.pool, deadletter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	open := "SELECT count(*)::int FROM daybook.letters WHERE topic = 'unreadable' AND state = 'parked'"
	discard := func() {
		for _, id := range ask[[]uuid.UUID](w, "SELECT array_agg(letter) FROM daybook.letters WHERE topic = 'unreadable' AND state = 'parked'") {
			if _, err := letters.Discard(t.Context(), deadletter.One(id), deadletter.Options{Actor: "ann", Reason: "junk"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := w.pub.several(20, func(i int) int { return i })
	for i := range all {
		w.broker.send(all[i].event())
		if i%2 == 0 {
			w.broker.send(message.NewMessage(fmt.Sprint("junk ", i), []byte("?")))
		}
	}
	for round := 1; round <= 3; round++ {
		in := w.inbox(cfg, write)
		stop := w.start(in)
		w.eventually("the inbox stops", func() bool { return in.Health(context.Background()).State == "stopped" })
		if h := in.Health(context.Background()); h.Ready || !strings.Contains(h.Reason, "as many as Config.MaxParked allows; discard what cannot be read") {
			t.Errorf("health %+v", h)
		}
		stop()
		if n := ask[int](w, open); n != 3 {
			t.Errorf("round %d: %d letters wait, want 3", round, n)
		}
		discard()
		if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'discarded'"); n != 3*round { // those of before do not come again
			t.Errorf("round %d: %d letters are discarded, want %d", round, n, 3*round)
		}
	}
	w.start(w.inbox(cfg, write))
	w.eventually("the last one is there", func() bool { return ask[int](w, open) == 1 })
	discard()
	w.exact(all)
	w.drained()
}
