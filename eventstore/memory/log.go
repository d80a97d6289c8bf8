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
	if limit < 1 {
		return eventstore.Page{}, &eventstore.InvalidError{
			Field: "limit", Value: strconv.Itoa(limit), Reason: "is not positive", Remedy: "ask for at least one event",
		}
	}
	if err := f.Validate(); err != nil {
		return eventstore.Page{}, err
	}
	if err := ctx.Err(); err != nil {
		return eventstore.Page{}, fmt.Errorf("memory: read page: %w", err)
	}
	if end := l.store.end(); after.After(end) {
		return eventstore.Page{}, &eventstore.HistoryError{
			Reason: fmt.Sprintf("position %s lies beyond the end of the log at %s", after, end),
			Remedy: "a store in memory starts empty: begin again from the zero Position",
		}
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
