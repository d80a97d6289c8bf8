package outbox

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// errBufferClosed ends those who wait at a buffer.
var errBufferClosed = errors.New("outbox: buffer closed")

// buffer stands between one receiver and many readers and holds at most credit entries. Entries are numbered as they
// arrive, every reader gets all of them in that order, and what each reader has had goes.
//
// A buffer that is full holds the receiver back, which is how a broker learns to wait. It does so for the sake of the
// fastest reader only: when one has read everything, entries that slower readers have not seen make room. Those learn
// of it (see [reader.take]) and get what they missed elsewhere. So one slow reader never holds the others.
//
// All methods are safe for concurrent use. A buffer starts no goroutine and polls nothing.
type buffer[T any] struct {
	mu      sync.Mutex
	ring    []T    // entry n is at n % len(ring); what is not held is zero
	first   uint64 // number of the oldest entry held
	next    uint64 // number of the entry that arrives next
	readers []*reader[T]
	room    chan struct{} // holds a token when it may be worth trying to put again
	done    chan struct{} // closed by close
	closed  bool
}

// newBuffer returns a buffer of at most credit entries; fewer than one count as one.
func newBuffer[T any](credit int) *buffer[T] {
	return &buffer[T]{ring: make([]T, max(credit, 1)), room: make(chan struct{}, 1), done: make(chan struct{})}
}

// put adds an entry. While the buffer is full it waits for room, until ctx ends or the buffer is closed; then the entry
// has not been added.
func (b *buffer[T]) put(ctx context.Context, entry T) error {
	for {
		if ok, err := b.add(entry); ok || err != nil {
			return err
		}
		select {
		case <-b.room:
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryPut adds an entry unless that would have to wait, or the buffer is closed. It reports whether it did.
func (b *buffer[T]) tryPut(entry T) bool {
	ok, _ := b.add(entry)
	return ok
}

func (b *buffer[T]) add(entry T) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, errBufferClosed
	}
	if b.full() && !b.makeRoom() {
		return false, nil
	}
	b.ring[b.next%uint64(len(b.ring))] = entry
	b.next++
	for _, r := range b.readers {
		signal(r.more)
	}
	if !b.full() {
		signal(b.room) // another one may wait to put, whose token this was
	}
	return true, nil
}

func (b *buffer[T]) full() bool { return b.next-b.first == uint64(len(b.ring)) }

// makeRoom lets the oldest entries of a full buffer go, if nobody reads or some reader has read everything. For a reader
// a quarter goes at once: one by one, the reader that keeps up would get its entries one by one as well.
func (b *buffer[T]) makeRoom() bool {
	if len(b.readers) == 0 {
		b.release(b.first + 1)
		return true
	}
	if !slices.ContainsFunc(b.readers, func(r *reader[T]) bool { return r.cursor == b.next }) {
		return false
	}
	b.release(b.first + uint64(max(len(b.ring)/4, 1)))
	return true
}

// release lets go of the entries before number n, so that nothing keeps them in memory.
func (b *buffer[T]) release(n uint64) {
	var none T
	for ; b.first < n; b.first++ {
		b.ring[b.first%uint64(len(b.ring))] = none
	}
}

// settle releases what every reader has had. Without any reader nothing counts as read.
func (b *buffer[T]) settle() {
	if len(b.readers) > 0 {
		slowest := b.next
		for _, r := range b.readers {
			slowest = min(slowest, r.cursor)
		}
		b.release(slowest)
	}
	signal(b.room) // also for a reader that has now read everything, or is gone
}

// held returns how many entries the buffer holds.
func (b *buffer[T]) held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.next - b.first)
}

// close ends every put that waits. Readers still get what is held, and then [errBufferClosed].
func (b *buffer[T]) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.done)
	}
}

// reader is one reader's place in a buffer. It is for one goroutine.
type reader[T any] struct {
	buffer *buffer[T]
	cursor uint64        // number of the entry it gets next
	more   chan struct{} // holds a token when something arrived
	gone   bool
}

// reader returns a new reader that begins with the oldest entry held. It must leave when it is done, or it holds the
// others back.
func (b *buffer[T]) reader() *reader[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &reader[T]{buffer: b, cursor: b.first, more: make(chan struct{}, 1)}
	b.readers = append(b.readers, r)
	signal(b.room)
	return r
}

// take moves the next entries into batch, as many as there are and fit, and returns how many; it does not wait. overrun
// reports that entries between the last batch and this one went to make room: what follows begins at the oldest held.
func (r *reader[T]) take(batch []T) (n int, overrun bool) {
	n, overrun, _ = r.look(batch)
	return n, overrun
}

// look is take that also says whether nothing more will come.
func (r *reader[T]) look(batch []T) (n int, overrun, end bool) {
	b := r.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.gone {
		return 0, false, true
	}
	if overrun = r.cursor < b.first; overrun {
		r.cursor = b.first
	}
	for ; n < len(batch) && r.cursor < b.next; n++ {
		batch[n] = b.ring[r.cursor%uint64(len(b.ring))]
		r.cursor++
	}
	if n > 0 || overrun {
		b.settle()
	}
	return n, overrun, b.closed && r.cursor == b.next
}

// next is take that waits for an entry, until ctx ends or the buffer is closed and read to its end.
func (r *reader[T]) next(ctx context.Context, batch []T) (n int, overrun bool, err error) {
	for {
		n, overrun, end := r.look(batch)
		if n > 0 || len(batch) == 0 {
			return n, overrun, nil
		}
		if end {
			return 0, overrun, errBufferClosed
		}
		select {
		case <-r.more:
		case <-r.buffer.done:
		case <-ctx.Done():
			return 0, overrun, ctx.Err()
		}
	}
}

// leave ends the reader: it gets nothing more and holds nobody. Leaving twice is leaving once.
func (r *reader[T]) leave() {
	b := r.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.gone {
		return
	}
	r.gone = true
	b.readers = slices.DeleteFunc(b.readers, func(o *reader[T]) bool { return o == r })
	b.settle()
}

// signal puts a token where there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
