package postgres

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	// logPage is the number of events that ReadAll fetches at a time.
	logPage = 5000
	// window bounds the positions that one page looks at, so that a filter which matches little cannot make one
	// statement scan the whole log, and so that only the ranges it touches are locked.
	window = 200_000

	pollMin = 50 * time.Millisecond
	pollMax = time.Second
)

// Log is the log as consumers read it. Make one for each consumer: it remembers how long the consumer has been idle.
type Log struct {
	store *Store
	noted noted

	mu    sync.Mutex
	after eventstore.Position // where the consumer waited last
	poll  time.Duration
	due   time.Time // when it is time to look, however often the waiting is broken off before
	told  bool      // that it was time
}

// Log returns a reader of the log.
func (s *Store) Log() *Log { return &Log{store: s} }

// ReadPage returns the next events after a position that f selects, at most limit (f.Limit is ignored), in one round
// trip. A page may be empty although more follows: go on from its Through until that does not move. A position beyond
// the end of the log is an [*eventstore.HistoryError].
func (l *Log) ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	if err := f.Validate(); err != nil {
		return eventstore.Page{}, err
	}
	count := l.store.wake.now()
	page, err := l.store.readPage(ctx, after.Ordinal(), f, limit)
	if err == nil {
		l.noted.note(page.Through.Ordinal(), count)
	}
	return page, err
}

// Wait returns nil when there may be something after a position that it has not returned for before, or when it is time
// to look (after 50 ms, backing off to 1 s while nothing comes); and the error of ctx when that ends first.
func (l *Log) Wait(ctx context.Context, after eventstore.Position) error {
	woken := l.store.wake.after(l.noted.count(after.Ordinal(), l.store.wake.now()))
	if l.store.head.safe.Load() > after.Ordinal() {
		return ctx.Err()
	}
	timer := time.NewTimer(l.untilDue(after))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-woken:
	case <-timer.C:
		l.mu.Lock()
		l.told = true
		l.mu.Unlock()
	}
	return nil
}

// untilDue is how long to wait before it is time to look. A caller that waits in pieces comes to that time like any other.
func (l *Log) untilDue(after eventstore.Position) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch now := time.Now(); {
	case l.after != after || l.poll == 0:
		l.after, l.poll, l.due, l.told = after, pollMin, now.Add(pollMin), false
	case l.told: // and has looked since
		l.poll = min(2*l.poll, pollMax)
		l.due, l.told = now.Add(l.poll), false
	}
	return time.Until(l.due)
}

// ReadAll reads the log up to the safe head at the time of the call; see [eventstore.AllReader]. It fetches pages of
// 5,000 events and keeps no transaction open while the caller works.
func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, f eventstore.Filter) iter.Seq2[eventstore.RecordedEvent, error] {
	return func(yield func(eventstore.RecordedEvent, error) bool) {
		if err := f.Validate(); err != nil {
			yield(eventstore.RecordedEvent{}, err)
			return
		}
		end, err := s.SafeHead(ctx)
		if err != nil {
			yield(eventstore.RecordedEvent{}, err)
			return
		}
		for left := f.Limit; after.Before(end); {
			want := logPage
			if f.Limit > 0 {
				want = min(want, left)
			}
			page, err := s.readPage(ctx, after.Ordinal(), f, want)
			if err != nil {
				yield(eventstore.RecordedEvent{}, err)
				return
			}
			for _, e := range page.Events {
				if e.Position.After(end) || !yield(e, nil) {
					return
				}
			}
			if left -= len(page.Events); f.Limit > 0 && left == 0 {
				return
			}
			after = page.Through
		}
	}
}

