package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// inMemory is a store in memory as one of several processes would have it.
type inMemory struct{ *memory.Store }

// onEngines runs a test on each engine, with one log that two processes have a store of.
func onEngines(t *testing.T, test func(t *testing.T, stores [2]aggregate.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		store := memory.New(memory.Config{})
		test(t, [2]aggregate.Store{store, &inMemory{store}})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		pool := postgrestest.New(t, postgrestest.WithMaxConns(24))
		var stores [2]aggregate.Store
		for i := range stores {
			store, err := postgres.New(t.Context(), pool, postgres.Config{MaxConns: 12})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(store.Close)
			stores[i] = store
		}
		test(t, stores)
	})
}

const accountsOfAll = 100

// client sends orders, and sends them again: when it lost patience, and sometimes for no reason.
type client struct {
	random  *rand.Rand
	clock   *clock
	number  int
	history [accountsOfAll][]porcupine.Operation
	taken   [accountsOfAll]int64
	again   int
	merged  int
}

func (c *client) send(ctx context.Context, accounts []*aggregate.Repository[Account, Event], n int) error {
	place := min(c.random.IntN(accountsOfAll), c.random.IntN(accountsOfAll)) // some are hotter
	o := order{take: 1 + c.random.Int64N(40), key: fmt.Sprintf("%d-%d", c.number, n)}
	if c.random.IntN(5) == 0 {
		o.take, o.put = 0, o.take
	}
	called := c.clock.now.Add(1)
	unsure := false
	for try := range 200 {
		within, cancel := ctx, context.CancelFunc(func() {})
		if try < 3 && c.random.IntN(8) == 0 {
			within, cancel = context.WithTimeout(ctx, time.Duration(c.random.Int64N(int64(4*time.Millisecond))))
		}
		accounts := accounts[c.random.IntN(len(accounts))]
		result, err := accounts.Handle(within, fmt.Sprint(place), o.Decide, key(o.key, aggregate.InScope("clients")))
		cancel()
		c.merged += result.Merged
		answer, err := answerOf(result, err)
		if err != nil {
			if passing := eventstore.IsRetryable(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, eventstore.ErrUnconfirmed); !passing || ctx.Err() != nil {
				return fmt.Errorf("%s: %w", o.key, err)
			}
			unsure = true
			c.again++
			continue
		}
		answer.unsure = unsure
		c.history[place] = append(c.history[place], porcupine.Operation{ClientId: c.number, Input: o, Output: answer, Call: called, Return: c.clock.now.Add(1)})
		if answer.accepted && (!answer.repeated || unsure) {
			c.taken[place] += o.take - o.put
		}
		if c.random.IntN(6) == 0 {
			return c.sendAgain(ctx, accounts, place, o, answer)
		}
		return nil
	}
	return fmt.Errorf("%s: no answer", o.key)
}

// sendAgain sends a duplicate that nobody needs. It must be a repeat.
func (c *client) sendAgain(ctx context.Context, accounts *aggregate.Repository[Account, Event], place int, o order, first answer) error {
	called := c.clock.now.Add(1)
	result, err := accounts.Handle(ctx, fmt.Sprint(place), o.Decide, key(o.key, aggregate.InScope("clients")))
	answer, err := answerOf(result, err)
	if err != nil {
		return err
	}
	if !answer.repeated || answer.accepted != first.accepted {
		return fmt.Errorf("%s: %+v, then %+v", o.key, first, answer)
	}
	c.again++
	c.history[place] = append(c.history[place], porcupine.Operation{ClientId: c.number, Input: o, Output: answer, Call: called, Return: c.clock.now.Add(1)})
	return nil
}

