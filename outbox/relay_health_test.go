package outbox

import (
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/livetest"
)

// A publisher that does not return is no relay that runs well, also when it has refused nothing.
func TestRelayHealthWhilePublishDoesNotReturn(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	entered, release := make(chan struct{}), make(chan struct{})
	var blocks atomic.Bool
	b := &tape{before: func(string, received) error {
		if blocks.CompareAndSwap(true, false) {
			entered <- struct{}{}
			<-release
		}
		return nil
	}}
	var lines relayLines
	r := w.relay(b, Config{Logger: lines.logger(), late: 50 * time.Millisecond})
	w.send(1, "o", 1)
	w.start(r)
	w.sent()
	if h := r.Health(t.Context()); !h.Ready || h.State != "running" {
		t.Fatalf("at rest: %+v", h)
	}
	for round := 1; round <= 2; round++ {
		blocks.Store(true)
		began := time.Now()
		w.send(1, "o", 1)
		<-entered
		livetest.Eventually(t, "it is not ready", func() bool { return !r.Health(t.Context()).Ready })
		h := r.Health(t.Context())
		if h.State != "waiting" || !strings.Contains(h.Reason, `on topic "o" has not returned for `) || !strings.Contains(h.Reason, "give the publisher a time-out") ||
			h.Since.Before(began) || time.Since(h.Since) < 50*time.Millisecond {
			t.Errorf("%+v", h)
		}
		livetest.Eventually(t, "a line says so", func() bool { return strings.Count(lines.String(), "relay waits for the publisher") == round })
		release <- struct{}{}
		w.sent()
		livetest.Eventually(t, "it is ready", func() bool { return r.Health(t.Context()).Ready })
		livetest.Eventually(t, "a line says that it is over", func() bool {
			return strings.Count(lines.String(), "level=INFO msg=\"relay no longer waits for the publisher\"") == round
		})
	}
	if got := strings.Count(lines.String(), "level=WARN msg=\"relay waits for the publisher\""); got != 2 {
		t.Errorf("%d lines:\n%s", got, &lines)
	}
}

func TestRelayWatchesByDefault(t *testing.T) {
	t.Parallel()
	if limit := (Config{}).withDefaults().late; limit != 5*time.Second {
		t.Errorf("the limit is %v", limit)
	}
}

// A relay that has not run yet is behind, and no fault of the store.
func TestRelayLagBeforeTheFirstRun(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	r := w.relay(&tape{}, Config{})
	lag, err := r.Lag(t.Context())
	if err != nil || !reflect.DeepEqual(lag, Lag{State: "not started"}) {
		t.Errorf("of an empty store: %+v, %v", lag, err)
	}
	w.send(3, "t", 0)
	lag, err = r.Lag(t.Context())
	if err != nil || lag.State != "not started" || lag.Owner != "" || !lag.Cursor.IsZero() || lag.Head != eventstore.PositionAt(3) || lag.Behind != 3 || lag.Age <= 0 {
		t.Errorf("of three messages: %+v, %v", lag, err)
	}
	w.start(r)
	w.sent()
	if lag, err := r.Lag(t.Context()); err != nil || lag.State != "running" || lag.Cursor != eventstore.PositionAt(3) || lag.Behind != 0 || lag.Age != 0 {
		t.Errorf("of a relay that runs: %+v, %v", lag, err)
	}
}

func TestRelayLagWithoutTables(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	for _, table := range []string{"outbox_tails", "consumers"} {
		w.exec("ALTER TABLE daybook." + table + " RENAME TO away")
		var missing *NotInstalledError
		if _, err := w.relay(&tape{}, Config{}).Lag(t.Context()); !errors.As(err, &missing) || missing.Missing != "table "+table {
			t.Errorf("without %s: %v", table, err)
		}
		w.exec("ALTER TABLE daybook.away RENAME TO " + table)
	}
}

func TestShutdownErrorOfARelay(t *testing.T) {
	t.Parallel()
	err := shutDown(&consumer.ShutdownError{Consumers: []string{`"outbox-relay"`}})
	var late *ShutdownError
	if !errors.As(err, &late) || len(late.Consumers) != 1 {
		t.Errorf("%v is no ShutdownError", err)
	}
	for _, want := range []string{"outbox: run: ", `the publisher of "outbox-relay" has not returned`, "time-out"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if err := shutDown(nil); err != nil {
		t.Error(err)
	}
}
