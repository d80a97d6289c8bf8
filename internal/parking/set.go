package parking

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// Set is what an owner knows of its sequences that are set aside. One goroutine uses it.
type Set struct {
	owner   Owner
	texts   *texts
	byKey   map[Key]*entry
	due     dueHeap
	perPart map[int]int // how many, by partition
	counts  Counts
	unknown bool // counts.Oldest is to be found anew
}

// entry is a sequence with what only its owner knows.
type entry struct {
	Sequence
	item *Item     // that its letter is being tried for
	at   time.Time // when there is something to do
	n    int       // its place in the heap, -1 outside
	// people: it has waited for people, or may have, before this owner.
	people bool
}

// Counts are sequences by state, and since when the oldest has been set aside: zero when there is none.
type Counts struct {
	Retrying, Parked, Draining int
	Oldest                     time.Time
}

// Load reads the sequences of the partitions from first to last, inclusive. Call it after the lease is taken.
func Load(ctx context.Context, q Querier, o Owner, first, last int) (*Set, error) {
	s := &Set{owner: o, texts: textsFor(o), byKey: map[Key]*entry{}, perPart: map[int]int{}}
	rows, err := q.Query(ctx, s.texts.load, o.Consumer, o.Version, first, last)
	if err != nil {
		return nil, fmt.Errorf("parking: read what %q has set aside: %w", o.Consumer, err)
	}
	var x Sequence
	var due *time.Time
	var from, to, previous int64
	_, err = pgx.ForEachRow(rows, []any{&x.Topic, &x.Sequence, &x.Partition, &x.State, &due, &from, &to, &previous, &x.Queued, &x.Since}, func() error {
		x.First, x.Last, x.Previous = eventstore.PositionAt(from), eventstore.PositionAt(to), eventstore.PositionAt(previous)
		x.DueAt = time.Time{}
		if due != nil {
			x.DueAt = *due
		}
		s.put(x, time.Time{}).people = x.State != Retrying
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("parking: read what %q has set aside: %w", o.Consumer, err)
	}
	return s, nil
}

// Owner is whose set it is.
func (s *Set) Owner() Owner { return s.owner }

// Len is how many sequences are set aside.
func (s *Set) Len() int { return len(s.byKey) }

// Partitions are those of which sequences are set aside: a map of its own, nil when there are none.
func (s *Set) Partitions() map[int]struct{} {
	if len(s.perPart) == 0 {
		return nil
	}
	all := make(map[int]struct{}, len(s.perPart))
	for p := range s.perPart {
		all[p] = struct{}{}
	}
	return all
}

// Get returns what is known of a sequence, and false when it is not set aside.
func (s *Set) Get(k Key) (Sequence, bool) {
	if e, ok := s.byKey[k]; ok {
		return e.Sequence, true
	}
	return Sequence{}, false
}

// All calls f for each sequence, in no order, until f returns false.
func (s *Set) All(f func(Sequence) bool) {
	for _, e := range s.byKey {
		if !f(e.Sequence) {
			return
		}
	}
}

// Due returns the sequence for which there has been something to do the longest: a letter that is due, or what is queued.
func (s *Set) Due(now time.Time) (Sequence, bool) {
	if len(s.due) > 0 && !s.due[0].at.After(now) {
		return s.due[0].Sequence, true
	}
	return Sequence{}, false
}

// NextDue says when there is something to do next, and false when there is nothing until something changes.
func (s *Set) NextDue() (time.Time, bool) {
	if len(s.due) > 0 {
		return s.due[0].at, true
	}
	return time.Time{}, false
}

// PutOff makes a sequence that is Retrying or Draining due at another time. Nobody else learns of it.
func (s *Set) PutOff(k Key, at time.Time) {
	if e, ok := s.byKey[k]; ok && e.State != Parked {
		s.schedule(e, at)
	}
}

// NotAfter brings what is due after a time to that time. Nobody else learns of it.
func (s *Set) NotAfter(at time.Time) {
	for _, e := range s.byKey {
		if e.n >= 0 && e.at.After(at) {
			s.schedule(e, at)
		}
	}
}

// Await takes a sequence off what is due until something of it is held, or its state changes.
func (s *Set) Await(k Key) {
	if e, ok := s.byKey[k]; ok && e.n >= 0 {
		heap.Remove(&s.due, e.n)
	}
}

// Item is the item of a plan for which the letter of a sequence is being tried.
func (s *Set) Item(k Key) (Item, bool) {
	if e, ok := s.byKey[k]; ok && e.item != nil {
		return *e.item, true
	}
	return Item{}, false
}

// Track notes an item that an owner before has begun with.
func (s *Set) Track(i Item) {
	if e, ok := s.byKey[i.Key]; ok {
		e.item = &i
	}
}

// Counts are sequences by state.
func (s *Set) Counts() Counts {
	if s.unknown {
		s.unknown, s.counts.Oldest = false, time.Time{}
		for _, e := range s.byKey {
			s.older(e.Since)
		}
	}
	return s.counts
}

func (s *Set) older(since time.Time) {
	if s.counts.Oldest.IsZero() || since.Before(s.counts.Oldest) {
		s.counts.Oldest = since
	}
}

// put adds a sequence, or what is new of it. now is when what is queued behind is looked at.
func (s *Set) put(x Sequence, now time.Time) *entry {
	e, ok := s.byKey[x.Key]
	if ok {
		s.count(e.State, -1)
	} else {
		e = &entry{n: -1}
		s.byKey[x.Key] = e
		s.perPart[x.Partition]++
		if !s.unknown {
			s.older(x.Since)
		}
	}
	e.Sequence = x
	e.people = e.people || x.State == Parked
	s.count(x.State, 1)
	switch x.State {
	case Retrying:
		s.schedule(e, x.DueAt)
	case Draining:
		s.schedule(e, now)
	default:
		if e.n >= 0 {
			heap.Remove(&s.due, e.n)
		}
	}
	return e
}

func (s *Set) remove(k Key) {
	e, ok := s.byKey[k]
	if !ok {
		return
	}
	if e.n >= 0 {
		heap.Remove(&s.due, e.n)
	}
	s.count(e.State, -1)
	delete(s.byKey, k)
	if s.perPart[e.Partition]--; s.perPart[e.Partition] == 0 {
		delete(s.perPart, e.Partition)
	}
	s.unknown = s.unknown || !e.Since.After(s.counts.Oldest)
}

func (s *Set) count(state State, n int) {
	switch state {
	case Retrying:
		s.counts.Retrying += n
	case Parked:
		s.counts.Parked += n
	case Draining:
		s.counts.Draining += n
	}
}

func (s *Set) schedule(e *entry, at time.Time) {
	e.at = at
	if e.n >= 0 {
		heap.Fix(&s.due, e.n)
		return
	}
	heap.Push(&s.due, e)
}

// dueHeap has what is due first at its top.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].n, h[j].n = i, j }

// Push implements [heap.Interface].
func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.n = len(*h)
	*h = append(*h, e)
}

// Pop implements [heap.Interface].
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h, e.n = old[:len(old)-1], -1
	return e
}

const loadSQL = `
SELECT topic, sequence, partition, state, due_at, first_position, last_position, previous, queued, since
  FROM {schema}.parked WHERE consumer = $1 AND version = $2 AND partition BETWEEN $3 AND $4`
