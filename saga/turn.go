package saga

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/flow"
)

// place names a run of an instance within its saga.
type place struct {
	key string
	run int
}

// instance is a run of an instance as one transaction has locked it, and what is to become of it.
type instance struct {
	place
	version int
	machine flow.Machine   // nil: no definition of its version is here
	state   *flow.Instance // restored when it is needed first

	data, progress []byte // as they are stored
	contentType    string
	facts          flow.Instance // without Data, Steps and Extra

	paused          bool
	held            int   // inputs that wait
	entries         int64 // lines of history
	began, position int64
	over, reopened  bool
	fresh           bool // it has no row yet

	// What is written. last is the input that changed it last.
	changed   bool
	last      int
	history   []flow.Entry
	timers    map[string]*flow.Timer // nil: it is cancelled
	cancelAll bool
	hold      []heldInput
}

// origin is which command of which instance an event or a reply belongs to.
type origin struct {
	flow.Origin
	place
	state string // of the command
}

// send is a command that goes out.
type send struct {
	flow.Command
	place
	meta     eventstore.Metadata
	position int64 // of a reactor's
}

// turn is what happens to the instances of a saga in one transaction: they are found and locked, react in memory, and
// everything is written at the end. One goroutine uses it.
type turn struct {
	u       *unit
	now     time.Time
	cleaned int64 // events up to here do not begin anything
	runs    int   // the highest number of a run that was removed: no number is used twice

	instances map[place]*instance
	latest    map[string]*instance // by key, the last run
	origins   map[uuid.UUID]origin

	order  []*instance // as they changed first
	sends  []send
	closed []string
	counts counts
	stuck  []became
}

func (u *unit) turn() *turn {
	return &turn{
		u: u, instances: map[place]*instance{}, latest: map[string]*instance{}, origins: map[uuid.UUID]origin{},
	}
}

// stimulus is an input on its way to an instance.
type stimulus struct {
	flow.Input
	index int    // within the batch
	cause string // the id of the event or command that brings about what follows
}

// restore makes the state of an instance.
func (in *instance) restore() error {
	if in.state != nil {
		return nil
	}
	state := in.facts
	if err := in.machine.Restore(&state, in.data, in.contentType, in.progress); err != nil {
		return named("restore ", state.Ref, err)
	}
	in.state = &state
	return nil
}

// named says of which instance an error is, unless it says so itself.
func named(what string, ref flow.Ref, err error) error {
	if text := err.Error(); strings.HasPrefix(text, "saga: ") && strings.Contains(text, ref.String()) {
		return err
	}
	return fmt.Errorf("saga: %s%s: %w", what, ref, err)
}

// safely turns a panic of a definition into an error.
func safely(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = consumer.Panicked(what, r)
		}
	}()
	return f()
}

// begin makes the next run of a key.
func (t *turn) begin(ctx context.Context, m flow.Machine, key string, s stimulus) error {
	in := &instance{version: m.Version(), machine: m, fresh: true, began: s.Event.Position.Ordinal()}
	run := t.runs + 1
	if last := t.latest[key]; last != nil {
		run, in.position = max(run, last.run+1), last.position // what is beyond that was seen by no run
	}
	in.place = place{key, run}
	ref := flow.Ref{Saga: t.u.name, Key: key, Run: run}
	if err := checkKey(key); err != nil {
		return fmt.Errorf("saga: begin %s: %w", ref, err)
	}
	s.Now = t.now
	var fx flow.Effects
	err := safely("saga: "+t.u.name, func() (err error) {
		in.state, fx, err = m.Begin(ctx, t.u.sender, ref, s.Input)
		return err
	})
	if err != nil {
		return named("begin ", ref, err)
	}
	in.state.Ref, in.state.Version, in.state.StartedBy, in.state.Tenant = ref, in.version, s.Event.ID, s.Event.Metadata.Tenant
	if in.state.CorrelationID = s.Event.Metadata.CorrelationID; in.state.CorrelationID == "" {
		in.state.CorrelationID = s.Event.ID.String()
	}
	if in.state.StartedAt.IsZero() {
		in.state.StartedAt = t.now
	}
	in.facts = *in.state
	t.instances[in.place], t.latest[key] = in, in
	t.counts.started++
	t.took(in, s, fx)
	return nil
}

// react lets an instance react to an input, or keeps that for later when it cannot take it now.
func (t *turn) react(ctx context.Context, in *instance, s stimulus) error {
	if in.machine == nil || in.paused || in.held > 0 || len(in.hold) > 0 {
		return t.keep(in, s)
	}
	return t.apply(ctx, in, s)
}

