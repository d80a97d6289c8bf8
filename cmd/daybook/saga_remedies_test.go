package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

// An errand does what its mode says: where it goes wrong, and how.
type (
	errandBegun struct{ Mode string }
	errandTold  struct{ Errand string }
	errandDone  struct{ Errand string }

	doErrand   struct{ Step, Mode string }
	errandStep struct{ Mode string }
)

var errandEvents = eventstore.NewCatalog(eventstore.TypeOf[errandBegun]("errand.begun"), eventstore.TypeOf[errandTold]("errand.told"),
	eventstore.TypeOf[errandDone]("errand.done"))

// broken makes definitions and handlers fail that their mode says may.
type broken struct{ atomic.Bool }

func (e errandStep) sends(step string) func(errandStep) (string, doErrand) {
	return func(e errandStep) (string, doErrand) { return "", doErrand{step, e.Mode} }
}

func (b *broken) panics(mode string, is ...string) {
	if b.Load() && slices.Contains(is, mode) {
		panic("broken")
	}
}

func (b *broken) definitions() []saga.Definition {
	var e errandStep
	start := saga.StartOn(func(e saga.Event[errandBegun]) errandStep { return errandStep{e.Payload.Mode} })
	told := saga.OnKey(saga.KeyOf(func(e saga.Event[errandTold]) string { return e.Payload.Errand }), func(s errandStep, _ saga.Event[errandTold]) errandStep {
		b.panics(s.Mode, "kept", "letter")
		return s
	})
	retry := saga.Retry{Attempts: 2, Base: time.Hour, Cap: time.Hour}
	return []saga.Definition{
		saga.Define(saga.Process[errandStep]{
			Name: "errand", Version: 1, Events: errandEvents, Start: start, UndoRetry: retry, UndoDeadline: time.Hour,
			Steps: []saga.Step[errandStep]{
				{Name: "first", Send: saga.Send(e.sends("first")), Undo: saga.Send(func(s errandStep) (string, doErrand) {
					b.panics(s.Mode, "timer")
					return "", doErrand{"undo", s.Mode}
				}), Succeeded: []saga.Answer[errandStep]{told}, Deadline: time.Hour},
				{Name: "pay", Send: saga.Send(e.sends("pay")), Pivot: true},
				{Name: "ship", Send: saga.Send(e.sends("ship")), Retry: retry},
			},
			Completed: saga.Send(e.sends("completed")), Compensated: saga.Send(e.sends("compensated")),
		}),
		saga.Define(saga.Process[errandStep]{
			Name: "walk", Version: 1, Events: errandEvents, Start: start, UndoDeadline: 50 * time.Millisecond,
			Steps: []saga.Step[errandStep]{{
				Name: "go", Send: saga.Send(e.sends("go")), Undo: saga.Send(e.sends("back")), Succeeded: []saga.Answer[errandStep]{told},
			}},
		}),
		saga.Define(saga.Flow[errandStep]{
			Name: "stroll", Version: 1, Events: errandEvents, Start: start,
			Reactions: []saga.Reaction[errandStep]{
				saga.React(func(s errandStep, _ saga.Event[errandBegun], fx *saga.Effects) errandStep {
					fx.Send("go", "", doErrand{"go", s.Mode})
					return s
				}),
				saga.React(func(s errandStep, _ saga.Event[errandDone], fx *saga.Effects) errandStep { return s }),
			},
		}),
	}
}

// bus fails at the steps that the mode names, "refused:ship", "failed:pay".
func (b *broken) bus(store *postgres.Store) *bus.Bus {
	on := bus.New(bus.Config{}, bus.Idempotent(store))
	bus.Handle(on, bus.TypeOf[doErrand]("errand.do", bus.WithoutKey()), func(ctx context.Context, c doErrand) (bus.Reply, error) {
		how, step, _ := strings.Cut(c.Mode, ":")
		switch {
		case step != c.Step || !b.Load():
			return bus.Reply{}, nil
		case how == "refused":
			return bus.Reply{}, &aggregate.RefusedError{Text: "closed"}
		}
		return bus.Reply{}, errors.New("away")
	})
	return on
}

