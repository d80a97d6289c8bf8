package projection

import (
	"context"
	"fmt"
	"hash/fnv"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// viewPlan is one attempt at a run of events: which keys they touch, and what each event does to them.
type viewPlan[K comparable, S any] struct {
	c      *compiled[K, S]
	events []eventstore.RecordedEvent
	steps  []step[S]
	index  map[K]int
	keys   []K
	rows   []row[S]
	args   []any // of the keys
}

type step[S any] struct {
	event, key int
	fold       func(S) S
}

type row[S any] struct {
	state  S
	stored bool // in the table
	gone   bool // after the last event
	seen   int  // 1 + the last event that touched it
}

// Relaxed: a view is nothing but rows that the log can give again.
func (c *compiled[K, S]) Relaxed() bool { return true }

// Plan implements [consumer.Applier].
func (c *compiled[K, S]) Plan(_ context.Context, events []eventstore.RecordedEvent) (consumer.Plan, error) {
	return c.plan(events)
}

func (c *compiled[K, S]) plan(events []eventstore.RecordedEvent) (*viewPlan[K, S], error) {
	p := &viewPlan[K, S]{c: c, events: events, index: map[K]int{}}
	firstEvent := []int{} // by key
	for i := range events {
		known := len(p.keys)
		if err := p.visit(i); err != nil {
			return nil, &consumer.EventError{Index: i, Err: err}
		}
		for range p.keys[known:] {
			firstEvent = append(firstEvent, i)
		}
	}
	p.rows = make([]row[S], len(p.keys))
	args, bad, err := collectAll(c.table.keys, len(p.keys), p.keyAt)
	if err != nil {
		return nil, &consumer.EventError{Index: firstEvent[bad], Err: err}
	}
	p.args = args
	return p, nil
}

func (p *viewPlan[K, S]) keyAt(i int) reflect.Value { return reflect.ValueOf(&p.keys[i]).Elem() }

// visit decodes one event and asks the folds which keys it touches.
func (p *viewPlan[K, S]) visit(i int) (err error) {
	event := &p.events[i]
	payload, err := decode(p.c.view.Events, *event)
	if err != nil {
		return err
	}
	defer recovered("a key function of view "+p.c.view.Name, &err)
	for _, f := range p.c.folds[reflect.TypeOf(payload)] {
		var fault error
		err := f.visit(payload, event, func(k K, fold func(S) S) {
			if err := settleAll(p.c.table.keys, reflect.ValueOf(&k).Elem()); err != nil && fault == nil {
				fault = err
			}
			n, ok := p.index[k]
			if !ok {
				n = len(p.keys)
				p.index[k] = n
				p.keys = append(p.keys, k)
			}
			p.steps = append(p.steps, step[S]{i, n, fold})
		})
		if err != nil {
			return err
		}
		if fault != nil {
			return fault
		}
	}
	return nil
}

// Load implements [consumer.Plan].
func (p *viewPlan[K, S]) Load(b *pgx.Batch) {
	if len(p.keys) == 0 {
		return
	}
	b.Queue(p.c.table.load, p.args...).Query(func(rows pgx.Rows) (err error) {
		defer recovered("reading a row of view "+p.c.view.Name, &err)
		cells, targets := cellsFor(p.c.table.values)
		var n int64
		targets = append([]any{&n}, targets...)
		for rows.Next() {
			if err := rows.Scan(targets...); err != nil {
				return fmt.Errorf("projection: read a row of %s: %w", p.c.table.quoted, err)
			}
			r := &p.rows[n-1]
			r.stored = true
			if err := restoreAll(p.c.table.values, cells, reflect.ValueOf(&r.state).Elem()); err != nil {
				return fmt.Errorf("projection: read a row of %s: %w", p.c.table.quoted, err)
			}
		}
		return rows.Err()
	})
}

// Apply implements [consumer.Plan]. It needs no transaction of its own.
func (p *viewPlan[K, S]) Apply(_ context.Context, _ pgx.Tx, b *pgx.Batch) error {
	if err := p.fold(); err != nil {
		return err
	}
	var kept, gone []int
	for i := range p.rows {
		switch {
		case !p.rows[i].gone:
			kept = append(kept, i)
		case p.rows[i].stored:
			gone = append(gone, i)
		}
	}
	if len(gone) > 0 {
		args, _, err := collectAll(p.c.table.keys, len(gone), func(i int) reflect.Value { return p.keyAt(gone[i]) })
		if err != nil {
			return err
		}
		b.Queue(p.c.table.remove, args...)
	}
	if len(kept) == 0 {
		return nil
	}
	args, _, err := collectAll(p.c.table.keys, len(kept), func(i int) reflect.Value { return p.keyAt(kept[i]) })
	if err != nil {
		return err
	}
	values, bad, err := collectAll(p.c.table.values, len(kept), func(i int) reflect.Value { return p.stateAt(kept[i]) })
	if err != nil {
		return &consumer.EventError{Index: p.rows[kept[bad]].seen - 1, Err: err}
	}
	b.Queue(p.c.table.upsert, append(args, values...)...)
	return nil
}

func (p *viewPlan[K, S]) stateAt(i int) reflect.Value {
	return reflect.ValueOf(&p.rows[i].state).Elem()
}

// fold runs all steps, event by event.
func (p *viewPlan[K, S]) fold() error {
	for from := 0; from < len(p.steps); {
		to := from + 1
		for to < len(p.steps) && p.steps[to].event == p.steps[from].event {
			to++
		}
		if err := p.foldEvent(p.steps[from:to]); err != nil {
			return &consumer.EventError{Index: p.steps[from].event, Err: err}
		}
		from = to
	}
	return nil
}

func (p *viewPlan[K, S]) foldEvent(steps []step[S]) (err error) {
	defer recovered("a fold of view "+p.c.view.Name, &err)
	for _, s := range steps {
		r := &p.rows[s.key]
		r.state, r.seen = s.fold(r.state), s.event+1
	}
	for _, s := range steps {
		r := &p.rows[s.key]
		if r.seen != s.event+1 {
			continue
		}
		if err := settleAll(p.c.table.values, p.stateAt(s.key)); err != nil {
			return err
		}
		r.gone = p.c.view.Gone != nil && p.c.view.Gone(r.state)
		if r.gone {
			var zero S
			r.state = zero
		}
	}
	return nil
}

// lockKeys names the rows for advisory locks; two rows with one number only wait for each other more often.
func (p *viewPlan[K, S]) lockKeys() []int64 {
	numbers := make([]int64, len(p.keys))
	for i, k := range p.keys {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s\x00%v", p.c.table.quoted, k)
		numbers[i] = int64(h.Sum64())
	}
	return numbers
}
