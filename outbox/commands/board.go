package commands

import (
	"sync"

	"github.com/google/uuid"
)

// changes tells those who watch operations in this process what a dispatcher of this process has committed.
var changes = board{waiting: map[uuid.UUID]*listener{}}

// board has an entry for each operation that is watched, and only while it is.
type board struct {
	mu      sync.Mutex
	waiting map[uuid.UUID]*listener
}

type listener struct {
	watchers int
	changed  chan struct{}
}

// watch begins to listen; leave ends it.
func (b *board) watch(id uuid.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.waiting[id]
	if l == nil {
		l = &listener{changed: make(chan struct{})}
		b.waiting[id] = l
	}
	l.watchers++
}

func (b *board) leave(id uuid.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.waiting[id]
	if l.watchers--; l.watchers == 0 {
		delete(b.waiting, id)
	}
}

// next returns a channel that is closed by the next change. Get it before looking.
func (b *board) next(id uuid.UUID) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[id].changed
}

func (b *board) tell(ids []uuid.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if l := b.waiting[id]; l != nil {
			close(l.changed)
			l.changed = make(chan struct{})
		}
	}
}