// Every command that is offered for what keeps a saga is one that is accepted, for every reason.
func TestRemediesAreAccepted(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	d := &depot{desk: &desk{t: t, pool: pool, url: postgrestest.URL(pool)}, store: store}
	b := &broken{}
	b.Store(true)
	definitions := b.definitions()
	if err := saga.Install(t.Context(), pool, definitions...); err != nil {
		t.Fatal(err)
	}
	on := b.bus(store)
	dispatcher, err := commands.NewDispatcher(pool, commands.Local(store.Outbox()), on, commands.Config{Wake: store.Wake, Attempts: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	stopDispatcher := livetest.Start(t, dispatcher.Run)
	manager, err := saga.NewManager(pool, store.Log(), commands.ForSagas(on, store.Outbox()), saga.Config{
		Poll: 10 * time.Millisecond, RetryBase: time.Millisecond, RetryCap: 2 * time.Millisecond, Attempts: 2, Wake: store.Wake, Logger: slog.New(slog.DiscardHandler),
	}, definitions...)
	if err != nil {
		t.Fatal(err)
	}
	livetest.Start(t, manager.Run)

	tell := func(stream string, events ...any) {
		t.Helper()
		for _, e := range events {
			data, err := errandEvents.Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Append(t.Context(), eventstore.To(eventstore.NewStreamID("errand", stream), eventstore.AnyVersion, data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	explain := func(of, key string) saga.Explanation {
		t.Helper()
		e, err := saga.Explain(t.Context(), pool, of, key, saga.OverdueAfter(time.Millisecond))
		if err != nil && !errors.Is(err, saga.ErrNoInstance) {
			t.Fatal(err)
		}
		return e
	}
	until := func(of, key, what string, is func(saga.Explanation) bool) saga.Explanation {
		t.Helper()
		var e saga.Explanation
		livetest.Eventually(t, of+" "+key+" "+what, func() bool { e = explain(of, key); return is(e) }, func() string { return e.Sentence })
		return e
	}
	quickly := func(args ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := command(&settings{out: &out, errOut: io.Discard, every: 5 * time.Millisecond})
		cmd.SetArgs(append(args, "--database", d.url))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out.String())
		}
	}
	decide := func(args ...string) {
		t.Helper()
		quickly(append([]string{"saga"}, append(args, "--reason", "x", "--wait")...)...)
	}
	waits := func(e saga.Explanation) bool { return len(e.Commands) > 0 && e.Commands[0].Where == saga.WhereDone }
	for _, s := range []struct {
		of, mode string
		make     func(key string) // after it has begun
		reason   string
		offered  string // verbs, of the problem that counts
	}{
		{"errand", "refused:ship", func(key string) { tell(key, errandTold{key}) }, saga.ReasonDeadLetter, "retry answer"},
		{"errand", "failed:pay", func(key string) { tell(key, errandTold{key}) }, saga.ReasonDeadLetter, "retry answer"},
		{"errand", "failed:ship", func(key string) { tell(key, errandTold{key}) }, saga.ReasonRetrying, "retry"},
		{"errand", "refused:completed", func(key string) { tell(key, errandTold{key}) }, saga.ReasonDeadLetter, "retry answer"},
		{"errand", "failed:completed", func(key string) { tell(key, errandTold{key}) }, saga.ReasonRetrying, "retry"},
		{"errand", "refused:compensated", func(key string) { decide("cancel", "errand", key) }, saga.ReasonDeadLetter, "retry answer"},
		{"errand", "refused:undo", func(key string) { decide("cancel", "errand", key) }, saga.ReasonCompensationFailed, "retry mark"},
		{"errand", "failed:undo", func(key string) { decide("cancel", "errand", key) }, saga.ReasonRetrying, "retry"},
		{"errand", "paused", func(key string) { decide("pause", "errand", key) }, saga.ReasonPaused, "resume"},
		{"errand", "timer", func(key string) {
			d.exec(`UPDATE daybook.timers SET due_at = now(), visible_at = now() WHERE name LIKE '%:' || $1 || ':%'`, key)
		}, saga.ReasonDeadLetter, "retry cancel"},
		{"errand", "kept", func(key string) {
			decide("pause", "errand", key)
			tell(key, errandTold{key}, errandTold{key})
			until("errand", key, "keeps them", func(e saga.Explanation) bool { return e.Held == 2 })
			decide("resume", "errand", key)
		}, saga.ReasonDeadLetter, "retry skip cancel"},
		{"errand", "letter", func(key string) { tell(key, errandTold{key}) }, saga.ReasonDeadLetter, "show redrive"},
		{"walk", "no answer", func(key string) { until("walk", key, "waits", waits) }, saga.ReasonReplyOverdue, "retry answer"},
		{"stroll", "refused:go", func(string) {}, saga.ReasonDeadLetter, "answer"},
		{"walk", "no undo", func(key string) { // nobody carries it out
			stopDispatcher()
			decide("cancel", "walk", key)
		}, saga.ReasonReplyOverdue, "retry mark"},
	} {
		for n, verb := range strings.Fields(s.offered) {
			key := strings.ReplaceAll(fmt.Sprint(s.of, "-", s.mode, "-", n), ":", "-")
			key = strings.ReplaceAll(key, " ", "-")
			tell(key, errandBegun{s.mode})
			until(s.of, key, "has begun", func(e saga.Explanation) bool { return e.Key != "" })
			s.make(key)
			e := until(s.of, key, "is where it should be", func(e saga.Explanation) bool {
				return e.Reason == s.reason && (s.reason != saga.ReasonReplyOverdue || s.mode != "no undo" || strings.Contains(e.Text, "not confirmed"))
			})
			page, err := saga.List(t.Context(), pool, saga.Filter{Saga: s.of, Reason: s.reason}, saga.OverdueAfter(time.Millisecond))
			if err != nil || !slices.ContainsFunc(page.Sagas, func(i saga.Summary) bool { return i.Key == key && i.Stuck == e.Stuck }) {
				t.Errorf("%s %s: the list of %s lacks it, %v: %+v", s.of, s.mode, s.reason, err, page.Sagas)
			}
			var verbs []string
			for _, c := range e.Problems[0].Commands {
				verbs = append(verbs, strings.Fields(c)[2])
			}
			if got := strings.Join(verbs, " "); got != s.offered || e.Problems[0].Remedy == "" {
				t.Errorf("%s %s: offered is %s, want %s; %s", s.of, s.mode, got, s.offered, e.Problems[0].Remedy)
				continue
			}
			b.Store(s.mode == "kept") // the cause is removed; without it what was kept is taken before anybody decides
			args := strings.Fields(strings.ReplaceAll(e.Problems[0].Commands[n], "WHY", "mended"))[1:]
			if verb != "show" {
				args = append(args, "--wait")
			}
			quickly(args...)
			b.Store(true)
		}
	}
}
