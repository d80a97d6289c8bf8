package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Inline returns a hook for the engine that applies projections within the transaction of each append, so that a row is
// never older than the log. The caller of the append commits. Every projection has Inline set and must be installed
// before the first event of its types.
//
// Appends that touch the same row of a view wait for each other: rows are locked in one order before they are folded,
// and the locks last until the append commits. An error of a fold or handler refuses the append. An append that does
// not go through an engine with the hook, an INSERT by hand for example, is not seen.
//
// It panics on a mistake in a definition, since it runs while a program is wired up. The hook is safe for concurrent use.
func Inline(projections ...Definition) func(context.Context, pgx.Tx, []eventstore.RecordedEvent) error {
	defined, err := define(projections)
	if err == nil {
		for _, d := range defined {
			if !d.inline {
				err = errors.Join(err, fmt.Errorf("projection: define %s: Inline: is false: set it, so that no Runner applies the events a second time", d))
			}
		}
	}
	if err != nil {
		panic(err.Error())
	}
	return func(ctx context.Context, tx pgx.Tx, events []eventstore.RecordedEvent) error {
		return applyInline(ctx, tx, defined, events)
	}
}

func applyInline(ctx context.Context, tx pgx.Tx, defined []*definition, events []eventstore.RecordedEvent) error {
	type planned struct {
		d    *definition
		plan locker
		mine []eventstore.RecordedEvent
	}
	var all []planned
	var locks []int64
	for _, d := range defined {
		var mine []eventstore.RecordedEvent
		for _, e := range events {
			if _, ok := slices.BinarySearch(d.types, e.Type); ok {
				mine = append(mine, e)
			}
		}
		if len(mine) == 0 {
			continue
		}
		plan, err := d.locks(mine)
		if err != nil {
			return inlineError(d, mine, err)
		}
		locks = append(locks, plan.lockKeys()...)
		all = append(all, planned{d, plan, mine})
	}
	if len(all) == 0 {
		return nil
	}
	// Handlers run between the two batches, with the settings that the transaction came with.
	first, last := &pgx.Batch{}, &pgx.Batch{}
	first.Queue(guardSQL)
	last.Queue(guardSQL)
	if len(locks) > 0 {
		slices.Sort(locks)
		// The rows are read by later statements, whose snapshots see what the lock waited for.
		first.Queue("SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS k", slices.Compact(locks))
	}
	for _, p := range all {
		p.plan.Load(first)
	}
	first.Queue(unguardSQL)
	if err := tx.SendBatch(ctx, first).Close(); err != nil {
		return fmt.Errorf("projection: inline: %w", err)
	}
	for _, p := range all {
		if err := p.plan.Apply(ctx, tx, last); err != nil {
			return inlineError(p.d, p.mine, err)
		}
	}
	if last.Len() == 1 { // handlers only
		return nil
	}
	last.Queue(unguardSQL)
	if err := tx.SendBatch(ctx, last).Close(); err != nil {
		return fmt.Errorf("projection: inline: %w", err)
	}
	return nil
}

func inlineError(d *definition, events []eventstore.RecordedEvent, err error) error {
	return fmt.Errorf("projection: inline %s: %w", d, atEvent(events, err))
}

// atEvent puts the event into the text of an error that knows which one it was.
func atEvent(events []eventstore.RecordedEvent, err error) error {
	var at *consumer.EventError
	if !errors.As(err, &at) {
		return err
	}
	e := events[at.Index]
	return fmt.Errorf("%q of stream %q version %d (position %s): %w", e.Type, e.Stream, e.Version, e.Position, at.Err)
}
