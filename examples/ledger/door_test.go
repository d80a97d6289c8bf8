package main

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/eventstore"
)

type admissions struct {
	eventstore.NopObserver
	mu sync.Mutex
	n  int
}

func (a *admissions) ObserveAdmission(eventstore.AdmissionObservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
}

// A flood is two lines of the log, however many requests are sent away, and the next one is two more.
func TestAFloodIsTwoLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := newOutput()
		seen := &admissions{}
		d := newDoor(slog.New(slog.NewTextHandler(text, nil)), seen)
		defer d.close()
		says := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
			if text.String() == "" {
				lines = nil
			}
			if len(lines) != len(want) {
				t.Fatalf("%s: %d lines, want %d:\n%s", when, len(lines), len(want), text.String())
			}
			for i := range want {
				if !strings.Contains(lines[i], want[i]) {
					t.Errorf("%s: line %d is %s, want %s", when, i+1, lines[i], want[i])
				}
			}
		}
		away := eventstore.AdmissionObservation{Class: "normal", Queue: 64, Limit: 4, Err: &admission.OverloadedError{Reason: admission.QueueFull}}
		const (
			begins = `level=WARN msg="requests are sent away, as more come than can be done" reason="queue full" class=normal waiting=64 atOnce=4`
			ends   = `level=INFO msg="requests are let in again" sentAway=`
		)
		d.ObserveAdmission(eventstore.AdmissionObservation{})
		says("while all are let in")
		var flood sync.WaitGroup
		for range 20 {
			flood.Go(func() {
				for range 50 {
					d.ObserveAdmission(away)
					time.Sleep(time.Second)
				}
			})
		}
		time.Sleep(30 * time.Second)
		says("in the flood", begins)
		flood.Wait()
		time.Sleep(quietTime - 1500*time.Millisecond)
		says("just after it", begins)
		time.Sleep(time.Second)
		says("when it is over", begins, ends+"1000 within=49s")
		time.Sleep(time.Hour)
		says("long after", begins, ends)
		d.ObserveAdmission(away)
		says("in the next one", begins, ends, begins)
		time.Sleep(quietTime)
		says("after the next one", begins, ends, begins, ends+"1 within=0s")
		d.ObserveAdmission(away)
		d.close()
		time.Sleep(2 * quietTime)
		d.ObserveAdmission(away)
		says("after the end", begins, ends, begins, ends, begins)
		if seen.n != 1004 {
			t.Errorf("%d were passed on", seen.n)
		}
	})
}
