package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// A process that stands still while it has streams locked, and cannot even be told, does not hold them for ever. What it
// does when it goes on writes nothing, and may be done again.
func TestWhoStandsStillLosesLockedStreams(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	other := openStore(t, pool, postgres.Config{})
	store.SetIdleLimit(200 * time.Millisecond)
	id := newStream("locked")
	written := make(chan struct{})
	go func() {
		defer close(written)
		// Waits for the lock, and gets it when the server has ended the other transaction.
		mustAppend(t, other, eventstore.To(id, eventstore.NoStream, newEvent("other")))
	}()
	tries := 0
	err := store.WithStreamsLocked(t.Context(), nil, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
		if tries++; tries > 1 {
			return nil
		}
		<-written
		_, err := s.Append(ctx, eventstore.To(id, eventstore.Exactly(1), newEvent("late")))
		return err
	})
	if err == nil || !errors.Is(err, eventstore.ErrBusy) || errors.Is(err, eventstore.ErrUnconfirmed) {
		t.Errorf("%v, want ErrBusy", err)
	}
	n := 0
	for _, err := range other.ReadStream(t.Context(), id, eventstore.Range{}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 {
		t.Errorf("%d events", n)
	}
}
