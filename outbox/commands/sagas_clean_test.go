package commands

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// hearsReplies registers the consumer of a saga's replies, as a manager does, that has passed what lies at or below floor.
func (w *sagaWorld) hearsReplies(floor int64) {
	w.t.Helper()
	name := sagaReplies(checkout)
	w.exec("INSERT INTO daybook.consumers (consumer, version, kind) VALUES ($1, 1, 'saga')", name)
	w.exec("INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition, floor) VALUES ($1, 1, 0, 0, 63, $2)", name, floor)
	w.exec("INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ($1, 'saga-checkout', $1, 1)", name)
}

func (w *sagaWorld) passes() {
	w.t.Helper()
	head, err := w.store.Outbox().SafeHead(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec("UPDATE daybook.segments SET floor = $1 WHERE consumer = 'saga-checkout-replies'", head.Ordinal())
}

// carriesOut sends commands and waits for their ends.
func (w *sagaWorld) carriesOut(n int) {
	w.t.Helper()
	var all []flow.Command
	var ids []string
	for i := range n {
		all = append(all, w.do(add{fmt.Sprint("till ", i%3), int64(i + 1)}))
		ids = append(ids, all[i].ID.String())
	}
	w.sends(all...)
	livetest.Eventually(w.t, "the ends are told", func() bool {
		return ask[int](w.world, "SELECT count(*) FROM daybook.outbox WHERE topic = $1 AND causation_id = ANY ($2)", sagaReplies(checkout), ids) == n
	})
}

func (w *sagaWorld) stored(topic string) int {
	w.t.Helper()
	return ask[int](w.world, "SELECT count(*) FROM daybook.outbox WHERE topic = $1", topic)
}

// The rows of a saga's commands, and of their ends, go where no relay runs and where one does: when the dispatcher has passed
// the ones, and the saga the others.
func TestRowsOfSagasGo(t *testing.T) {
	t.Parallel()
	for name, relay := range map[string]bool{"without a relay": false, "with a relay": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSagaWorld(t)
			replies := sagaReplies(checkout)
			w.hearsReplies(0)
			source := Local(w.store.Outbox())
			if relay {
				source = w.published()
			}
			w.start(w.dispatcher(source, Config{CleanEvery: 10 * time.Millisecond}))
			w.carriesOut(30)
			w.passes()
			all := func() int { return ask[int](w.world, "SELECT count(*) FROM daybook.outbox") }
			// The last row of the outbox stays: the end of the log is read from it.
			if relay {
				w.store.Wake()
				livetest.Eventually(t, "they are gone", func() bool {
					if _, err := w.store.Outbox().Clean(t.Context(), time.Hour); err != nil {
						t.Fatal(err)
					}
					return all() <= 1
				})
			} else {
				livetest.Eventually(t, "they are gone", func() bool { return all() <= 1 })
			}
			// What the saga has not passed stays.
			w.carriesOut(5)
			if _, err := w.store.Outbox().Clean(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			if n := w.stored(replies); n < 5 {
				t.Errorf("%d ends are left, and the saga has passed none of 5", n)
			}
		})
	}
}

// Where no relay has run, only that goes which no relay has to publish: not a message, nor what is named like the topic of a
// saga and is none.
func TestWhatWaitsForARelayStays(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"news", sagaReplies("another"), sagaReplies(checkout) + "x"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			w := newSagaWorld(t)
			w.hearsReplies(0)
			w.run(Config{})
			w.exec("INSERT INTO daybook.consumers (consumer, version, kind) VALUES ($1, 1, 'projection')", topic)
			w.inTx(func(tx pgx.Tx) error {
				return outbox.Enqueue(t.Context(), tx, outbox.Message{Topic: topic, Key: "k", Type: "t", Data: []byte("x")})
			})
			w.exec("UPDATE daybook.outbox SET recorded_at = recorded_at - interval '1 day'") // nobody follows it
			w.carriesOut(5)
			w.passes()
			report, err := w.store.Outbox().Clean(t.Context(), forLong)
			if err != nil || report.Rows != 0 || report.Cleaned != (eventstore.Position{}) || w.stored(topic) != 1 {
				t.Errorf("cleaned was %+v, %v", report, err)
			}
		})
	}
}
