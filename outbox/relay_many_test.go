package outbox

import (
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/testscale"
)

// R-OB09: five relays under load. Four share the work, nobody fights: without a fault each message is sent once, and nothing
// is logged but who works and who waits.
func TestRelaysAreManyAndFourWork(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.keep()
	b := &tape{}
	var lines relayLines
	for range 5 {
		w.start(w.relay(b, Config{Logger: lines.logger()}))
	}
	w.balanced(5)
	// 400 messages a second, in transactions of 20.
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	n := testscale.N(1200)
	if testscale.Factor() < 1 {
		n /= 2
	}
	for i := range n {
		<-every.C
		w.send(20, "t", i%64)
	}
	w.sent()
	if got, sent, want := checkChains(t, b.all()), len(b.messages()), w.stored(); got != want || sent != want {
		t.Errorf("%d messages were sent, %d of them different, want %d once each", sent, got, want)
	}
	if text := lines.String(); strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
		t.Errorf("the log says\n%s", text)
	}
}
