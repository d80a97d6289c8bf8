package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/testscale"
)

// run follows a subscription as a worker does, and checks each batch: events of a partition rise, none lies at or below
// what was applied, none beyond what the batch says. It ends when done says so.
type follower struct {
	t          *testing.T
	partitions int
	applied    consumer.Progress
	events     []eventstore.RecordedEvent
}

func (f *follower) follow(ctx context.Context, s *Subscription, limit int, done func() bool) error {
	feed := s.follow(ctx, consumer.Follower{Ref: consumer.Ref{Store: "daybook", Name: "test", Version: 1}, Applied: f.applied, Limit: limit})
	defer feed.Close()
	for !done() {
		batch, err := feed.Next(ctx, time.Now().Add(10*time.Millisecond))
		if err != nil {
			return err
		}
		next := f.applied.Raise(f.partitions, batch.Floor, batch.Marks)
		for i, e := range batch.Events {
			before := f.applied.At(e.Partition)
			for _, earlier := range batch.Events[:i] {
				if earlier.Partition == e.Partition {
					before = earlier.Position
				}
			}
			if !e.Position.After(before) || e.Position.After(next.At(e.Partition)) {
				f.t.Errorf("partition %d: position %s comes after %s, and the batch leads to %s", e.Partition, e.Position, before, next.At(e.Partition))
			}
		}
		if len(batch.Events) > limit {
			f.t.Errorf("a batch has %d events, more than %d", len(batch.Events), limit)
		}
		f.events = append(f.events, batch.Events...)
		f.applied = next
	}
	return nil
}

// has reports whether everything up to the end of messages is applied.
func (f *follower) has(messages []eventstore.OutboxMessage) func() bool {
	end := messages[len(messages)-1].Position
	return func() bool { return !f.applied.Floor().Before(end) }
}

// complete checks that the events are exactly those of messages.
func (f *follower) complete(messages []eventstore.OutboxMessage) {
	f.t.Helper()
	want, got := map[int][]string{}, map[int][]string{}
	for _, m := range messages {
		want[m.Partition] = append(want[m.Partition], m.Position.String()+string(m.Data))
	}
	for _, e := range f.events {
		got[e.Partition] = append(got[e.Partition], e.Position.String()+string(e.Data))
	}
	for p := range f.partitions {
		if fmt.Sprint(got[p]) != fmt.Sprint(want[p]) {
			f.t.Errorf("partition %d:\n got %v\nwant %v", p, got[p], want[p])
		}
	}
}

// beside runs f in a goroutine that is told to end, and has ended, when the test ends.
func beside(t *testing.T, f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func newTestSubscription(t *testing.T, rows Rows, subscriber message.Subscriber, cfg SubscriptionConfig) *Subscription {
	t.Helper()
	cfg.Topic, cfg.Group = "test", "tests"
	s, err := NewSubscription(rows, subscriber, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSubscriptionMakesGoodWhatABrokerDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testscale.N(400)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				rows, broker := newFakeRows(4), newFakeBroker()
				messages := someMessages(random, "test", 4, 300)
				s := newTestSubscription(t, rows, broker, SubscriptionConfig{Buffer: 1 + random.IntN(50)})
				f := &follower{t: t, partitions: 4}
				beside(t, func(ctx context.Context) {
					<-broker.subs
					left := messages
					for i, m := range worsened(random, published(rows, messages)) {
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

func TestSubscriptionReadsNothingFromAPerfectBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(4), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(1, 1)), "test", 4, 500)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
		f := &follower{t: t, partitions: 4}
		beside(t, func(ctx context.Context) {
			<-broker.subs
			rows.add(messages...)
			broker.send(ctx, published(rows, messages)...)
		})
		if err := f.follow(t.Context(), s, 50, f.has(messages)); err != nil {
			t.Fatal(err)
		}
		f.complete(messages)
		if stats := s.Stats(); stats.Filled != 0 || stats.Silences != 0 || stats.Overruns != 0 {
			t.Errorf("of a perfect broker: %+v", stats)
		}
	})
}

// TestSubscriptionWithoutABroker: a broker that never says anything costs latency only.
func TestSubscriptionWithoutABroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(4), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(1, 1)), "test", 4, 200)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
		f := &follower{t: t, partitions: 4}
		beside(t, func(ctx context.Context) {
			<-broker.subs
			for _, m := range messages {
				rows.add(m)
				rest(ctx, 50*time.Millisecond)
			}
		})
		began := time.Now()
		if err := f.follow(t.Context(), s, 50, f.has(messages)); err != nil {
			t.Fatal(err)
		}
		f.complete(messages)
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("what was written within 10 s was applied after %v", took)
		}
		if s.Stats().Silences == 0 {
			t.Error("no silence was noticed")
		}
	})
}

