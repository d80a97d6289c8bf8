package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	tries := 0
	err := store.WithStreamsLocked(t.Context(), nil, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
		if tries++; tries > 1 {
			return nil
		}
		// Waits for the lock, and gets it when the server has ended this transaction.
		mustAppend(t, other, eventstore.To(id, eventstore.NoStream, newEvent("other")))
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

// A process that stands still in a hook does not hold the readers of the log for ever, and its append is undone.
func TestWhoStandsStillInAHookHoldsNobody(t *testing.T) {
	t.Parallel()
	other, pool := freshStore(t, postgres.Config{})
	store := openStore(t, pool, postgres.Config{Hooks: []postgres.Hook{
		func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
			stored := mustAppend(t, other, eventstore.To(newStream("other"), eventstore.NoStream, newEvent("other")))
			for { // until readers pass what this append holds
				switch head, err := other.SafeHead(t.Context()); {
				case err != nil:
					return err
				case head.Before(stored.Token.Marks()[0].Position):
					continue
				}
				_, err := tx.Exec(ctx, "SELECT 1")
				return err
			}
		},
	}})
	store.SetIdleLimit(200 * time.Millisecond)
	id := newStream("late")
	if _, err := store.Append(t.Context(), eventstore.To(id, eventstore.NoStream, newEvent("late"))); err == nil {
		t.Error("the append of a hook that stood still is there")
	}
	for e, err := range other.ReadStream(t.Context(), id, eventstore.Range{}) {
		t.Errorf("its stream has %v, %v", e.Type, err)
	}
}
