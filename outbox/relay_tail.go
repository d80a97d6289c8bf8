package outbox

import (
	"context"
	"sync"

	"github.com/daybook-go/daybook/eventstore"
)

// tail is the end of the outbox as the segments of one process share it: those that have read the same wait together, and
// one reads for all, so that an append is looked for once and not once for each segment. Who has a backlog reads its own
// partitions by itself.
type tail struct {
	rows  Rows
	limit int
	ctx   context.Context // of Run
	stop  context.CancelFunc
	busy  sync.WaitGroup

	mu       sync.Mutex
	segments int // at work
	waits    map[eventstore.Position]*tailWait
	reads    map[eventstore.Position]*tailRead
}

// tailWait is one call of Wait.
type tailWait struct {
	users int
	stop  context.CancelFunc
	done  chan struct{}
	err   error
}

// tailRead is a page of all partitions. It is kept until every segment has had it, or another was read since.
type tailRead struct {
	taken int
	over  bool
	done  chan struct{}
	pageRead
}

func newTail(ctx context.Context, rows Rows, limit int) *tail {
	t := &tail{rows: rows, limit: limit, waits: map[eventstore.Position]*tailWait{}, reads: map[eventstore.Position]*tailRead{}}
	t.ctx, t.stop = context.WithCancel(ctx)
	return t
}

// close ends what is under way.
func (t *tail) close() {
	t.stop()
	t.busy.Wait()
}

// enter and leave count the segments at work.
func (t *tail) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.segments++
}

func (t *tail) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.segments--
	for after, r := range t.reads {
		t.drop(after, r)
	}
}

// wait is Rows.Wait.
func (t *tail) wait(ctx context.Context, after eventstore.Position) error {
	t.mu.Lock()
	w := t.waits[after]
	if w == nil {
		w = &tailWait{done: make(chan struct{})}
		var waiting context.Context
		waiting, w.stop = context.WithCancel(t.ctx)
		t.waits[after] = w
		t.busy.Go(func() {
			defer w.stop()
			err := t.rows.Wait(waiting, after)
			t.mu.Lock()
			defer t.mu.Unlock()
			w.err = err
			if t.waits[after] == w {
				delete(t.waits, after)
			}
			close(w.done)
		})
	}
	w.users++
	t.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
		if t.waits[after] == w { // who comes later must not get the end of this one
			delete(t.waits, after)
		}
	}
	return ctx.Err()
}

// read returns the page of all partitions after a position.
func (t *tail) read(ctx context.Context, after eventstore.Position) pageRead {
	t.mu.Lock()
	r := t.reads[after]
	if r == nil {
		r = &tailRead{done: make(chan struct{})}
		t.reads[after] = r
		t.busy.Go(func() {
			page := readPage(t.ctx, t.rows, eventstore.OutboxQuery{Partition: eventstore.AllPartitions, After: after, Limit: t.limit})
			t.mu.Lock()
			defer t.mu.Unlock()
			r.pageRead, r.over = page, true
			for at, other := range t.reads {
				if other != r && other.over {
					delete(t.reads, at)
				}
			}
			t.drop(after, r)
			close(r.done)
		})
	}
	r.taken++
	t.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		return pageRead{err: ctx.Err()}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(after, r)
	return r.pageRead
}

// drop forgets a page that everybody has had, and one that leads nowhere: the next look must find what came since. The
// lock is held.
func (t *tail) drop(after eventstore.Position, r *tailRead) {
	if r.over && t.reads[after] == r && (r.taken >= t.segments || r.err != nil || !r.page.Through.After(after)) {
		delete(t.reads, after)
	}
}