// TestSubscriptionFindsTheLastMessage: nothing comes after it that would show the hole.
func TestSubscriptionFindsTheLastMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(2), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(2, 1)), "test", 2, 20)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
		f := &follower{t: t, partitions: 2}
		beside(t, func(ctx context.Context) {
			<-broker.subs
			rows.add(messages...)
			broker.send(ctx, published(rows, messages)[:19]...)
		})
		if err := f.follow(t.Context(), s, 50, f.has(messages)); err != nil {
			t.Fatal(err)
		}
		f.complete(messages)
	})
}

func TestSubscriptionStartsAtTheHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(4), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(3, 1)), "test", 4, 100)
		rows.add(messages[:60]...)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{StartAt: AtHead})
		f := &follower{t: t, partitions: 4, applied: consumer.ProgressAt(rows.end())} // as Begin has it
		var ready atomic.Bool
		beside(t, func(ctx context.Context) {
			<-broker.subs
			rest(ctx, time.Second/2)
			ready.Store(true)
			// What was sent before and comes late must not be taken for what is new.
			rows.add(messages[60:]...)
			broker.send(ctx, published(rows, messages)[50:]...)
		})
		if err := f.follow(t.Context(), s, 50, func() bool { return ready.Load() && f.has(messages)() }); err != nil {
			t.Fatal(err)
		}
		f.complete(messages[60:])

		again := &follower{t: t, partitions: 4, applied: consumer.ProgressAt(messages[9].Position)}
		if err := again.follow(t.Context(), s, 50, again.has(messages)); err != nil {
			t.Fatal(err)
		}
		again.complete(messages[10:]) // it had begun before: it goes on where it was
	})
}

// TestSubscriptionSwitchesBetweenLogAndStream: partitions that are ahead stay ahead, the others come up.
func TestSubscriptionSwitchesBetweenLogAndStream(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			rows, broker := newFakeRows(4), newFakeBroker()
			messages := someMessages(random, "test", 4, 200)
			s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
			f := &follower{t: t, partitions: 4}
			beside(t, func(ctx context.Context) {
				sent := published(rows, messages)
				for i, m := range messages {
					rows.add(m)
					broker.send(ctx, sent[i])
					rest(ctx, time.Millisecond)
				}
			})
			for !f.has(messages)() {
				until := time.Now().Add(time.Duration(random.IntN(40)) * time.Millisecond)
				if err := f.follow(t.Context(), s, 20, func() bool { return time.Now().After(until) || f.has(messages)() }); err != nil {
					t.Fatal(err)
				}
				log := consumer.FollowLog(t.Context(), s, consumer.Follower{Applied: f.applied, Limit: 7})
				for range random.IntN(4) {
					batch, err := log.Next(t.Context(), time.Now())
					if err != nil {
						t.Fatal(err)
					}
					f.events = append(f.events, batch.Events...)
					f.applied = f.applied.Raise(4, batch.Floor, nil)
				}
				log.Close()
			}
			f.complete(messages)
		})
	}
}

func TestSubscriptionOfALostGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(2), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(4, 1)), "test", 2, 50)
		rows.add(messages...)
		rows.clean(messages[20].Position.Ordinal())
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
		f := &follower{t: t, partitions: 2, applied: consumer.ProgressAt(messages[10].Position)}
		err := f.follow(t.Context(), s, 50, f.has(messages))
		var lost *LostError
		if !errors.Is(err, ErrLost) || !errors.As(err, &lost) || lost.Group != "tests" || lost.Consumer != "test" ||
			lost.Applied != messages[10].Position || lost.Cleaned != messages[20].Position {
			t.Errorf("the error is %v", err)
		}

		// A topic that carries the whole log is caught up with from there.
		log := newFakeRows(2)
		log.add(messages...)
		whole := newTestSubscription(t, rows, broker, SubscriptionConfig{CatchUp: newTestSubscription(t, log, broker, SubscriptionConfig{})})
		if err := f.follow(t.Context(), whole, 50, f.has(messages)); err != nil {
			t.Fatal(err)
		}
		f.complete(messages[11:])
	})
}

func TestSubscriptionOfARemovedRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(1), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(4, 1)), "test", 1, 5)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
		f := &follower{t: t, partitions: 1}
		beside(t, func(ctx context.Context) {
			<-broker.subs
			rest(ctx, time.Millisecond)
			rows.add(messages[0], messages[1], messages[2], messages[4]) // the fourth was deleted by hand
			broker.send(ctx, published(rows, messages)[4])
		})
		err := f.follow(t.Context(), s, 50, f.has(messages))
		if err == nil || !strings.Contains(err.Error(), "removed by hand") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestSubscriptionAndEpochs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(1), newFakeBroker()
		old := newFakeRows(1)
		rows.earlier = []uuid.UUID{old.epoch}
		messages := someMessages(rand.New(rand.NewPCG(4, 1)), "test", 1, 5)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
		f := &follower{t: t, partitions: 1}
		beside(t, func(ctx context.Context) {
			<-broker.subs
			broker.send(ctx, published(old, messages)...) // taken back
			rows.add(messages...)
			broker.send(ctx, published(rows, messages)...)
		})
		if err := f.follow(t.Context(), s, 50, f.has(messages)); err != nil {
			t.Fatal(err)
		}
		f.complete(messages)
		if s.Stats().Refused != 5 {
			t.Errorf("%d messages were refused", s.Stats().Refused)
		}

		beside(t, func(ctx context.Context) { broker.send(ctx, published(newFakeRows(1), messages)[0]) })
		err := f.follow(t.Context(), s, 50, func() bool { return false })
		if !errors.Is(err, eventstore.ErrHistory) || !strings.Contains(err.Error(), "daybook epoch new") {
			t.Errorf("a message of an unknown epoch gives %v", err)
		}
	})
}

// TestSubscriptionOfASlowConsumer: it does not hold one that keeps up, nor the broker for long.
func TestSubscriptionOfASlowConsumer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(2), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(5, 1)), "test", 2, 500)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{Buffer: 20})
		slow := s.follow(t.Context(), consumer.Follower{Limit: 10})
		beside(t, func(ctx context.Context) {
			<-broker.subs
			rows.add(messages...)
			broker.send(ctx, published(rows, messages)...)
		})
		began := time.Now()
		f := &follower{t: t, partitions: 2}
		if err := f.follow(t.Context(), s, 50, f.has(messages)); err != nil {
			t.Fatal(err)
		}
		f.complete(messages)
		if took := time.Since(began); took > time.Second {
			t.Errorf("beside a consumer that stands still it took %v", took)
		}
		slow.Close()

		// Alone, it gets everything in the end, and the broker was held for a moment only.
		late := &follower{t: t, partitions: 2}
		if err := late.follow(t.Context(), s, 50, late.has(messages)); err != nil {
			t.Fatal(err)
		}
		late.complete(messages)
	})
}

func TestSubscriptionConfig(t *testing.T) {
	t.Parallel()
	_, err := NewSubscription(nil, nil, SubscriptionConfig{Topic: "a\nb", StartAt: 7, Buffer: -1, Silence: -1})
	for _, part := range []string{"rows is nil", "subscriber is nil", "opic", "Group", "StartAt", "Buffer", "Silence"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q: %v", part, err)
		}
	}
}

