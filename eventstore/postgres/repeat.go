package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// explain looks behind a conflict, or behind a stream that is closed by now: when the events of the append are stored
// already, by their ids, the call is a repeat and gets the first result. Only appends with the caller's own ids and exact
// claims can be repeats. When it cannot look, the error is no conflict: who sends again would take that as proof that
// nothing is stored.
func (s *Store) explain(ctx context.Context, q eventQuerier, p *plan, cause error) (eventstore.AppendResult, error) {
	cause = p.explained(ctx, q, cause)
	if !errors.Is(cause, eventstore.ErrConflict) && !errors.Is(cause, eventstore.ErrStreamClosed) || !p.ownIDs {
		return eventstore.AppendResult{}, cause
	}
	for i, w := range p.writes {
		expected, exact := w.Expected.Exact()
		if !exact {
			return eventstore.AppendResult{}, cause
		}
		o := &p.outcomes[i]
		o.version = expected // of a stream that was only checked: as it was then
		if o.events == 0 {
			continue
		}
		k := 0
		for stored, err := range s.readStream(ctx, q, w.Stream, eventstore.Range{From: expected + 1, Limit: o.events}) {
			switch {
			case err != nil:
				return eventstore.AppendResult{}, fmt.Errorf("postgres: append: look behind a conflict: %w", err)
			case stored.ID != w.Events[k].ID:
				return eventstore.AppendResult{}, cause
			case !sameContent(stored.EventData, w.Events[k]):
				return eventstore.AppendResult{}, fmt.Errorf("%w: stream %q version %d", eventstore.ErrReusedID, w.Stream, stored.Version)
			}
			o.version, o.last, o.partition = stored.Version, stored.Position.Ordinal(), int32(stored.Partition)
			p.recorded = stored.RecordedAt
			k++
		}
		if k < o.events {
			return eventstore.AppendResult{}, cause
		}
	}
	if err := p.coverMessages(ctx, s); err != nil {
		return eventstore.AppendResult{}, fmt.Errorf("postgres: append: look behind a conflict: %w", err)
	}
	result := p.result(s.epoch)
	result.Repeated = true
	return result, nil
}

// explained returns the conflict behind errUnexplained; any other error is its own.
func (p *plan) explained(ctx context.Context, q eventQuerier, cause error) error {
	if !errors.Is(cause, errUnexplained) {
		return cause
	}
	if err := p.lookAgain(ctx, q); err != nil {
		return err
	}
	return p.verdict()
}

// coverMessages lets the token of a repeated append ask for the messages that its routes made, whose positions are not
// known any more: for everything that is stored by now.
func (p *plan) coverMessages(ctx context.Context, s *Store) error {
	if len(p.pub.to) == 0 {
		return nil
	}
	highest, err := s.highest(ctx)
	if err != nil {
		return err
	}
	for i := range p.outcomes {
		if o := &p.outcomes[i]; o.events > 0 {
			o.last = max(o.last, highest)
		}
	}
	return nil
}

// highest is the highest position that was committed before the call, or a higher one.
func (s *Store) highest(ctx context.Context) (int64, error) {
	_, err := s.SafeHead(ctx) // raises what is known
	return s.head.highest.Load(), err
}

// lookAgain reads the heads in a statement of its own, which sees what the refused one waited for.
func (p *plan) lookAgain(ctx context.Context, q eventQuerier) error {
	for i := range p.outcomes {
		o := &p.outcomes[i]
		err := q.QueryRow(ctx, p.sql.streamHead, o.stream.String()).Scan(&o.actual, &o.closed)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("postgres: append: read head of stream %q: %w", o.stream, err)
		}
	}
	return nil
}

const streamHeadSQL = `SELECT version, closed FROM {schema}.streams WHERE stream_id = $1`

// sameContent compares what the caller decides. Metadata of the context (a trace, for example) may differ in a repeat.
func sameContent(a, b eventstore.EventData) bool {
	return a.Type == b.Type && a.SchemaVersion == b.SchemaVersion && a.ContentType == b.ContentType && a.Flags == b.Flags && bytes.Equal(a.Data, b.Data)
}