// 64 clients of two processes withdraw from 100 accounts, lose patience, and send again: accepted commands and balances
// are those of a serial execution, for each account, and sums are exact.
func TestManyClients(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, stores [2]aggregate.Store) {
		const clients, opening = 64, 300
		retry := aggregate.WithRetry(aggregate.Retry{Retries: 10, Base: time.Millisecond, Cap: 20 * time.Millisecond})
		accounts := []*aggregate.Repository[Account, Event]{
			aggregate.NewRepository(stores[0], purses, retry), aggregate.NewRepository(stores[0], purses, retry, aggregate.WithoutLanes()),
			aggregate.NewRepository(stores[1], purses, retry, aggregate.WithCache(1<<20)), aggregate.NewRepository(stores[1], purses, retry),
		}
		var c clock
		history := make([][]porcupine.Operation, accountsOfAll)
		for i := range accountsOfAll {
			o := order{put: opening}
			called := c.now.Add(1)
			result, err := accounts[0].Handle(t.Context(), fmt.Sprint(i), o.Decide)
			answer, err := answerOf(result, err)
			if err != nil {
				t.Fatal(err)
			}
			history[i] = append(history[i], porcupine.Operation{ClientId: clients, Input: o, Output: answer, Call: called, Return: c.now.Add(1)})
		}
		total := testscale.N(10_000)
		var next atomic.Int64
		var all sync.WaitGroup
		crowd := make([]*client, clients)
		for i := range crowd {
			crowd[i] = &client{random: rand.New(rand.NewPCG(uint64(i), 4)), clock: &c, number: i}
			all.Go(func() {
				for n := next.Add(1); n <= int64(total); n = next.Add(1) {
					if err := crowd[i].send(t.Context(), accounts, int(n)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		again, merged := 0, 0
		for i := range accountsOfAll {
			balance := int64(opening)
			for _, c := range crowd {
				history[i] = append(history[i], c.history[i]...)
				balance -= c.taken[i]
			}
			loaded, err := accounts[0].Load(t.Context(), fmt.Sprint(i), aggregate.FromEvents())
			if err != nil || loaded.State.Balance != balance || balance < 0 {
				t.Errorf("account %d: %+v, %v; the answers make %d", i, loaded, err, balance)
			}
			if !linearizable(t, history[i]) {
				t.Errorf("account %d: no serial order explains %d answers", i, len(history[i]))
			}
		}
		for _, c := range crowd {
			again, merged = again+c.again, merged+c.merged
		}
		if again == 0 {
			t.Error("nothing was sent again")
		}
		t.Logf("%d commands, %d sent again, %d merged", total, again, merged)
	})
}

// One key, two processes, many callers: applied once.
func TestTwoProcessesWithOneKey(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, stores [2]aggregate.Store) {
		accounts := [2]*aggregate.Repository[Account, Event]{newAccounts(stores[0]), newAccounts(stores[1])}
		for _, test := range []struct {
			name string
			o    order
			want error
		}{{"accepted", order{put: 5}, nil}, {"refused", order{take: 100}, ErrFunds}} {
			var all sync.WaitGroup
			var firsts atomic.Int32
			for i := range 200 {
				all.Go(func() {
					result, err := accounts[i%2].Handle(t.Context(), "a", test.o.Decide, key(test.name))
					if !errors.Is(err, test.want) {
						t.Errorf("%s: %v", test.name, err)
					}
					if !result.Repeated {
						firsts.Add(1)
					}
					if err == nil && (result.Version != 1 || result.State.Balance != 5 || result.Token.IsZero()) {
						t.Errorf("%s: %+v", test.name, result)
					}
				})
			}
			all.Wait()
			if firsts.Load() != 1 || len(streamOf(t, stores[0], "a")) != 1 {
				t.Errorf("%s: %d first answers, %d events", test.name, firsts.Load(), len(streamOf(t, stores[0], "a")))
			}
		}
		// Who asks to be told is told by the other process.
		tell := key("tell", aggregate.TellIfRunning())
		result, err := accounts[0].Handle(t.Context(), "a", func(a Account) ([]Event, error) {
			if _, err := accounts[1].Handle(t.Context(), "a", never(t), tell); !errors.Is(err, eventstore.ErrInProgress) {
				t.Errorf("told %v", err)
			}
			return order{put: 1}.Decide(a)
		}, tell)
		again, err2 := accounts[1].Handle(t.Context(), "a", otherwise, tell)
		if err != nil || err2 != nil || result.Repeated || !again.Repeated || again.Version != result.Version {
			t.Errorf("%+v, %v, then %+v, %v", result, err, again, err2)
		}
	})
}

// Writers of another process that never rest cannot starve a command: its last try locks them out.
func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, stores [2]aggregate.Store) {
		others := aggregate.NewRepository(stores[1], Type, aggregate.WithoutLanes(), // nothing is merged here
			aggregate.WithRetry(aggregate.Retry{Retries: 1 << 20, Base: time.Microsecond, Cap: time.Microsecond}))
		one := aggregate.NewRepository(stores[0], Type)
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		defer stop()
		var all sync.WaitGroup
		var written atomic.Int64
		busy := make(chan struct{}, 16)
		for range 16 {
			all.Go(func() {
				for ctx.Err() == nil {
					if _, err := others.Handle(ctx, "hot", Deposit{1}.Decide); err == nil {
						written.Add(1)
						select {
						case busy <- struct{}{}:
						default:
						}
					}
				}
			})
		}
		atIt := func() {
			t.Helper()
			select {
			case <-busy:
			case <-ctx.Done():
				t.Fatal("the others stand still")
			}
		}
		for range 16 {
			atIt()
		}
		exclusive := 0
		for i := range 10 {
			atIt()
			var opts []aggregate.HandleOption
			if i%2 == 0 {
				opts = append(opts, key(fmt.Sprint(i)))
			}
			result, err := one.Handle(ctx, "hot", Deposit{1000}.Decide, opts...)
			if err != nil {
				t.Errorf("%d: %v after %d attempts", i, err, result.Attempts)
			}
			if result.Attempts == 4 {
				exclusive++
			}
		}
		// And by choice: one attempt.
		result, err := one.Handle(ctx, "hot", Deposit{1000}.Decide, aggregate.Exclusive())
		if err != nil || result.Attempts != 1 {
			t.Errorf("exclusive: %+v, %v", result, err)
		}
		stop()
		all.Wait()
		loaded := must[aggregate.Loaded[Account]](t)(one.Load(t.Context(), "hot"))
		if loaded.State.Balance/1000 < 11 || written.Load() == 0 {
			t.Errorf("%+v, %d written by others", loaded, written.Load())
		}
		t.Logf("%d of 10 needed the lock; others wrote %d", exclusive, written.Load())
	})
}