// TestSubscriptionHoldsWhatComesEarly: of one key comes 2, 1, 3, 1. The outbox is not needed for that.
func TestSubscriptionHoldsWhatComesEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := newFakeRows(1), newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(4, 1)), "test", 1, 3)
		sent := published(rows, messages)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
		feed := s.follow(t.Context(), consumer.Follower{Limit: 10})
		defer feed.Close()
		<-broker.subs
		step := func(m *message.Message, want ...int) {
			t.Helper()
			if m != nil {
				broker.send(t.Context(), m)
			}
			batch, err := feed.Next(t.Context(), time.Now().Add(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, e := range batch.Events {
				got = append(got, int(e.Version))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v is handed out, want %v", got, want)
			}
		}
		step(nil)
		rows.add(messages...)
		step(sent[1])       // held
		step(sent[0], 1, 2) // with what was held
		step(sent[2], 3)
		step(sent[0]) // skipped
		if stats := s.Stats(); rows.reads != 0 || stats.Repeated != 1 || stats.Filled != 0 {
			t.Errorf("%d reads of the outbox, %+v", rows.reads, stats)
		}
	})
}

// TestSubscriptionWaitsForTheHead: a hole that this process may not read yet is waited for, not asked for again and again.
func TestSubscriptionWaitsForTheHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rows, broker := &lateRows{fakeRows: newFakeRows(1)}, newFakeBroker()
		messages := someMessages(rand.New(rand.NewPCG(6, 1)), "test", 1, 3)
		s := newTestSubscription(t, rows, broker, SubscriptionConfig{Silence: time.Hour})
		f := &follower{t: t, partitions: 1}
		beside(t, func(ctx context.Context) {
			<-broker.subs
			rest(ctx, time.Millisecond)
			rows.late.Store(true)
			rows.add(messages...)
			broker.send(ctx, published(rows.fakeRows, messages)[2])
			rest(ctx, time.Second)
			rows.late.Store(false)
		})
		if err := f.follow(t.Context(), s, 10, f.has(messages)); err != nil {
			t.Fatal(err)
		}
		f.complete(messages)
		if n := rows.refused.Load(); n == 0 || n > 100 {
			t.Errorf("the outbox was asked %d times within a second", n)
		}
	})
}

// lateRows knows less of the log, for a while, than what a relay has published.
type lateRows struct {
	*fakeRows
	late    atomic.Bool
	refused atomic.Int64
}

func (r *lateRows) ReadPage(ctx context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	if r.late.Load() {
		r.refused.Add(1)
		return eventstore.OutboxPage{Through: q.After}, nil
	}
	return r.fakeRows.ReadPage(ctx, q)
}

func (r *lateRows) Wait(ctx context.Context, _ eventstore.Position) error {
	rest(ctx, 50*time.Millisecond) // as a log does that is not woken
	return ctx.Err()
}

// TestSubscriptionRefusesTheFuture: what lies beyond the end of the log stops the consumer by name, whatever it says comes
// before it.
func TestSubscriptionRefusesTheFuture(t *testing.T) {
	t.Parallel()
	for name, previous := range map[string]int64{"with a hole": 999_999, "without": 0} {
		synctest.Test(t, func(t *testing.T) {
			rows, broker := newFakeRows(1), newFakeBroker()
			messages := someMessages(rand.New(rand.NewPCG(7, 1)), "test", 1, 3)
			s := newTestSubscription(t, rows, broker, SubscriptionConfig{})
			f := &follower{t: t, partitions: 1}
			beside(t, func(ctx context.Context) {
				<-broker.subs
				rows.add(messages...)
				broker.send(ctx, published(rows, messages)...)
				forged := messages[0]
				forged.Position = eventstore.PositionAt(1_000_000)
				broker.send(ctx, newEncoder(rows.epoch, rows.Schema()).encode(forged, eventstore.PositionAt(previous)))
			})
			err := f.follow(t.Context(), s, 10, func() bool { return false })
			if !errors.Is(err, eventstore.ErrHistory) || !strings.Contains(err.Error(), "1000000") {
				t.Errorf("%s: the error is %v", name, err)
			}
			f.complete(messages)
		})
	}
}
