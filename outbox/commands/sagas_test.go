package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// A saga's commands are carried out under their own ids, and their ends come back to it.
func TestCommandsOfSagas(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	errService := errors.New("the service did not answer")
	var got bus.Command
	w.handles(func(ctx context.Context, c anything) (bus.Reply, error) {
		if c.Text == "fail" {
			return bus.Reply{}, errService
		}
		got, _ = bus.CommandFrom(ctx)
		return bus.Reply{}, nil
	})
	w.run(Config{Attempts: 2})
	done, refused, failed := w.do(add{"a", 1}), w.do(add{"a", -1}), w.do(anything{"fail"})
	w.sends(done, refused, failed)
	if r := w.reply(done, flow.ReplyDone); r.At.IsZero() {
		t.Errorf("it was told as %+v", r)
	}
	if r := w.reply(refused, flow.ReplyRefused); r.Code != "negative" || r.Reason != errNegative.Error() {
		t.Errorf("it was told as %+v", r)
	}
	if r := w.reply(failed, flow.ReplyFailed); r.Code != CodeExhausted || !strings.Contains(r.Reason, errService.Error()) {
		t.Errorf("it was told as %+v", r)
	}
	undo := w.undo(done, "undo")
	w.sends(undo)
	w.reply(undo, flow.ReplyDone)
	if got.ID != undo.ID || got.Undoes != done.ID || got.Key != undo.ID.String() || got.Scope != "saga:checkout" || got.Metadata.CorrelationID != "order 7" {
		t.Errorf("the handler got %+v", got)
	}
	// Sent again, it is the same command, and the saga is not told twice.
	w.delivers(done)
	w.settles()
	if replies := w.ofSaga(); len(replies) != 4 {
		t.Errorf("the saga was told %+v", replies)
	}
	for e, err := range w.store.ReadStream(t.Context(), tillType.Stream("a"), eventstore.Range{}) {
		if err != nil || e.Metadata.CausationID != done.ID.String() || e.Metadata.CorrelationID != "order 7" || e.Metadata.Tenant != "acme" {
			t.Errorf("its event says %+v, %v", e.Metadata, err)
		}
	}
	w.wantNumbers("a", 1)
}

// What is over is not carried out, whatever is delivered again and however much later.
func TestWhatIsOverIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	stored := func(state flow.ReplyState, closed bool) func(flow.Command) {
		return func(c flow.Command) {
			w.keep(c)
			w.hears(c, state, "code", "reason")
			if closed {
				w.closes(c)
			}
		}
	}
	tests := []struct {
		name    string
		prepare func(flow.Command)
		state   flow.ReplyState
		code    string
	}{
		{"closed", func(c flow.Command) { w.keep(c); w.closes(c) }, flow.ReplyRefused, CodeSagaOver},
		{"removed", func(flow.Command) {}, flow.ReplyRefused, CodeSagaOver},
		{"done, closed", stored(flow.ReplyDone, true), flow.ReplyRefused, CodeSagaOver},
		{"failed, closed", stored(flow.ReplyFailed, true), flow.ReplyRefused, CodeSagaOver},
		{"done", stored(flow.ReplyDone, false), flow.ReplyDone, "code"},
		{"refused", stored(flow.ReplyRefused, false), flow.ReplyRefused, "code"},
		{"expired", stored(flow.ReplyExpired, false), flow.ReplyExpired, "code"},
		{"failed", stored(flow.ReplyFailed, false), flow.ReplyFailed, "code"},
	}
	var all, undos []flow.Command
	for n, test := range tests {
		c := w.do(add{"a", int64(n + 1)})
		test.prepare(c)
		u := w.undo(w.do(add{"a", 99}), "undo")
		test.prepare(u)
		all, undos = append(all, c), append(undos, u)
	}
	w.delivers(append(all, undos...)...)
	w.run(Config{})
	for n, test := range tests {
		for _, c := range []flow.Command{all[n], undos[n]} {
			if r := w.reply(c, test.state); r.Code != test.code || r.Reason == "" {
				t.Errorf("%s: told was %+v", test.name, r)
			}
		}
	}
	if got := w.numbers("a"); len(got) != 0 || len(w.undone) != 0 {
		t.Errorf("carried out were %v, %v", got, w.undone)
	}
}

// The keys of a store are kept for a shorter time than the saga lasts. What was carried out is not carried out again, what
// was undone never, in whichever order they come.
func TestKeysAreKeptShorterThanTheSagaLasts(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	w.run(Config{})
	done := w.do(add{"done", 1})
	w.sends(done)
	w.reply(done, flow.ReplyDone)
	w.hears(done, flow.ReplyDone, "", "")

	undoneLater := w.do(add{"undone", 1})
	w.sends(undoneLater)
	w.reply(undoneLater, flow.ReplyDone)
	undo := w.undo(undoneLater, "undo")
	w.closes(undoneLater)
	w.sends(undo)
	w.reply(undo, flow.ReplyDone)

	never := w.do(add{"never", 1})
	first := w.undo(never, "first")
	w.keep(never)
	w.closes(never)
	w.sends(first)
	w.reply(first, flow.ReplyDone)

	parked := w.do(anything{"parked"}) // failed, and redriven by hand after everything was undone
	w.handles(func(context.Context, anything) (bus.Reply, error) { return bus.Reply{}, errors.New("not now") })
	w.sends(parked)
	w.reply(parked, flow.ReplyFailed)
	w.hears(parked, flow.ReplyFailed, CodeExhausted, "not now")
	w.closes(parked)
	w.handles(func(context.Context, anything) (bus.Reply, error) {
		t.Error("it was carried out after its step was over")
		return bus.Reply{}, nil
	})

	w.forgets()
	before := len(w.ofSaga())
	w.delivers(done, undoneLater, never, parked)
	w.settles()
	w.wantNumbers("done", 1)
	w.wantNumbers("undone", 1)
	w.wantNumbers("never", 0)
	ends := map[uuid.UUID]flow.Reply{}
	for _, r := range w.ofSaga()[before:] {
		ends[r.Command] = r
	}
	for _, c := range []flow.Command{undoneLater, never, parked} {
		if r := ends[c.ID]; r.State != flow.ReplyRefused || r.Code != CodeSagaOver {
			t.Errorf("%s was told to have ended as %+v", c.ID, r)
		}
	}
	if r := ends[done.ID]; r.State != flow.ReplyDone {
		t.Errorf("what was done was told to have ended as %+v", r)
	}
}