// apply lets an instance react.
func (t *turn) apply(ctx context.Context, in *instance, s stimulus) error {
	s.Now = t.now
	var fx flow.Effects
	err := safely("saga: "+t.u.name, func() (err error) {
		if err = in.restore(); err != nil {
			return err
		}
		if in.state.Stuck.Reason == flow.HandlerMissing {
			in.state.Stuck = flow.Stuck{}
		}
		fx, err = in.machine.React(ctx, t.u.sender, in.state, s.Input)
		return err
	})
	if err != nil {
		return named("", in.facts.Ref, err)
	}
	t.took(in, s, fx)
	return nil
}

// took notes the effects of a reaction.
func (t *turn) took(in *instance, s stimulus, fx flow.Effects) {
	t.counts.reactions++
	t.counts.ignored += int64(fx.Ignored)
	if e := s.Event; e != nil {
		in.position = max(in.position, e.Position.Ordinal())
		fx.History = noted(fx.History, e, in.over)
	}
	if in.over && in.state.State.Over() && len(fx.History)+len(fx.Commands)+len(fx.Timers)+len(fx.Closed) == 0 {
		return
	}
	t.change(in, s.index)
	in.history = append(in.history, fx.History...)
	for _, c := range fx.Commands {
		meta := eventstore.Metadata{
			Tenant: in.facts.Tenant, CorrelationID: in.facts.CorrelationID, CausationID: s.cause, Actor: actorOf(t.u.name),
		}
		if meta.CausationID == "" {
			if meta.CausationID = in.facts.StartedBy.String(); c.Undoes != uuid.Nil {
				meta.CausationID = c.Undoes.String()
			}
		}
		t.sends = append(t.sends, send{Command: c, place: in.place, meta: meta})
	}
	for _, id := range fx.Closed {
		t.closed = append(t.closed, id.String())
	}
	if in.timers == nil && len(fx.Timers)+len(fx.Cancel) > 0 {
		in.timers = map[string]*flow.Timer{}
	}
	if fx.CancelAll {
		in.cancelAll = true
		clear(in.timers)
	}
	for _, name := range fx.Cancel {
		in.timers[name] = nil
	}
	for _, timer := range fx.Timers {
		in.timers[timer.Name] = &timer
	}
}

// noted sees to it that an event that an instance has seen is in its history, so that it is known when it comes again. What
// comes after the end and changes nothing leaves no trace.
func noted(entries []flow.Entry, e *eventstore.RecordedEvent, over bool) []flow.Entry {
	for _, entry := range entries {
		if entry.Event == e.ID {
			return entries
		}
	}
	if len(entries) > 0 {
		entries[0].Event, entries[0].Position = e.ID, e.Position
		return entries
	}
	if over {
		return nil
	}
	return []flow.Entry{{Kind: "ignored", Text: e.Type, Event: e.ID, Position: e.Position}}
}

func (t *turn) change(in *instance, index int) {
	if !in.changed {
		in.changed = true
		t.order = append(t.order, in)
	}
	in.last = index
}

// keep writes down an input that the instance cannot take now.
func (t *turn) keep(in *instance, s stimulus) error {
	h, err := hold(in, s)
	if err != nil {
		return fmt.Errorf("saga: keep for %s: %w", in.facts.Ref, err)
	}
	if len(in.hold) == 0 {
		t.change(in, s.index)
	}
	in.hold, in.last = append(in.hold, h), s.index
	t.counts.held++
	return nil
}

// actorOf is who sends the commands of a saga.
func actorOf(saga string) string { return "saga:" + saga }

// load queues what finds and locks instances: the last runs of keys, those that have sent the commands that caused something,
// and those that are named.
func (t *turn) load(b *pgx.Batch, keys []string, causes []string, places []place) {
	u := t.u
	b.Queue(planSQL)
	var named []string
	var runs []int32
	for _, p := range places {
		named, runs = append(named, p.key), append(runs, int32(p.run))
	}
	b.Queue(u.sql.lock, u.name, keys, causes, named, runs).Query(t.locked)
	// Behind the locks: what has been removed meanwhile is known here.
	t.loadNow(b)
	if len(causes) > 0 {
		b.Queue(u.sql.origins, u.name, causes).Query(t.found)
	}
}

func (t *turn) loadNow(b *pgx.Batch) {
	b.Queue(t.u.sql.now, t.u.name, t.u.clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&t.now, &t.cleaned, &t.runs) })
}
