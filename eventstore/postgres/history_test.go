package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// cutBack loses every event above a position, as a fail-over to a standby that lags does.
func cutBack(t testing.TB, pool *pgxpool.Pool, to int64) {
	t.Helper()
	tx := beginTx(t, pool)
	mustExec(t, tx, `SET LOCAL session_replication_role = replica`) // triggers off
	mustExec(t, tx, `DELETE FROM daybook.events WHERE position > $1`, to)
	mustExec(t, tx, `UPDATE daybook.streams s SET version = coalesce((SELECT max(version) FROM daybook.events e WHERE e.stream_id = s.stream_id), 0)`)
	mustExec(t, tx, `SELECT setval('daybook.log_position', $1)`, to)
	mustCommit(t, tx)
}

func wantHistoryError(t testing.TB, what string, err error) {
	t.Helper()
	var history *eventstore.HistoryError
	if !errors.As(err, &history) || !errors.Is(err, eventstore.ErrHistory) || !strings.Contains(history.Remedy, "daybook epoch new") {
		t.Errorf("%s: got %v, want a HistoryError that names the remedy", what, err)
	}
}

// R-OP07: a reader that is ahead of the log stops and says what to do.
func TestLogThatWasCutBackIsNoticed(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, manyEvents(100)...))
	end := safeHead(t, store)
	if end.Ordinal() != 100 {
		t.Fatalf("safe head %s", end)
	}
	cutBack(t, pool, 90)
	_, err := store.Log().ReadPage(t.Context(), end, eventstore.Filter{}, 10)
	wantHistoryError(t, "the process that saw the end", err)
	_, err = store.SafeHead(t.Context())
	wantHistoryError(t, "its safe head", err)
	for _, err := range store.ReadAll(t.Context(), end, eventstore.Filter{}) {
		wantHistoryError(t, "its ReadAll", err)
	}
	restarted := openStore(t, pool, postgres.Config{})
	_, err = restarted.Log().ReadPage(t.Context(), end, eventstore.Filter{}, 10)
	wantHistoryError(t, "a process that started afterwards", err)
	mustAppend(t, restarted, eventstore.To(newStream("s"), eventstore.NoStream, manyEvents(5)...))
	_, err = restarted.Log().ReadPage(t.Context(), end, eventstore.Filter{}, 10)
	wantHistoryError(t, "with new events below the checkpoint", err)
}

func TestPositionBeyondTheEnd(t *testing.T) {
	t.Parallel()
	store, _ := freshStore(t, postgres.Config{})
	_, err := store.Log().ReadPage(t.Context(), eventstore.PositionAt(7), eventstore.Filter{}, 10)
	wantHistoryError(t, "an empty log", err)
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	_, err = store.Log().ReadPage(t.Context(), eventstore.PositionAt(7), eventstore.Filter{}, 10)
	wantHistoryError(t, "a short log", err)
	page, err := store.Log().ReadPage(context.Background(), eventstore.PositionAt(1), eventstore.Filter{}, 10)
	if err != nil || page.Through != eventstore.PositionAt(1) || len(page.Events) != 0 {
		t.Errorf("at the end: %+v, %v", page, err)
	}
	// A rolled-back position at the end is no lost commit.
	tx := beginTx(t, store.Pool())
	mustAppend(t, store.WithTx(tx), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("gone")))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if page, err = store.Log().ReadPage(t.Context(), eventstore.PositionAt(1), eventstore.Filter{}, 10); err != nil || len(page.Events) != 0 {
		t.Errorf("after a rollback at the end: %+v, %v", page, err)
	}
}
