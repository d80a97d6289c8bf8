//go:build unix

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

// here runs a worker in this process until all of n orders have ended.
func (w *tortureWorld) here(n int, what worker) {
	w.t.Helper()
	what.url, what.logs = postgrestest.URL(w.pool), &w.logs
	if what.reached == nil {
		what.reached = func(string) {}
	}
	stop := livetest.Start(w.t, what.run)
	if took, ended := w.through(n, calmPatience, func() {}); !ended {
		w.t.Fatalf("it does not end within %v: %s", took, w.unended())
	}
	stop()
}

// notices fails unless there is a fault that says so.
func (w *tortureWorld) notices(n int, what, text string) {
	w.t.Helper()
	faults, _, err := w.audit(w.t.Context(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range faults {
		if strings.Contains(f, text) {
			return
		}
	}
	w.t.Errorf("%s: no fault says %q, only\n%s", what, text, strings.Join(faults, "\n"))
}

// Eight managers and two dispatchers in one process: no deadlock, nothing twice. What is made wrong afterwards is noticed.
func TestTortureManagersSideBySide(t *testing.T) {
	t.Parallel()
	n := testscale.N(1000)
	if testscale.Factor() < 1 { // all fates
		n = 50
	}
	w := newTortureWorld(t)
	w.here(n, worker{managers: 8, dispatchers: 2})
	w.sound(n)
	if t.Failed() {
		return
	}
	e, err := orderEvents.Encode(held{keyOf(20), 1})
	if err != nil {
		t.Fatal(err)
	}
	e.Metadata.CausationID = uuid.NewString()
	if _, err := w.store.Append(t.Context(), eventstore.To(eventstore.NewStreamID("goods", orderOf(20, n).Goods), eventstore.AnyVersion, e)); err != nil {
		t.Fatal(err)
	}
	w.notices(n, "held twice", keyOf(20)+" (smooth) has brought about")
	w.notices(n, "held twice", "pieces in all")
	for _, c := range []struct{ what, sql, text string }{
		{"a step done twice", `INSERT INTO daybook.saga_history (saga, key, run, entry, kind, step, text)
			SELECT saga, key, run, 1000, kind, step, text FROM daybook.saga_history WHERE key = 'o21' AND kind = 'answered' AND step = 'goods'`, "o21 run 1: goods answered"},
		{"a step undone twice", `INSERT INTO daybook.saga_history (saga, key, run, entry, kind, step, text)
			SELECT saga, key, run, 1000, kind, step, text FROM daybook.saga_history WHERE key = 'o4' AND kind = 'undone' AND step = 'goods'`, "o4 run 1: goods undone"},
		{"another end", "UPDATE daybook.sagas SET state = 'compensated' WHERE key = 'o22'", "o22 is compensated"},
		{"no end", "UPDATE daybook.sagas SET ended_at = NULL WHERE key = 'o23'", "o23 is completed"},
		{"no instance", "DELETE FROM daybook.sagas WHERE key = 'o24'", "o24 has not begun"},
		{"a timer", "INSERT INTO daybook.timers (queue, name, due_at, visible_at) VALUES ('saga:order', 'x', now(), now())", "1 timers that are left"},
	} {
		if k := livetest.Exec(t, w.pool, c.sql); k != 1 {
			t.Fatalf("%s: %d rows", c.what, k)
		}
		w.notices(n, c.what, c.text)
	}
}

// renaming sends each command twice, the second time under an id of its own, as one does who has ids by attempt.
type renaming struct{ saga.Sender }

func (r renaming) Enqueue(ctx context.Context, tx pgx.Tx, name string, meta []eventstore.Metadata, list []flow.Command) error {
	var again []bus.Command
	for i, c := range list {
		again = append(again, bus.Command{
			ID: uuid.New(), Type: c.Type, Data: c.Data, ContentType: c.ContentType, Target: c.Target, Undoes: c.Undoes, Metadata: meta[i],
		})
	}
	return errors.Join(r.Sender.Enqueue(ctx, tx, name, meta, list), commands.Enqueue(ctx, tx, again...))
}

// When what is tried again has another id, it happens twice, and that is noticed.
func TestTortureNoticesIDsByAttempt(t *testing.T) {
	t.Parallel()
	const n = 20
	w := newTortureWorld(t)
	w.here(n, worker{managers: 1, dispatchers: 1, sender: func(s saga.Sender) saga.Sender { return renaming{s} }})
	w.notices(n, "ids by attempt", "held:2")
	w.notices(n, "ids by attempt", "cents in all")
}

// When receivers do not know what they have carried out, what a worker had in hand when it was killed happens twice, and that
// is noticed.
func TestTortureNoticesForgetfulReceivers(t *testing.T) {
	t.Parallel()
	const n = 2 * page
	w := newTortureWorld(t)
	w.env = []string{tortureForgetful + "=1"}
	const kills = 8 // not each of them has a command in hand that does harm when it happens twice
	next := func() *tortured {
		if w.kills >= kills {
			return w.spawn()
		}
		return w.spawn(fmt.Sprintf("%s=carried out:%d:kill", tortureAt, 5+w.kills))
	}
	w.alive = append(w.alive, next(), next())
	took, ended := w.through(n, calmPatience, func() {
		for i, p := range w.alive {
			select {
			case <-p.Ended():
				w.kills++
				w.alive[i] = next()
			default:
			}
		}
	})
	w.end()
	if !ended || w.kills == 0 {
		t.Fatalf("%d kills in %v: %s", w.kills, took, w.unended())
	}
	w.notices(n, "forgetful receivers", " effects")
	w.notices(n, "forgetful receivers", "has brought about")
}
