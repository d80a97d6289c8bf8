package outbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Where no relay has ever run, commands that their dispatcher has passed go, and nothing else; the first relay begins
// behind what is gone.
func TestCleaningWithoutARelay(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.exec(`INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('commands', 1, 'dispatcher')`)
	w.exec(`INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition) VALUES ('commands', 1, 0, 0, 63)`)
	w.exec(`INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ('commands', 'g', 'commands', 1)`)
	clean := func() int64 {
		t.Helper()
		if _, err := w.store.Outbox().Clean(t.Context(), 100*24*time.Hour); err != nil {
			t.Fatal(err)
		}
		return relayAsk[int64](w, "SELECT outbox_cleaned FROM daybook.store")
	}
	pass := func() int64 {
		head := w.head()
		w.exec("UPDATE daybook.segments SET floor = $1 WHERE consumer = 'commands'", head)
		return head
	}
	w.send(5, "commands", 1)
	if got := clean(); got != 0 {
		t.Errorf("cleaned up to %d before the dispatcher has passed anything", got)
	}
	head := pass()
	if got := clean(); got != head {
		t.Errorf("cleaned up to %d, want %d", got, head)
	}
	w.send(1, "mail", 1)
	w.send(5, "commands", 1)
	pass()
	if got := clean(); got != head {
		t.Errorf("cleaned up to %d, beyond a message that waits for a relay at %d", got, head+1)
	}
	if n := relayAsk[int](w, "SELECT count(*) FROM daybook.outbox"); n != 6 {
		t.Errorf("%d rows are left, want the message and the commands behind it", n)
	}
	b := &tape{}
	stop := w.start(w.relay(b, Config{}))
	w.sent()
	stop()
	if n := len(b.messages()); n != 6 {
		t.Errorf("the first relay sent %d messages, want 6", n)
	}
}

// A Direct is a topic read from the outbox: the messages of that topic, for as long as they are there.
func TestDirect(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	d, err := NewDirect(w.store.Outbox(), SubscriptionConfig{Topic: "t", Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if d.Carries() != "topic t" || d.StartsAt() != AtBeginning {
		t.Errorf("it carries %q and starts at %d", d.Carries(), d.StartsAt())
	}
	w.send(3, "t", 1)
	w.send(2, "other", 1)
	w.send(1, "t", 2)
	if err := d.Wait(t.Context(), eventstore.Position{}); err != nil {
		t.Fatal(err)
	}
	page, err := d.ReadPage(t.Context(), eventstore.Position{}, eventstore.Filter{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range page.Events {
		got = append(got, string(e.Data))
	}
	if fmt.Sprint(got) != "[1 2 3 1]" {
		t.Errorf("read %v", got)
	}
	if _, err := NewDirect(nil, SubscriptionConfig{}); err == nil {
		t.Error("a Direct without rows, topic and group was made")
	}
}
