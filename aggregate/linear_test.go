package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// An account as one machine that does one thing after the other. What commands that ran at once have answered must be
// what this machine answers in some order in which no command comes before one that had ended when it began.

// order is a command: take so much and put so much, or be refused.
type order struct {
	take, put int64
	key       string
}

func (o order) Decide(a Account) (events []Event, _ error) {
	if o.take > a.Balance {
		return nil, ErrFunds
	}
	if o.take > 0 {
		events = append(events, Withdrawn{o.take})
	}
	if o.put > 0 {
		events = append(events, Deposited{o.put})
	}
	return events, nil
}

type answer struct {
	accepted         bool
	version, balance int64 // after it, or on which it was refused; -1: not told
	repeated         bool
	unsure           bool // an earlier call with the key may have been the first
}

type machine struct {
	version, balance int64
	known            map[string]answer
}

var account = porcupine.Model{
	Init: func() any { return machine{} },
	Step: func(state, input, output any) (bool, any) {
		m, in, out := state.(machine), input.(order), output.(answer)
		if first, known := m.known[in.key]; known && in.key != "" {
			return (out.repeated || out.unsure) && out.accepted == first.accepted && out.fits(first.version, first.balance), m
		}
		if out.repeated && !out.unsure || out.accepted != (in.take <= m.balance) {
			return false, m
		}
		if out.accepted {
			m.balance += in.put - in.take
			for _, cents := range [...]int64{in.take, in.put} {
				if cents > 0 {
					m.version++
				}
			}
		}
		if in.key != "" {
			m.known = maps.Clone(m.known)
			if m.known == nil {
				m.known = map[string]answer{}
			}
			m.known[in.key] = answer{accepted: out.accepted, version: m.version, balance: m.balance}
		}
		return out.fits(m.version, m.balance), m
	},
	Equal: func(a, b any) bool {
		x, y := a.(machine), b.(machine)
		return x.version == y.version && x.balance == y.balance && maps.Equal(x.known, y.known)
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

func (a answer) fits(version, balance int64) bool {
	return (a.version < 0 || a.version == version) && (a.balance < 0 || a.balance == balance)
}

// answerOf is what a call of Handle has answered.
func answerOf(result accountResult, err error) (answer, error) {
	a := answer{accepted: err == nil, version: int64(result.Version), balance: result.State.Balance, repeated: result.Repeated}
	switch {
	case err == nil:
		if result.StateErr != nil {
			return a, result.StateErr
		}
		return a, nil
	case errors.Is(err, ErrFunds):
		if result.Repeated {
			a.version, a.balance = -1, -1
		}
		return a, nil
	}
	return a, err
}

// clock orders calls and returns.
type clock struct{ now atomic.Int64 }

// linearizable reports whether a history of one account is one of the machine's.
func linearizable(t interface{ Fatalf(string, ...any) }, history []porcupine.Operation) bool {
	switch porcupine.CheckOperationsTimeout(account, history, time.Minute) {
	case porcupine.Ok:
		return true
	case porcupine.Illegal:
		return false
	}
	t.Fatalf("no answer in time about %d operations", len(history))
	return false
}

// atOnce executes orders on one account so that all have decided before any appends.
func atOnce(repositories []*aggregate.Repository[Account, Event], c *clock, orders []order) (history []porcupine.Operation, merged int, _ error) {
	var mu sync.Mutex
	var all, decided sync.WaitGroup
	decided.Add(len(orders))
	errs := make([]error, len(orders))
	for i, o := range orders {
		all.Go(func() {
			arrived := sync.OnceFunc(decided.Done)
			defer arrived() // a repeat decides nothing
			var opts []aggregate.HandleOption
			if o.key != "" {
				opts = append(opts, key(o.key))
			}
			called := c.now.Add(1)
			result, err := repositories[i%len(repositories)].Handle(context.Background(), "a", func(a Account) ([]Event, error) {
				arrived()
				decided.Wait()
				return o.Decide(a)
			}, opts...)
			returned := c.now.Add(1)
			answer, err := answerOf(result, err)
			mu.Lock()
			defer mu.Unlock()
			errs[i] = err
			merged += result.Merged
			history = append(history, porcupine.Operation{ClientId: i, Input: o, Output: answer, Call: called, Return: returned})
		})
	}
	all.Wait()
	return history, merged, errors.Join(errs...)
}

// bare returns repositories whose commands meet, for processes of their own.
func bare(store aggregate.Store, typ *aggregate.Type[Account, Event], n int, opts ...aggregate.Option) (all []*aggregate.Repository[Account, Event]) {
	for range n {
		all = append(all, aggregate.NewRepository(store, typ, append([]aggregate.Option{
			aggregate.WithoutLanes(), aggregate.WithRetry(aggregate.Retry{Retries: 100, Base: time.Nanosecond, Cap: time.Nanosecond}),
		}, opts...)...))
	}
	return all
}

// Merged execution accepts, refuses and ends as a serial one does: for random histories and commands, with duplicates of
// keys, and with and without a cache.
func TestMergedExecutionEqualsASerialOne(t *testing.T) {
	t.Parallel()
	merges := 0
	rapid.Check(t, func(r *rapid.T) {
		store := memory.New(memory.Config{})
		var opts []aggregate.Option
		if rapid.Bool().Draw(r, "cache") {
			opts = append(opts, aggregate.WithCache(1<<16))
		}
		repositories := bare(store, purses, 3, opts...)
		cents := rapid.Int64Range(0, 20)
		var c clock
		var history []porcupine.Operation
		for round := range rapid.IntRange(1, 4).Draw(r, "rounds") {
			orders := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) order {
				o := order{take: cents.Draw(r, "take"), put: cents.Draw(r, "put")}
				switch rapid.IntRange(0, 2).Draw(r, "kind") {
				case 0:
					o.take = 0
				case 1:
					o.put = 0
				}
				return o
			}), 1, 5).Draw(r, "orders")
			if round > 0 && rapid.Bool().Draw(r, "again") && history[0].Input.(order).key != "" {
				orders = append(orders, history[0].Input.(order))
			}
			for i := range orders {
				if orders[i].key == "" && rapid.Bool().Draw(r, "with a key") {
					orders[i].key = fmt.Sprintf("%d-%d", round, i)
				}
			}
			more, merged, err := atOnce(repositories, &c, orders)
			if err != nil {
				r.Fatal(err)
			}
			history = append(history, more...)
			merges += merged
		}
		if !linearizable(r, history) {
			r.Fatalf("no serial order explains %v", history)
		}
		var end Account
		for e, err := range store.ReadStream(context.Background(), purses.Stream("a"), eventstore.Range{}) {
			if err != nil {
				r.Fatal(err)
			}
			payload, err := catalog.Decode(e)
			if err != nil {
				r.Fatal(err)
			}
			if end = end.Evolve(payload.(Event)); end.Balance < 0 {
				r.Fatalf("balance %d after version %d", end.Balance, e.Version)
			}
		}
		loaded, err := repositories[0].Load(context.Background(), "a")
		if err != nil || loaded.State != end {
			r.Fatalf("loaded %+v, %v; the events say %+v", loaded, err, end)
		}
	})
	if merges == 0 {
		t.Error("nothing was ever merged")
	}
}

// The control: a wrong direction is noticed by what the property test looks at.
func TestWrongDirectionIsNoticed(t *testing.T) {
	t.Parallel()
	wrong := aggregate.Define("account", Account.Evolve, catalog, aggregate.Unaffected(withdrawn, deposited, withdrawn))
	for _, test := range []struct {
		typ   *aggregate.Type[Account, Event]
		right bool
	}{{purses, true}, {wrong, false}} {
		var c clock
		repositories := bare(memory.New(memory.Config{}), test.typ, 2)
		history, _, err := atOnce(repositories, &c, []order{{put: 10}})
		more, _, err2 := atOnce(repositories, &c, []order{{take: 10}, {take: 10}})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if got := linearizable(t, append(history, more...)); got != test.right {
			t.Errorf("linearizable: %v, want %v: %v", got, test.right, more)
		}
	}
}
