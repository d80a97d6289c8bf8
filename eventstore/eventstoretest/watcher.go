package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// Reading returns the next events after a position, and the position from which to go on. An empty list with the same
// position means that there is nothing now.
type Reading func(ctx context.Context, after eventstore.Position) (events []eventstore.RecordedEvent, next eventstore.Position, err error)

// ReadingAll reads by ReadAll with a filter.
func ReadingAll(store eventstore.AllReader, f eventstore.Filter) Reading {
	return func(ctx context.Context, after eventstore.Position) ([]eventstore.RecordedEvent, eventstore.Position, error) {
		var list []eventstore.RecordedEvent
		for e, err := range store.ReadAll(ctx, after, f) {
			if err != nil {
				return nil, after, err
			}
			list, after = append(list, e), e.Position
		}
		return list, after, nil
	}
}

// ReadingPages reads by pages of a log and waits at its end.
func ReadingPages(log Log, f eventstore.Filter, limit int) Reading {
	return func(ctx context.Context, after eventstore.Position) ([]eventstore.RecordedEvent, eventstore.Position, error) {
		page, err := log.ReadPage(ctx, after, f, limit)
		if err != nil {
			return nil, after, err
		}
		if !page.Through.After(after) {
			return nil, after, log.Wait(ctx, after)
		}
		return page.Events, page.Through, nil
	}
}

// Watcher runs readers of a log while others write, and compares what each saw with the final truth. Only identities
// are kept, so a long run fits in memory. It is safe for concurrent use.
type Watcher struct {
	mu      sync.Mutex
	readers []*reader
	wg      sync.WaitGroup
}

// NewWatcher returns a watcher without readers.
func NewWatcher() *Watcher { return &Watcher{} }

type reader struct {
	name    string
	selects func(eventstore.RecordedEvent) bool

	mu    sync.Mutex
	seen  []sighting
	after eventstore.Position
	err   error
}

type sighting struct {
	id       uuid.UUID
	stream   eventstore.StreamID
	version  eventstore.Version
	position eventstore.Position
}

func sightingOf(e eventstore.RecordedEvent) sighting {
	return sighting{e.ID, e.Stream, e.Version, e.Position}
}

// Watch starts a reader from the beginning of the log. It reads until ctx ends, as a consumer does that commits its
// checkpoint after every call of read. [Watcher.Finish] waits for it.
func (w *Watcher) Watch(ctx context.Context, name string, read Reading) {
	w.WatchFiltered(ctx, name, read, func(eventstore.RecordedEvent) bool { return true })
}

// WatchFiltered is Watch for a reader that gets only the events that selects picks.
func (w *Watcher) WatchFiltered(ctx context.Context, name string, read Reading, selects func(eventstore.RecordedEvent) bool) {
	r := &reader{name: name, selects: selects}
	w.mu.Lock()
	w.readers = append(w.readers, r)
	w.mu.Unlock()
	w.wg.Go(func() {
		for ctx.Err() == nil {
			list, next, err := read(ctx, r.after)
			if err != nil {
				if ctx.Err() == nil {
					r.mu.Lock()
					r.err = errors.Join(r.err, err)
					r.mu.Unlock()
				}
				return
			}
			r.mu.Lock()
			for _, e := range list {
				r.seen = append(r.seen, sightingOf(e))
			}
			if next.Before(r.after) {
				r.err = errors.Join(r.err, fmt.Errorf("position went back from %s to %s", r.after, next))
			}
			idle := next == r.after
			r.after = next
			r.mu.Unlock()
			if idle {
				rest(ctx)
			}
		}
	})
}

// Finish lets the readers come to the end of truth, the whole log by position, which nobody may add to any more. Then it
// calls stop, which must end the context of the readers, waits for them and reports on each. A reader that has not come
// to the end when ctx ends is reported as it stands.
func (w *Watcher) Finish(ctx context.Context, stop context.CancelFunc, truth []eventstore.RecordedEvent) []Report {
	w.mu.Lock()
	readers := slices.Clone(w.readers)
	w.mu.Unlock()
	for _, r := range readers {
		for ctx.Err() == nil && !r.arrived(truth) {
			rest(ctx)
		}
	}
	stop()
	w.wg.Wait()
	reports := make([]Report, len(readers))
	for i, r := range readers {
		reports[i] = r.report(truth)
	}
	return reports
}

// rest lets others work for a moment before the next look.
func rest(ctx context.Context) {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// arrived reports whether a reader has passed the last event that it selects, or has failed.
func (r *reader) arrived(truth []eventstore.RecordedEvent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return true
	}
	for _, e := range slices.Backward(truth) {
		if r.selects(e) {
			return !r.after.Before(e.Position)
		}
	}
	return true
}

// Report is what a reader saw, compared with the truth.
type Report struct {
	Name string
	// Events is the number of events that it should have seen, Seen what it saw.
	Events, Seen int
	// Lost were never seen, Doubled seen more than once, Reordered seen after one of a higher position or of a higher
	// version of their stream, Unknown seen but not in the truth, or at another place.
	Lost, Doubled, Reordered, Unknown int
	// First names the first fault.
	First string
	Err   error
}

// Clean reports whether the reader saw each event once and in order.
func (r Report) Clean() bool {
	return r.Lost == 0 && r.Doubled == 0 && r.Reordered == 0 && r.Unknown == 0 && r.Err == nil
}

// String is one line with all counts and the first fault.
func (r Report) String() string {
	text := fmt.Sprintf("reader %q: %d of %d events; lost %d, doubled %d, reordered %d, unknown %d",
		r.Name, r.Seen, r.Events, r.Lost, r.Doubled, r.Reordered, r.Unknown)
	if r.First != "" {
		text += "; first: " + r.First
	}
	if r.Err != nil {
		text += "; error: " + r.Err.Error()
	}
	return text
}

func (r *reader) report(truth []eventstore.RecordedEvent) Report {
	report := Report{Name: r.name, Seen: len(r.seen), Err: r.err}
	fault := func(count *int, what string, s sighting) {
		if *count++; report.First == "" {
			report.First = fmt.Sprintf("%s: stream %q version %d at %s", what, s.stream, s.version, s.position)
		}
	}
	want := make(map[uuid.UUID]sighting, len(truth))
	for _, e := range truth {
		if r.selects(e) {
			want[e.ID] = sightingOf(e)
		}
	}
	report.Events = len(want)
	seen := make(map[uuid.UUID]bool, len(r.seen))
	versions := make(map[eventstore.StreamID]eventstore.Version)
	var last eventstore.Position
	for _, s := range r.seen {
		if seen[s.id] {
			fault(&report.Doubled, "doubled", s)
			continue
		}
		seen[s.id] = true
		if want[s.id] != s {
			fault(&report.Unknown, "unknown", s)
			continue
		}
		if !s.position.After(last) || s.version <= versions[s.stream] {
			fault(&report.Reordered, "reordered", s)
		}
		last, versions[s.stream] = s.position, s.version
	}
	for _, e := range truth {
		if r.selects(e) && !seen[e.ID] {
			fault(&report.Lost, "lost", sightingOf(e))
		}
	}
	return report
}
