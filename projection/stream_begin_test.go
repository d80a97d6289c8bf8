package projection

import (
	"context"
	"errors"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// A consumer that wants only what is new begins once: what is committed while it is down is not passed by, also when the
// log was empty at first.
func TestStreamBeginsAtTheHeadOnce(t *testing.T) {
	t.Parallel()
	view := logged("fresh")
	w := newStreamWorld(t, view)
	w.run(w.relay(w.channel, outbox.Config{}))
	source := w.subscription(w.channel, outbox.SubscriptionConfig{StartAt: outbox.AtHead, Group: "of_fresh"})
	stop := w.follow(source, Config{}, view)
	livetest.Eventually(t, "it is registered", func() bool { return w.stateOf("of_fresh") == "following" })
	stop()
	token := w.numbers(1, 5)
	w.follow(source, Config{}, view)
	w.wait(token, view)
	if diff := gocmp.Diff(oneTo(5), sorted(values(w.world, view.Name))); diff != "" {
		t.Error(diff)
	}
}

// Catching up from a topic is following it: the outbox waits for the consumer, and what is lost ends the wait.
func TestStreamCatchUpRegisters(t *testing.T) {
	t.Parallel()
	view, late := logged("caught"), logged("too_late")
	w := newStreamWorld(t, view, late)
	w.run(w.relay(w.channel, outbox.Config{CleanEvery: 20 * time.Millisecond}))
	token := w.numbers(1, 5)
	r := w.reader(w.subscription(w.channel, outbox.SubscriptionConfig{Group: "of_caught"}), Config{}, view)
	if err := r.CatchUp(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	if state := w.stateOf("of_caught"); state != "following" {
		t.Errorf("the group is %q", state)
	}
	if diff := gocmp.Diff(oneTo(5), sorted(values(w.world, view.Name))); diff != "" {
		t.Error(diff)
	}
	livetest.Eventually(t, "the rows are gone", func() bool { return w.rows() <= 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := w.reader(w.subscription(w.channel, outbox.SubscriptionConfig{Group: "of_late"}), Config{}, late).CatchUp(ctx, token)
	var stopped *StoppedError
	if !errors.As(err, &stopped) || ctx.Err() != nil {
		t.Errorf("catching up with what is gone gives %v", err)
	}
}
