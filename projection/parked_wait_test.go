package projection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// setAside writes what a worker writes when an event at a position fails.
func (w *world) setAside(name string, e eventstore.RecordedEvent, state string, due time.Time) (letter uuid.UUID) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.parked (consumer, version, sequence, partition, state, due_at, first_position, last_position)
		VALUES ($1, 1, $2, $3, $4, nullif($5, '0001-01-01 00:00:00+00'::timestamptz), $6, $6)`,
		name, e.PartitionKey, e.Partition, state, due, e.Position.Ordinal())
	letter = uuid.New()
	if state == "draining" {
		return letter
	}
	w.exec(`INSERT INTO daybook.letters (letter, consumer, version, sequence, partition, position, state, kind, attempts, round, fingerprint, errors,
		first_errors, first_failed_at, last_failed_at, handler, program, id, type, schema_version, flags, content_type, tenant, correlation_id,
		causation_id, actor, headers, data, recorded_at)
		VALUES ($1, $2, 1, $3, $4, $5, $6, 'transient', 1, 1, 'f', '{}', '{}', now(), now(), 'h', 'p', $1, 't', 1, 0, '', '', '', '', '', '', '', now())`,
		letter, name, e.PartitionKey, e.Partition, e.Position.Ordinal(), state)
	return letter
}

// put appends one event, and returns it as it is in the log.
func (w *world) put(id, key string) (eventstore.RecordedEvent, eventstore.Token) {
	w.t.Helper()
	r, err := w.store.Append(w.t.Context(), eventstore.Write{Stream: stream(id), Expected: eventstore.AnyVersion, Events: encode(w.t, added{1}), PartitionKey: key})
	if err != nil {
		w.t.Fatal(err)
	}
	var last eventstore.RecordedEvent
	for e, err := range w.store.ReadStream(w.t.Context(), stream(id), eventstore.Range{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		last = e
	}
	return last, r.Token
}

// A token is concerned by what is set aside at or below it in its partition, when that is one of its streams, or may
// hold one.
func TestParkedSequencesAndTheTokensTheyConcern(t *testing.T) {
	t.Parallel()
	v := counts("concerned")
	w := newWorld(t, v)
	before, beforeToken := w.put("a", "")
	a, aToken := w.put("a", "")
	// A neighbour in the same partition, and streams under a key that looks like a stream.
	var neighbour eventstore.RecordedEvent
	var neighbourToken eventstore.Token
	for i := 0; neighbour.Partition != a.Partition || neighbourToken.IsZero(); i++ {
		neighbour, neighbourToken = w.put(fmt.Sprint("n", i), "")
	}
	keyed, keyedToken := w.put("kept", "owner-1")
	_, otherToken := w.put("also_kept", "owner-1")
	w.exec("UPDATE daybook.segments SET floor = 1000000")
	any := eventstore.MakeToken(aToken.Epoch(), eventstore.Mark{Partition: a.Partition, Position: a.Position})
	both, err := neighbourToken.Merge(aToken)
	if err != nil {
		t.Fatal(err)
	}
	met := func(when string, token eventstore.Token) {
		t.Helper()
		if err := w.waiter().WaitFor(t.Context(), token, v); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused := func(when string, token eventstore.Token) *ParkedError {
		t.Helper()
		return mustBe[*ParkedError](t, w.waiter().WaitFor(t.Context(), token, v))
	}
	for _, token := range []eventstore.Token{beforeToken, aToken, neighbourToken, keyedToken, any, both} {
		met("nothing is set aside", token)
	}

	letter := w.setAside("concerned", a, "parked", time.Time{})
	e := refused("the event itself", aToken)
	if e.Projection != "concerned" || e.Version != 1 || e.Sequence != "test-a" || e.Letter != letter || e.State != SequenceParked ||
		e.Position != a.Position || e.Partition != a.Partition || time.Since(e.Since) > time.Minute || !e.DueAt.IsZero() {
		t.Errorf("%+v", e)
	}
	if !errors.Is(e, ErrParked) || !strings.Contains(e.Error(), letter.String()) || !strings.Contains(e.Error(), `"test-a"`) {
		t.Errorf("%v", e)
	}
	refused("any stream", any)
	refused("with another one", both)
	met("another stream of the partition", neighbourToken)
	met("another partition", keyedToken)
	met("what was there before", beforeToken)
	if before.Position.Compare(a.Position) >= 0 {
		t.Fatal("the positions do not rise")
	}

	// A key says nothing of its streams: all tokens of the partition are concerned.
	w.exec("DELETE FROM daybook.parked")
	w.setAside("concerned", keyed, "parked", time.Time{})
	if keyed.PartitionKey != "owner-1" {
		t.Fatalf("the key is %q", keyed.PartitionKey)
	}
	refused("the stream", keyedToken)
	refused("another stream of the key", otherToken)
	met("another partition", aToken)

	w.exec("DELETE FROM daybook.parked")
	free := neighbour
	free.PartitionKey = "no stream"
	w.setAside("concerned", free, "parked", time.Time{})
	refused("a key that is no stream", neighbourToken)
	met("below it", aToken)
}

// A sequence that drains is waited for; one that is tried again ends the wait at once, with when that will be; of several
// the one that waits for people is named.
func TestStatesOfWhatIsSetAside(t *testing.T) {
	t.Parallel()
	v := counts("states")
	w := newWorld(t, v)
	e, token := w.put("a", "")
	w.exec("UPDATE daybook.segments SET floor = 1000000")
	due := time.Now().Add(20 * time.Second)
	w.setAside("states", e, "retrying", due)
	began := time.Now()
	got := mustBe[*ParkedError](t, w.waiter().WaitFor(t.Context(), token, v))
	if got.State != SequenceRetrying || got.DueAt.Sub(due).Abs() > time.Millisecond || time.Since(began) > 5*time.Second {
		t.Errorf("%+v after %v", got, time.Since(began))
	}
	if after := got.RetryAfter(due.Add(-20 * time.Second)); after.Round(time.Second) != 20*time.Second {
		t.Errorf("retry after %v", after)
	}
	if after := got.RetryAfter(due.Add(time.Hour)); after != time.Second {
		t.Errorf("overdue: retry after %v", after)
	}
	if after := (&ParkedError{State: SequenceParked}).RetryAfter(due); after != time.Minute {
		t.Errorf("parked: retry after %v", after)
	}

	// What a lenient reader gets is what there is, and a strict one the error.
	w.exec(`INSERT INTO readmodels.states_v1 (key, sum, events, last) VALUES ('a', 7, 1, 1)`)
	if row, err := v.Get(t.Context(), w.pool, "a", AtLeast(token), Lenient()); err != nil || row.Sum != 7 {
		t.Errorf("lenient: %+v %v", row, err)
	}
	if _, err := v.Get(t.Context(), w.pool, "a", AtLeast(token)); !errors.Is(err, ErrParked) {
		t.Errorf("strict: %v", err)
	}
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := v.Get(t.Context(), tx, "a", AtLeast(token)); !errors.Is(err, ErrParked) {
		t.Errorf("in a transaction: %v", err)
	}
	if row, err := v.Get(t.Context(), tx, "a"); err != nil || row.Sum != 7 {
		t.Errorf("in a transaction that was told so: %+v %v", row, err)
	}

	w.exec("UPDATE daybook.parked SET state = 'draining', due_at = NULL")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	stale := mustBe[*StaleError](t, w.waiter().WaitFor(ctx, token, v))
	if stale.Have.Ordinal() != e.Position.Ordinal()-1 {
		t.Errorf("%+v", stale)
	}
	if row, err := v.Get(t.Context(), w.pool, "a", AtLeast(token), Within(50*time.Millisecond), Lenient()); err != nil || row.Sum != 7 {
		t.Errorf("lenient: %+v %v", row, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.waiter().WaitFor(t.Context(), token, v) }()
	w.exec("DELETE FROM daybook.parked")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the wait does not end when the sequence is released")
	}
}
