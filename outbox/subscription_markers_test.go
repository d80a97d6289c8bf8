package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/testscale"
)

// withKeys gives the messages of each partition to several keys.
func withKeys(random *rand.Rand, messages []eventstore.OutboxMessage, keys int) []eventstore.OutboxMessage {
	for i := range messages {
		messages[i].PartitionKey = fmt.Sprintf("key %d of %d", random.IntN(keys), messages[i].Partition)
	}
	return messages
}

// setAside is what relays send of messages when the broker refuses one and takes it later: markers from there on, the
// redriven ones, the key as before; and what a relay sends that had stood still since before that.
func setAside(random *rand.Rand, rows *fakeRows, messages []eventstore.OutboxMessage) []*message.Message {
	type place struct {
		eventstore.OutboxMessage
		previous eventstore.Position
	}
	encoder := newEncoder(rows.epoch, rows.Schema())
	tails := make([]eventstore.Position, rows.partitions)
	aside := map[string][]place{}
	var all []*message.Message
	frozen := place{}
	release := func(key string) {
		for _, p := range aside[key] {
			all = append(all, encoder.encodeSkip(p.OutboxMessage, p.previous))
			if random.IntN(10) == 0 {
				all = append(all, encoder.encodeDiscarded(p.OutboxMessage, p.previous))
			} else {
				all = append(all, encoder.encodeRedriven(p.OutboxMessage, p.previous))
			}
		}
		delete(aside, key)
	}
	for _, m := range messages {
		p := place{m, tails[m.Partition]}
		tails[m.Partition] = m.Position
		_, waits := aside[m.PartitionKey]
		if waits || random.IntN(20) == 0 {
			aside[m.PartitionKey] = append(aside[m.PartitionKey], p)
			all = append(all, encoder.encodeSkip(m, p.previous))
			if frozen.Position.IsZero() || random.IntN(3) == 0 {
				frozen = p
			}
		} else {
			all = append(all, encoder.encode(m, p.previous))
		}
		if waits && random.IntN(5) == 0 {
			release(m.PartitionKey)
		}
		if !frozen.Position.IsZero() && random.IntN(10) == 0 {
			all = append(all, encoder.encode(frozen.OutboxMessage, frozen.previous))
		}
	}
	for key := range aside {
		release(key)
	}
	return all
}

// Markers, redriven messages and what a frozen relay sends, lost, doubled and shuffled: each message is applied once, in the
// order of its partition, from buffers and batches of any size.
func TestSubscriptionFillsMarkers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testscale.N(400)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 2))
				rows, broker := newFakeRows(4), newFakeBroker()
				messages := withKeys(random, someMessages(random, "test", 4, 300), 3)
				s := newTestSubscription(t, rows, broker, SubscriptionConfig{Buffer: 1 + random.IntN(50)})
				f := &follower{t: t, partitions: 4}
				beside(t, func(ctx context.Context) {
					<-broker.subs
					left := messages
					for i, m := range worsened(random, setAside(random, rows, messages)) {
						for len(left) > 0 && position(t, m).After(rows.end()) {
							rows.add(left[0]) // committed before it is published
							left = left[1:]
						}
						broker.send(ctx, m)
						if i%10 == 9 {
							rest(ctx, time.Millisecond)
						}
					}
					rows.add(left...)
				})
				if err := f.follow(t.Context(), s, 1+random.IntN(40), f.has(messages)); err != nil {
					t.Fatal(err)
				}
				f.complete(messages)
			})
		})
	}
}

// One message of one key is refused, and a hundred of that partition follow, of which every tenth is of the same key. All are
// applied without a wait, with few queries.
func TestSubscriptionOfOneRefusedMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(1), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(4, 1)), "test", 1, 101)
		encoder := newEncoder(rows.epoch, rows.Schema())
		var sent []*message.Message
		previous := eventstore.Position{}
		for i, m := range messages {
			if i%10 == 0 {
				sent = append(sent, encoder.encodeSkip(m, previous))
			} else {
				sent = append(sent, encoder.encode(m, previous))
			}
			previous = m.Position
		}
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
		feed := s.follow(t.Context(), consumer.Follower{Limit: 50})
		defer feed.Close()
		<-broker.subs
		f := &follower{t: t, partitions: 1}
		take := func() {
			batch, err := feed.Next(t.Context(), time.Now().Add(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			f.events = append(f.events, batch.Events...)
			f.applied = f.applied.Raise(1, batch.Floor, batch.Marks)
		}
		take() // looks where it is
		rows.add(messages...)
		began := time.Now()
		broker.send(t.Context(), sent...)
		synctest.Wait()
		for !f.has(messages)() {
			take()
		}
		f.complete(messages)
		if waited := time.Since(began); waited > 0 || rows.reads > 10 {
			t.Errorf("it took %v and %d queries", waited, rows.reads)
		}
		if stats := s.Stats(); stats.Silences != 0 {
			t.Errorf("%+v", stats)
		}
		reads := rows.reads
		for _, m := range []*message.Message{sent[0], encoder.encodeRedriven(messages[0], eventstore.Position{}), sent[10]} {
			broker.send(t.Context(), m)
		}
		synctest.Wait()
		take()
		if len(f.events) != len(messages) || rows.reads != reads {
			t.Errorf("%d events and %d queries after repeats", len(f.events), rows.reads-reads)
		}
	})
}
