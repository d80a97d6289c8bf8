package main

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

func TestLagMeter(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	m := newLagMeter(func() time.Time { return now })
	wrote := func(position int64) {
		m.wrote(eventstore.MakeToken(uuid.UUID{1}, eventstore.Mark{Position: eventstore.PositionAt(position)}))
	}
	applied := func(through int64, models ...string) {
		for _, model := range models {
			m.ObserveBatch(eventstore.BatchObservation{Consumer: model, Through: eventstore.PositionAt(through)})
		}
	}
	at := func(ms int) { now = time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }

	wrote(10)
	at(4)
	applied(10, "balances", "movements")
	at(7)
	applied(10, "entries") // the slowest counts: 7 ms
	at(10)
	applied(20, "balances", "movements", "entries") // before the writer had its answer: nothing
	at(11)
	wrote(20)
	wrote(30)
	at(14)
	applied(30, "balances", "movements") // entries was not observed: it is shown at the end, 9 ms later
	if got, want := m.summary(now.Add(6*time.Millisecond)), "lagged 7ms in the median and 9ms at most"; got != want {
		t.Errorf("the summary is %q, want %q", got, want)
	}
}

func TestLagMeterSaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	m := newLagMeter(time.Now)
	m.wrote(eventstore.MakeToken(uuid.UUID{1}, eventstore.Mark{Position: eventstore.PositionAt(1)}))
	if got, want := m.summary(time.Now()), "kept by another program, so the lag is not known"; got != want {
		t.Errorf("the summary is %q, want %q", got, want)
	}
}
