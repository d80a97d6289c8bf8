package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/flow"
)

// eventApplier makes a consumer of a saga: events in, commands out.
type eventApplier struct{ u *unit }

// Relaxed implements [consumer.Applier]: commands leave the database.
func (eventApplier) Relaxed() bool { return false }

// Plan implements [consumer.Applier]: it finds out which instances the events are about.
func (a eventApplier) Plan(ctx context.Context, events []eventstore.RecordedEvent) (consumer.Plan, error) {
	if a.u.reactor != nil {
		return a.u.planReactor(ctx, events)
	}
	p := &eventPlan{u: a.u, events: make([]concern, len(events))}
	for i := range events {
		err := safely("saga: "+a.u.name, func() (err error) {
			p.events[i], err = a.u.look(&events[i])
			return err
		})
		if err != nil {
			return nil, &consumer.EventError{Index: i, Err: err}
		}
	}
	return p, nil
}

// concern is what definitions say about an event before anything is read.
type concern struct {
	event *eventstore.RecordedEvent
	cause uuid.UUID // the command that caused it, if it may be an answer to one
	views []view
}

// view is an event as one version of the definition sees it.
type view struct {
	machine flow.Machine
	payload any
	starts  bool
	start   string
	keys    []string
	answers bool
}

// look asks the versions that read the type. Only the newest begins instances.
func (u *unit) look(e *eventstore.RecordedEvent) (concern, error) {
	c := concern{event: e}
	for _, m := range u.machines {
		if !slices.Contains(u.reads[m.Version()], e.Type) {
			continue
		}
		v := view{machine: m}
		var err error
		if v.payload, err = m.Decode(*e); err != nil {
			return c, err
		}
		if m == u.newest {
			if v.start, v.starts, err = m.Starts(e, v.payload); err != nil {
				return c, fmt.Errorf("saga: key of what %q begins: %w", u.name, err)
			}
			if v.starts {
				if err := checkKey(v.start); err != nil {
					return c, fmt.Errorf("saga: begin an instance of %q: %w", u.name, err)
				}
			}
		}
		if v.keys, err = m.Keys(e, v.payload); err != nil {
			return c, fmt.Errorf("saga: keys of %q: %w", u.name, err)
		}
		for _, key := range v.keys {
			if err := checkKey(key); err != nil {
				return c, fmt.Errorf("saga: an instance of %q: %w", u.name, err)
			}
		}
		if v.answers = m.Answers(e); v.answers && c.cause == uuid.Nil {
			if id, err := uuid.Parse(e.Metadata.CausationID); err == nil {
				c.cause = id
			}
		}
		c.views = append(c.views, v)
	}
	if len(c.views) == 0 { // a version reads it that is not here
		if id, err := uuid.Parse(e.Metadata.CausationID); err == nil {
			c.cause = id
		}
	}
	return c, nil
}

// of is how the definition of an instance sees the event; nil when it does not read it.
func (c *concern) of(m flow.Machine) *view {
	for n := range c.views {
		if c.views[n].machine == m {
			return &c.views[n]
		}
	}
	return nil
}

// names reports whether the event is about a key. What no version here can tell for an instance, v is nil then, the versions
// that are here tell.
func (c *concern) names(v *view, key string) bool {
	if v != nil {
		return slices.Contains(v.keys, key)
	}
	return slices.ContainsFunc(c.views, func(v view) bool { return slices.Contains(v.keys, key) })
}

// eventPlan is one attempt at some events.
type eventPlan struct {
	u      *unit
	events []concern
	turn   *turn
}

// Load implements [consumer.Plan].
func (p *eventPlan) Load(b *pgx.Batch) {
	p.turn = p.u.turn()
	var keys, causes []string
	for _, c := range p.events {
		if c.cause != uuid.Nil {
			causes = append(causes, c.cause.String())
		}
		for _, v := range c.views {
			keys = append(keys, v.keys...)
			if v.starts {
				keys = append(keys, v.start)
			}
		}
	}
	p.turn.load(b, distinct(keys), distinct(causes), nil)
}

