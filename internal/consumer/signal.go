package consumer

import (
	"sync"

	"github.com/google/uuid"
)

// signals tells waiters of this process what workers of this process have committed, so that they need not poll the
// database. The store's epoch tells databases with consumers of the same name apart.
var signals = signalBoard{byPlace: map[place]*signal{}}

type place struct {
	ref     Ref
	segment int
	epoch   uuid.UUID
}

type signalBoard struct {
	mu      sync.Mutex
	byPlace map[place]*signal
}

type signal struct {
	workers int
	reached Reached
	moves   chan struct{}
}

// Reached is how far a worker of this process has come.
type Reached struct {
	// Applied is committed: whoever asks the database now sees it.
	Applied Progress
	// Home is the worker's Config.Home.
	Home any
	// Aside are the partitions of which sequences are set aside, so that Applied is not all of them. It is not changed.
	Aside map[int]struct{}
}

// ReachedBy returns how far a worker of this process has come with the first segment, the only one of what applies events, and a channel that is closed at its next commit, or when
// it gives the consumer up. The channel is nil when no worker of this process owns the consumer in that store. Get it
// before looking at the database.
func ReachedBy(ref Ref, epoch uuid.UUID) (Reached, <-chan struct{}) {
	signals.mu.Lock()
	defer signals.mu.Unlock()
	if s := signals.byPlace[place{ref, 0, epoch}]; s != nil {
		return s.reached, s.moves
	}
	return Reached{}, nil
}

func (b *signalBoard) enter(p place, reached Reached) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byPlace[p]
	if s == nil {
		s = &signal{moves: make(chan struct{})}
		b.byPlace[p] = s
	}
	s.workers++ // two for a moment, when one takes over from another
	s.reached = reached
}

// leave wakes everybody, because who still waits must poll from now on.
func (b *signalBoard) leave(p place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byPlace[p]
	if s.workers--; s.workers == 0 {
		delete(b.byPlace, p)
	}
	s.wake()
}

func (b *signalBoard) move(p place, reached Reached) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byPlace[p]
	s.reached = reached
	s.wake()
}

func (s *signal) wake() {
	close(s.moves)
	s.moves = make(chan struct{})
}
