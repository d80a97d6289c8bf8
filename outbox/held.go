package outbox

import (
	"slices"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// holdFor is how long a message is held for its predecessor before that is read from the outbox.
const holdFor = 20 * time.Millisecond

// held are messages that came before their predecessors, by partition and position. The zero value is empty.
type held struct {
	items []heldItem
}

type heldItem struct {
	item
	since time.Time
}

func compareHeld(a, b heldItem) int {
	if a.partition != b.partition {
		return a.partition - b.partition
	}
	return a.position.Compare(b.position)
}

// add keeps a message. Of two that are the same, one is enough.
func (h *held) add(it item, now time.Time) {
	entry := heldItem{it, now}
	at, found := slices.BinarySearchFunc(h.items, entry, compareHeld)
	if !found {
		h.items = slices.Insert(h.items, at, entry)
	}
}

// after returns the first message of a partition if nothing lies any more between it and what was read, and forgets it.
func (h *held) after(partition int, read eventstore.Position) (item, bool) {
	at, _ := slices.BinarySearchFunc(h.items, heldItem{item: item{received: received{partition: partition}}}, compareHeld)
	if at == len(h.items) || h.items[at].partition != partition {
		return item{}, false
	}
	if it := &h.items[at]; it.needs().After(read) && it.position.After(read) {
		return item{}, false
	}
	first := h.items[at].item
	h.items = slices.Delete(h.items, at, at+1)
	return first, true
}

// drop forgets what lies at or below what was read.
func (h *held) drop(read []eventstore.Position) {
	h.items = slices.DeleteFunc(h.items, func(it heldItem) bool { return !it.position.After(read[it.partition]) })
}

// until is when the longest held has been held long enough; zero when nothing is held.
func (h *held) until() time.Time {
	if len(h.items) == 0 {
		return time.Time{}
	}
	return h.oldest().since.Add(holdFor)
}

// due reports whether something has been held for long enough, or more than limit is.
func (h *held) due(now time.Time, limit int) bool {
	return len(h.items) > 0 && (len(h.items) >= limit || !now.Before(h.until()))
}

func (h *held) oldest() heldItem {
	return slices.MinFunc(h.items, func(a, b heldItem) int { return a.since.Compare(b.since) })
}

// hole is what the longest held message waits for: everything up to the predecessor of the first of its partition. When that
// is a skip marker, what it stands for is missing, and that of the markers that follow in the same chain with it: each by
// itself would be a query.
func (h *held) hole() *missing {
	oldest := h.oldest()
	at := slices.IndexFunc(h.items, func(it heldItem) bool { return it.partition == oldest.partition })
	m := &missing{partition: oldest.partition, upTo: h.items[at].needs()}
	reached := m.upTo
	for _, it := range h.items[at:] {
		if it.partition != m.partition || it.previous.After(reached) {
			break
		}
		if reached = it.position; it.needs() == it.position {
			m.upTo = reached
		}
	}
	return m
}