func distinct(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// Apply implements [consumer.Plan].
func (p *eventPlan) Apply(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	seen, err := p.repeats(ctx, tx)
	if err != nil {
		return err
	}
	for i := range p.events {
		if err := p.one(ctx, i, seen); err != nil {
			return &consumer.EventError{Index: i, Err: err}
		}
	}
	p.u.cfg.Probe(ProbeReacted)
	return blamed(p.turn.write(ctx, tx, b))
}

// blamed names the event whose effects cannot be written.
func blamed(err error) error {
	var faulty *faultyInput
	if errors.As(err, &faulty) {
		return &consumer.EventError{Index: faulty.index, Err: faulty.err}
	}
	return err
}

// Committed implements [consumer.Committed].
func (p *eventPlan) Committed() { p.u.committed(p.turn) }

// one gives an event to the instances that it concerns, each once.
func (p *eventPlan) one(ctx context.Context, i int, seen map[sight]bool) error {
	c, t := &p.events[i], p.turn
	s := stimulus{Input: flow.Input{Event: c.event}, index: i, cause: c.event.ID.String()}
	told := map[*instance]bool{}
	tell := func(in *instance, v *view, s stimulus) error {
		if told[in] || seen[sight{in.place, c.event.ID}] {
			return nil
		}
		told[in] = true
		if v != nil {
			s.Payload = v.payload
		}
		return t.react(ctx, in, s)
	}
	if o, ok := t.origins[c.cause]; ok {
		if in := t.instances[o.place]; in != nil {
			if v := c.of(in.machine); v != nil && v.answers || in.machine == nil {
				s := s
				s.Origin, s.ByKey = o.Origin, c.names(v, in.key)
				if err := tell(in, v, s); err != nil {
					return err
				}
			}
		}
	}
	for n := range c.views {
		v := &c.views[n]
		if v.starts {
			if seen[sight{place{key: v.start}, c.event.ID}] {
				continue // it began a run, or was noted by one
			}
			if err := p.start(ctx, v, s, tell, told); err != nil {
				return err
			}
		}
		for _, key := range v.keys {
			in := t.latest[key]
			if in == nil || in.machine != nil && in.machine != v.machine || p.earlier(c, in, seen) {
				continue
			}
			s := s
			s.ByKey = true
			if err := tell(in, v, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// earlier reports whether an event that names a key is of the time before the last run of it: an earlier run has seen it or has
// caused it, or it is in the log before what began the run. Such comes when somebody sets the place in the log back, or when
// a broker repeats what is old.
func (p *eventPlan) earlier(c *concern, in *instance, seen map[sight]bool) bool {
	if o, ok := p.turn.origins[c.cause]; ok && o.key == in.key && o.run != in.run {
		return true
	}
	return c.event.Position.Ordinal() <= in.began || seen[sight{place{key: in.key}, c.event.ID}]
}

// start begins an instance, unless one is under way, which sees the event then.
func (p *eventPlan) start(ctx context.Context, v *view, s stimulus, tell func(*instance, *view, stimulus) error, told map[*instance]bool) error {
	t := p.turn
	last := t.latest[v.start]
	switch {
	case last != nil && !last.ended():
		own := v
		if last.machine != nil && last.machine != v.machine {
			if own = p.events[s.index].of(last.machine); own == nil {
				return nil // its version does not read it
			}
		}
		return tell(last, own, s)
	case s.Event.Position.Ordinal() <= t.cleaned:
		t.counts.ignored++
		return nil
	}
	s.Payload = v.payload
	if err := t.begin(ctx, v.machine, v.start, s); err != nil {
		return err
	}
	told[t.latest[v.start]] = true
	return nil
}

// ended reports whether the run is over by now.
func (in *instance) ended() bool {
	if in.state != nil {
		return in.state.State.Over()
	}
	return in.over
}

// sight is an event that an instance has seen; with run 0, any run of it.
type sight struct {
	place
	event uuid.UUID
}

// repeats finds which of the events instances have seen before. Only what is not beyond all that an instance has seen can be
// such: events that come out of order, or again because somebody has set the place in the log back.
func (p *eventPlan) repeats(ctx context.Context, tx pgx.Tx) (map[sight]bool, error) {
	t := p.turn
	var suspects []sight
	suspect := func(in *instance, e *eventstore.RecordedEvent) {
		if in != nil && e.Position.Ordinal() <= in.position {
			suspects = append(suspects, sight{in.place, e.ID})
		}
	}
	for _, c := range p.events {
		if o, ok := t.origins[c.cause]; ok {
			suspect(t.instances[o.place], c.event)
		}
		for _, v := range c.views {
			if last := t.latest[v.start]; v.starts && last != nil && c.event.Position.Ordinal() <= last.position {
				suspects = append(suspects, sight{last.place, c.event.ID}, sight{place{key: v.start}, c.event.ID})
			}
			for _, key := range v.keys {
				if last := t.latest[key]; last != nil && c.event.Position.Ordinal() <= last.position {
					suspects = append(suspects, sight{last.place, c.event.ID}, sight{place{key: key}, c.event.ID})
				}
			}
		}
	}
	return t.u.seen(ctx, tx, suspects)
}

// seen are those of suspects that are in the history.
func (u *unit) seen(ctx context.Context, tx pgx.Tx, suspects []sight) (map[sight]bool, error) {
	if len(suspects) == 0 {
		return nil, nil
	}
	var keys, events []string
	var runs []int32
	for _, s := range suspects {
		keys, runs, events = append(keys, s.key), append(runs, int32(s.run)), append(events, s.event.String())
	}
	rows, err := tx.Query(ctx, u.sql.seen, u.name, keys, runs, events)
	if err != nil {
		return nil, fmt.Errorf("saga: look for events that %q has seen: %w", u.name, err)
	}
	seen := map[sight]bool{}
	var key, event string
	var run int
	_, err = pgx.ForEachRow(rows, []any{&key, &run, &event}, func() error {
		id, err := uuid.Parse(event)
		seen[sight{place{key, run}, id}] = true
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("saga: look for events that %q has seen: %w", u.name, err)
	}
	return seen, nil
}

const seenSQL = `
SELECT u.key, u.run, u.event FROM unnest($2::text[], $3::int[], $4::text[]) u(key, run, event)
 CROSS JOIN LATERAL (SELECT FROM {schema}.saga_history h WHERE h.saga = $1 AND h.key = u.key AND h.run = u.run AND h.event = u.event::uuid LIMIT 1) x
UNION ALL
SELECT u.key, u.run, u.event FROM (SELECT * FROM unnest($2::text[], $3::int[], $4::text[]) a(key, run, event) WHERE a.run = 0) u
 CROSS JOIN LATERAL (SELECT FROM {schema}.saga_history h WHERE h.saga = $1 AND h.key = u.key AND h.event = u.event::uuid LIMIT 1) x`
