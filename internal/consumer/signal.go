package consumer

import (
	"sync"

	"github.com/daybook-go/daybook/eventstore"
)

// signals tells waiters of this process that a worker of this process has committed. It is a hint to look at the
// database now rather than at the next poll, never an answer, so it may be shared by everything in the process: a
// waiter of another database with a consumer of the same name looks once too often.
var signals = signalBoard{byRef: map[Ref]*signal{}}

type signalBoard struct {
	mu    sync.Mutex
	byRef map[Ref]*signal
}

type signal struct {
	workers int
	applied eventstore.Position
	moved   chan struct{}
}

// Progress returns how far a worker of this process has come, and a channel that is closed at its next commit; the
// channel is nil when no worker of this process owns the consumer. Get it before looking at the database.
func Progress(ref Ref) (eventstore.Position, <-chan struct{}) {
	signals.mu.Lock()
	defer signals.mu.Unlock()
	if s := signals.byRef[ref]; s != nil {
		return s.applied, s.moved
	}
	return eventstore.Position{}, nil
}

func (b *signalBoard) enter(ref Ref, applied eventstore.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byRef[ref]
	if s == nil {
		s = &signal{moved: make(chan struct{})}
		b.byRef[ref] = s
	}
	s.workers++
	s.applied = applied
}

// leave wakes everybody, because who still waits must poll from now on.
func (b *signalBoard) leave(ref Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byRef[ref]
	if s.workers--; s.workers == 0 {
		delete(b.byRef, ref)
	}
	s.wake()
}

func (b *signalBoard) move(ref Ref, applied eventstore.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byRef[ref]
	s.applied = applied
	s.wake()
}

func (s *signal) wake() {
	close(s.moved)
	s.moved = make(chan struct{})
}