func (s *Store) readPage(ctx context.Context, after int64, f eventstore.Filter, limit int) (eventstore.Page, error) {
	if limit < 1 {
		return eventstore.Page{}, &eventstore.InvalidError{
			Field: "limit", Value: fmt.Sprint(limit), Reason: "is below 1", Remedy: "ask for at least one event",
		}
	}
	// What is known to be decided needs no new reading of the head: a replay reads it once.
	if safe := s.head.safe.Load(); after < safe {
		return s.pageUpTo(ctx, after, min(after+window, safe), f, limit)
	}
	known := s.head.highest.Load()
	p := newPipeline()
	if s.cfg.TransactionPooler {
		p.add(s.sql.guard, nil)
	}
	var got headReading
	s.queueHead(p, known, &got)
	var page eventstore.Page
	s.queuePage(p, after, after+window, f, limit, 0, &page)
	if err := s.run(ctx, p); err != nil {
		return eventstore.Page{}, fmt.Errorf("postgres: read the log: %w", err)
	}
	if _, ok := s.take(got, known); !ok {
		return eventstore.Page{}, s.lost(known)
	}
	if end := s.head.highest.Load(); after > end {
		return eventstore.Page{}, beyondEnd(after, end)
	}
	through := after
	if got.safe != nil {
		through = max(after, min(after+window, *got.safe))
	}
	return finishPage(page, through, limit), nil
}

// beyondEnd is the answer to a position that the log has not reached.
func beyondEnd(after, end int64) error {
	return &eventstore.HistoryError{
		Reason: fmt.Sprintf("position %d lies beyond the end of the log at %d: commits that it was made from were lost", after, end),
		Remedy: "find out what is missing, run `daybook epoch new`, and rebuild what was ahead",
	}
}

func (s *Store) pageUpTo(ctx context.Context, after, upTo int64, f eventstore.Filter, limit int) (eventstore.Page, error) {
	var page eventstore.Page
	p := newPipeline()
	if s.cfg.TransactionPooler {
		p.add(s.sql.guard, nil)
	}
	p.add(`SELECT set_config('daybook.safe', $1, true)`, nil, fmt.Sprint(upTo))
	s.queuePage(p, after, upTo, f, limit, int(min(int64(limit), upTo-after)), &page) // catching up: full pages are likely
	if err := s.run(ctx, p); err != nil {
		return eventstore.Page{}, fmt.Errorf("postgres: read the log: %w", err)
	}
	return finishPage(page, upTo, limit), nil
}

func (s *Store) queuePage(p *pipeline, after, upTo int64, f eventstore.Filter, limit, sizeHint int, page *eventstore.Page) {
	collect := func(rows pgx.Rows) (err error) {
		page.Events, err = collectEvents(rows, sizeHint)
		return err
	}
	if len(f.Categories) == 0 && len(f.Types) == 0 {
		p.add(s.sql.page, collect, after, upTo, limit)
		return
	}
	p.add(s.sql.pageFiltered, collect, after, upTo, limit, notNilText(f.Types), notNilText(f.Categories))
}

// finishPage sets how far the page is complete: a full page only as far as its last event.
func finishPage(page eventstore.Page, through int64, limit int) eventstore.Page {
	page.Through = eventstore.PositionAt(through)
	if len(page.Events) == limit {
		page.Through = page.Events[limit-1].Position
	}
	return page
}

func notNilText(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// pageSQL has both bounds as parameters: planned with their values, where there are many ranges, it looks at those between
// them only. The safe head is a setting made by the statement before; it is empty on a connection that has made it in an
// earlier transaction only.
const pageSQL = `
SELECT ` + eventColumns + `
  FROM {schema}.events e
 WHERE e.position > $1::bigint AND e.position <= $2::bigint
   AND e.position <= coalesce(nullif(current_setting('daybook.safe', true), ''), '0')::bigint
 ORDER BY e.position LIMIT $3`

// pageFilteredSQL compares the category as an expression on purpose: by an index on streams the planner would collect
// and sort a whole category for each page.
const pageFilteredSQL = `
SELECT ` + eventColumns + `
  FROM {schema}.events e
 WHERE e.position > $1::bigint AND e.position <= $2::bigint
   AND e.position <= coalesce(nullif(current_setting('daybook.safe', true), ''), '0')::bigint
   AND (cardinality($4::text[]) = 0 OR e.type = ANY ($4::text[]))
   AND (cardinality($5::text[]) = 0 OR split_part(e.stream_id, '-', 1) = ANY ($5::text[]))
 ORDER BY e.position LIMIT $3`
