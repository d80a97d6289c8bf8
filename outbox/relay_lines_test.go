package outbox

import (
	"strings"
	"testing"

	"github.com/daybook-go/daybook/internal/livetest"
)

// The relay logs a line when a sequence is parked, with its topic, and one when it is released.
func TestRelayLogsWhatItParks(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	key := keysOf(3, 64, 1)[0]
	b := newPicky(isNumber(key, "2"))
	var l relayLines
	for i := 1; i <= 3; i++ {
		w.enqueue("t", key, i, i)
	}
	w.start(w.relay(b, Config{Classify: permanent, Logger: l.logger()}))
	w.sent()
	livetest.Eventually(t, "the parked sequence is logged", func() bool { return strings.Contains(l.String(), "sequence is parked") })
	if text := l.String(); strings.Count(text, "sequence is parked") != 1 || !strings.Contains(text, "topic=t ") || !strings.Contains(text, "attempts=1 ") {
		t.Errorf("the log is %s", text)
	}
	b.mend()
	w.redrive("t", key)
	livetest.Eventually(t, "the release is logged", func() bool { return strings.Contains(l.String(), "sequence is released") })
	if text := l.String(); strings.Count(text, "sequence is parked")+strings.Count(text, "sequence is released") != 2 {
		t.Errorf("the log is %s", text)
	}
}

//go:noinline
func runsIntoIt() { panic("hunter2") }

// A publisher that panics at one message: where that came from is logged once, and not what it said.
func TestRelayLogsAPanicOfThePublisher(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	key := keysOf(3, 64, 1)[0]
	b := newPicky(func(r received) error {
		if isNumber(key, "2")(r) != nil {
			runsIntoIt()
		}
		return nil
	})
	var l relayLines
	for i := 1; i <= 3; i++ {
		w.enqueue("t", key, i, i)
	}
	w.start(w.relay(b, Config{Classify: permanent, Logger: l.logger()}))
	w.sent()
	const panicked = `msg="handler panicked"`
	livetest.Eventually(t, "it is logged", func() bool { return strings.Contains(l.String(), panicked) })
	if text := l.String(); strings.Count(text, panicked) != 1 || !strings.Contains(text, "outbox.runsIntoIt") || strings.Contains(text, "hunter2") {
		t.Errorf("the log is %s", text)
	}
}
