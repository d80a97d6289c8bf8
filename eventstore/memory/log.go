package memory

import (
	"context"
	"fmt"
	"strconv"

	"github.com/daybook-go/daybook/eventstore"
)

// Log is the store's log as consumers read it: page by page, waiting at the end.
type Log struct{ store *Store }

// ReadPage returns at most limit events after a position that f selects, and how far the page is complete. f.Limit
// plays no part. An empty page whose Through is not beyond after means that nothing has come yet; see [Log.Wait]. A
// position beyond the end of the log is of another store: that is an [*eventstore.HistoryError].
func (l *Log) ReadPage(
	ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int,
) (eventstore.Page, error) {
	if err := l.check(ctx, after, f, limit); err != nil {
		return eventstore.Page{}, err
	}
	page := eventstore.Page{Through: after}
	for _, e := range l.store.after(after) {
		if matches(f, e) {
			if len(page.Events) == limit {
				break
			}
			page.Events = append(page.Events, clone(e))
		}
		page.Through = e.Position
	}
	return page, nil
}

// ReadSequence returns the next events in (after, upTo] with one partition key, which is the stream itself for an event
// without a key of its own: at most limit that f selects, by position, and how far the page is complete. A zero upTo stands
// for the end of the log, which bounds the page in any case. f.Limit plays no part.
func (l *Log) ReadSequence(
	ctx context.Context, partition int, sequence string, after, upTo eventstore.Position, f eventstore.Filter, limit int,
) (eventstore.Page, error) {
	if sequence == "" {
		return eventstore.Page{}, &eventstore.InvalidError{Field: "sequence", Reason: "is empty", Remedy: "give the partition key of an event"}
	}
	if err := l.check(ctx, after, f, limit); err != nil {
		return eventstore.Page{}, err
	}
	if end := l.store.end(); upTo.IsZero() || upTo.After(end) {
		upTo = end
	}
	page := eventstore.Page{Through: after}
	for _, e := range l.store.after(after) {
		if e.Position.After(upTo) {
			break
		}
		if e.Partition == partition && e.PartitionKey == sequence && matches(f, e) {
			page.Events = append(page.Events, clone(e))
		}
		if page.Through = e.Position; len(page.Events) == limit {
			return page, nil
		}
	}
	if upTo.After(page.Through) {
		page.Through = upTo
	}
	return page, nil
}

// check returns what keeps a page from being read, or nil.
func (l *Log) check(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) error {
	if limit < 1 {
		return &eventstore.InvalidError{
			Field: "limit", Value: strconv.Itoa(limit), Reason: "is not positive", Remedy: "ask for at least one event",
		}
	}
	if err := f.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: read page: %w", err)
	}
	if end := l.store.end(); after.After(end) {
		return &eventstore.HistoryError{
			Reason: fmt.Sprintf("position %s lies beyond the end of the log at %s", after, end),
			Remedy: "a store in memory starts empty: begin again from the zero Position",
		}
	}
	return nil
}

// Wait blocks until the log has something beyond a position. It returns the context's error when that ends first.
func (l *Log) Wait(ctx context.Context, after eventstore.Position) error {
	for {
		l.store.mu.Lock()
		grown := l.store.grown
		l.store.mu.Unlock()
		if l.store.end().After(after) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("memory: wait: %w", ctx.Err())
		case <-grown:
		}
	}
}