// A dispatcher asks once for the commands of sagas in a batch, and never for others.
func TestOnlyCommandsOfSagasAreAskedFor(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	w.run(Config{})
	w.settles()
	of := w.do(add{"a", 2})
	w.keep(of)
	w.exec("ALTER TABLE daybook.saga_commands RENAME TO away") // who asks now gets an error
	w.ends(w.send(add{"a", 1}), bus.OperationDone)
	w.delivers(of)
	w.exec("ALTER TABLE daybook.away RENAME TO saga_commands")
	w.reply(of, flow.ReplyDone)
	w.wantNumbers("a", 2)
}

// The question is answered by the primary key, however many commands there are.
func TestAskingReadsByIndex(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	w.exec(`INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, type, content_type, data)
		SELECT gen_random_uuid(), 's', i::text, 1, 'a', 'do', 1, 't', 'x', '' FROM generate_series(1, 20000) i`)
	w.exec("ANALYZE daybook.saga_commands")
	ids := []string{uuid.NewString(), uuid.NewString()}
	rows, err := w.pool.Query(t.Context(), "EXPLAIN "+inSchema(standingSQL, "daybook"), ids, ids)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan on saga_commands") || !strings.Contains(text, "saga_commands_pkey") {
		t.Errorf("the plan is\n%s", text)
	}
}

// The sender of sagas takes neither deadline nor metadata from its caller, addresses commands, and names what is wrong.
func TestSagaSender(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	type note struct{ A int }
	bus.HandleAddressed(w.bus, bus.TypeOf[note]("till.note"), w.tills, func(n note, _ till) ([]event, error) { return []event{added{int64(n.A)}}, nil })
	ctx, cancel := context.WithTimeout(eventstore.WithMetadata(t.Context(), eventstore.Metadata{Tenant: "other"}), time.Minute)
	defer cancel()
	c, err := w.sender.Prepare(ctx, "a-b", note{1})
	if err != nil || c.Target != "till-a-b" || c.Type != "till.note" || len(c.Data) == 0 || c.ContentType != eventstore.Msgpack.ContentType() {
		t.Fatalf("prepared %+v, %v", c, err)
	}
	if _, err := w.sender.Prepare(ctx, "", note{1}); !errors.Is(err, bus.ErrInvalidCommand) {
		t.Errorf("one to nobody: %v", err)
	}
	if _, err := w.sender.Prepare(ctx, "", struct{}{}); !errors.Is(err, bus.ErrUnknownCommand) {
		t.Errorf("an unknown one: %v", err)
	}
	w.run(Config{})
	c.ID = uuid.New()
	w.sends(c)
	w.reply(c, flow.ReplyDone)
	w.wantNumbers("a-b", 1)
	if w.sender.Schema() != "daybook" {
		t.Errorf("its schema is %q", w.sender.Schema())
	}
	w.inTx(func(tx pgx.Tx) error {
		for _, err := range []error{
			w.sender.Enqueue(ctx, tx, checkout, nil, []flow.Command{c}),
			w.sender.Enqueue(ctx, tx, strings.Repeat("x", 300), make([]eventstore.Metadata, 1), []flow.Command{c}),
			w.sender.Enqueue(ctx, tx, checkout, []eventstore.Metadata{{Headers: map[string]string{headerSaga: "x"}}}, []flow.Command{c}),
		} {
			if !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("got %v", err)
			}
		}
		return w.sender.Enqueue(ctx, tx, checkout, nil, nil)
	})
	if _, _, err := w.sender.Replies(strings.Repeat("x", 300)); err == nil {
		t.Error("a name that is too long is taken")
	}
	for _, make := range []func(){func() { ForSagas(nil, w.store.Outbox()) }, func() { ForSagas(w.bus, nil) }} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "is nil: pass") {
					t.Errorf("panicked with %q", text)
				}
			}()
			make()
		}()
	}
	for _, e := range []eventstore.RecordedEvent{
		{}, {EventData: eventstore.EventData{Type: ReplyType, Metadata: eventstore.Metadata{CausationID: uuid.NewString()}, Data: replyData(t, "odd")}},
	} {
		if _, err := flowReply(e); err == nil {
			t.Errorf("%+v is taken for a reply", e)
		}
	}
}

func replyData(t *testing.T, state bus.OperationState) []byte {
	data, err := eventstore.Msgpack.Marshal(Reply{State: state})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
