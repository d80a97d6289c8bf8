package projection

import (
	"fmt"
	"iter"
	"slices"

	"github.com/daybook-go/daybook/eventstore"
)

// replayChunk bounds the memory of a replay beyond its rows.
const replayChunk = 500

// Replay folds events in memory and returns the rows that a table would have: the view as of some moment, or of some
// streams only, without a table. Events of types that the view has no fold for are passed by. Memory grows with the
// number of rows.
//
//	rows, err := Balances.Replay(store.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{}))
func (v View[K, S]) Replay(events iter.Seq2[eventstore.RecordedEvent, error]) (map[K]S, error) {
	c, err := v.compile()
	if err != nil {
		return nil, fmt.Errorf("projection: define %q version %d: %w", v.Name, v.Version, err)
	}
	rows := map[K]S{}
	chunk := make([]eventstore.RecordedEvent, 0, replayChunk)
	for e, err := range events {
		if err != nil {
			return nil, fmt.Errorf("projection: replay %q version %d: %w", v.Name, v.Version, err)
		}
		if _, ok := slices.BinarySearch(c.names, e.Type); !ok {
			continue
		}
		if chunk = append(chunk, e); len(chunk) == replayChunk {
			if err := c.replay(chunk, rows); err != nil {
				return nil, err
			}
			chunk = chunk[:0]
		}
	}
	return rows, c.replay(chunk, rows)
}

func (c *compiled[K, S]) replay(events []eventstore.RecordedEvent, rows map[K]S) error {
	p, err := c.plan(events)
	if err == nil {
		for i, k := range p.keys {
			p.rows[i].state, p.rows[i].stored = rows[k], false
		}
		err = p.fold()
	}
	if err != nil {
		return fmt.Errorf("projection: replay %q version %d: %w", c.view.Name, c.view.Version, atEvent(events, err))
	}
	for i, k := range p.keys {
		if p.rows[i].gone {
			delete(rows, k)
		} else {
			rows[k] = p.rows[i].state
		}
	}
	return nil
}
