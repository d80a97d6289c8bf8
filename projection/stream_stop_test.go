package projection

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// A projection that stops while its process ends says why, and leaves its lease free: the next process need not wait for
// it to run out.
func TestStreamStopAtTheEndIsRecorded(t *testing.T) {
	t.Parallel()
	entered, fail := make(chan struct{}), make(chan struct{})
	p := logged("stopping", func(context.Context, pgx.Tx, Event[added]) error {
		close(entered)
		<-fail
		return errors.New("never")
	})
	w := newStreamWorld(t, p)
	token := w.append("s", added{1})
	r := w.reader(w.subscription(w.channel, outbox.SubscriptionConfig{}), Config{OnFailure: Stop, Attempts: 1, Lease: time.Minute}, p)
	stop := w.run(r)
	<-entered
	tx, err := w.pool.Begin(t.Context()) // whoever records the stop waits for this
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // after the other it does nothing
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM daybook.consumers WHERE consumer = 'stopping' FOR NO KEY UPDATE"); err != nil {
		t.Fatal(err)
	}
	close(fail)
	w.reason(r)
	livetest.Eventually(t, "it waits to record it", func() bool {
		return ask[bool](w.world, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	select {
	case <-ended:
		t.Error("the end did not wait for the record")
	case <-time.After(100 * time.Millisecond):
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	if got := ask[string](w.world, "SELECT owner FROM daybook.segments WHERE consumer = 'stopping'"); got != "" {
		t.Errorf("the lease is still %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stopped := mustBe[*StoppedError](t, NewWaiter(w.pool, WaiterConfig{}).WaitFor(ctx, token, p))
	if stopped.State != "stopped" || stopped.Reason == "" {
		t.Errorf("the store says %v", stopped)
	}
}
