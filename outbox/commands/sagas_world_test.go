package commands

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// checkout is the saga of these tests, as far as a dispatcher sees one: rows of commands, and what is sent.
const checkout = "checkout"

type sagaWorld struct {
	*world
	sender *SagaSender

	mu     sync.Mutex
	undone map[uuid.UUID][]undone // what handlers of undos were told, by what they undo
}

// undoing is what the undos of these tests are; their handler notes what it is told.
func newSagaWorld(t testing.TB) *sagaWorld {
	t.Helper()
	w := &sagaWorld{world: newWorld(t), undone: map[uuid.UUID][]undone{}}
	w.sender = ForSagas(w.bus, w.store.Outbox())
	w.handles(func(ctx context.Context, _ anything) (bus.Reply, error) {
		w.notes(ctx)
		return bus.Reply{}, nil
	})
	return w
}

func (w *sagaWorld) notes(ctx context.Context) {
	c, _ := bus.CommandFrom(ctx)
	done, known := WasCarriedOut(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undone[c.Undoes] = append(w.undone[c.Undoes], undone{done, known})
}

func (w *sagaWorld) toldOf(do uuid.UUID) []undone {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]undone(nil), w.undone[do]...)
}

// do makes a command of a step, undo one that undoes it.
func (w *sagaWorld) do(payload any) flow.Command {
	w.t.Helper()
	c, err := w.sender.Prepare(context.Background(), "", payload)
	if err != nil {
		w.t.Fatal(err)
	}
	c.ID, c.Step, c.Direction, c.Intent = uuid.New(), "step", flow.Do, 1
	return c
}

func (w *sagaWorld) undo(do flow.Command, text string) flow.Command {
	w.t.Helper()
	c := w.do(anything{text})
	c.Direction, c.Undoes = flow.Undo, do.ID
	return c
}

const keepSQL = `
INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, undoes, type, target, content_type, data)
VALUES ($1::text::uuid, $2, 'key', 1, $3, $4, $5, nullif($6::text, '')::uuid, $7, $8, $9, $10) ON CONFLICT DO NOTHING`

// keep stores what a manager stores about a command.
func (w *sagaWorld) keep(c flow.Command) {
	w.t.Helper()
	undoes := ""
	if c.Undoes != uuid.Nil {
		undoes = c.Undoes.String()
	}
	w.exec(keepSQL, c.ID.String(), checkout, c.Step, string(c.Direction), c.Intent, undoes, c.Type, c.Target, c.ContentType, c.Data)
}

// delivers puts commands into the outbox, in one transaction.
func (w *sagaWorld) delivers(commands ...flow.Command) {
	w.t.Helper()
	meta := make([]eventstore.Metadata, len(commands))
	for i := range meta {
		meta[i] = eventstore.Metadata{Tenant: "acme", CorrelationID: "order 7", CausationID: "an event"}
	}
	w.inTx(func(tx pgx.Tx) error { return w.sender.Enqueue(context.Background(), tx, checkout, meta, commands) })
	w.store.Wake()
}

// closes says that the steps of commands are over.
func (w *sagaWorld) closes(commands ...flow.Command) {
	w.t.Helper()
	for _, c := range commands {
		w.exec("UPDATE daybook.saga_commands SET closed = true WHERE command = $1::text::uuid", c.ID.String())
	}
}

// hears stores the end of a command as a manager does that has its reply.
func (w *sagaWorld) hears(c flow.Command, state flow.ReplyState, code, reason string) {
	w.t.Helper()
	w.exec("UPDATE daybook.saga_commands SET state = $2, code = $3, reason = $4, replied_at = clock_timestamp() WHERE command = $1::text::uuid",
		c.ID.String(), string(state), code, reason)
}

// sends is keep and delivers.
func (w *sagaWorld) sends(commands ...flow.Command) {
	w.t.Helper()
	for _, c := range commands {
		w.keep(c)
	}
	w.delivers(commands...)
}

// reply waits for the end of a command, as the saga hears it.
func (w *sagaWorld) reply(c flow.Command, want flow.ReplyState) (found flow.Reply) {
	w.t.Helper()
	livetest.Eventually(w.t, "the end of a command is told", func() bool {
		for _, r := range w.ofSaga() {
			if r.Command == c.ID {
				found = r
				return true
			}
		}
		return false
	})
	if found.State != want {
		w.t.Errorf("%s %s ended %q (%s: %s), want %q", c.Type, c.ID, found.State, found.Code, found.Reason, want)
	}
	return found
}

// ofSaga are the replies to the saga so far.
func (w *sagaWorld) ofSaga() (replies []flow.Reply) {
	w.t.Helper()
	source, decode, err := w.sender.Replies(checkout)
	if err != nil {
		w.t.Fatal(err)
	}
	for after := (eventstore.Position{}); ; {
		page, err := source.ReadPage(context.Background(), after, eventstore.Filter{}, 100)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range page.Events {
			r, err := decode(e)
			if err != nil {
				w.t.Fatal(err)
			}
			replies = append(replies, r)
		}
		if page.Through == after {
			return replies
		}
		after = page.Through
	}
}

// forgets turns the outcomes over until none is left, as time does, and forgets operations too.
func (w *sagaWorld) forgets() {
	w.t.Helper()
	livetest.Eventually(w.t, "the outcomes are turned over", func() bool {
		w.exec(`SELECT daybook.turn_outcomes('1 hour', (SELECT since + interval '2 hours' FROM daybook.outcome_turn))`)
		return ask[int](w.world, "SELECT count(*) FROM daybook.outcomes") == 0
	})
	w.exec("DELETE FROM daybook.operations")
}

// settles waits until everything that was delivered is behind the dispatcher.
func (w *sagaWorld) settles() {
	w.t.Helper()
	last := w.send(add{"settled", time.Now().UnixNano()})
	w.ends(last, bus.OperationDone)
}
