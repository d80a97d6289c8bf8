package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/daybook-go/daybook/eventstore"
)

// locks are held by name. A name that is there is held, and its list are those who wait, in the order in which they came.
// The store's mutex guards it.
type locks map[string][]chan struct{}

// Names of locks, in the order in which whoever takes several takes them: keys, streams, the end of the log.
const (
	keyPrefix    = "1 "
	streamPrefix = "2 "
	logLock      = "3"
)

func streamLocks(writes []eventstore.Write) []string {
	names := make([]string, len(writes), len(writes)+2)
	for i, w := range writes {
		names[i] = streamPrefix + w.Stream.String()
	}
	return names
}

// lockedKey finds in a context the locks of a store that are held for who uses it.
type lockedKey struct{ store *Store }

// exclusively runs do under the mutex while nobody holds one of the locks. It waits for those who do, in turn.
func (s *Store) exclusively(ctx context.Context, names []string, do func()) error {
	mine, _ := ctx.Value(lockedKey{s}).([]string)
	for _, name := range names {
		if slices.Contains(mine, name) {
			return &eventstore.InvalidError{
				Field: "Stream or Key", Value: name[len(streamPrefix):], Reason: "is locked by the caller itself",
				Remedy: "append through what WithStreamsLocked gives",
			}
		}
	}
	s.mu.Lock()
	free := !slices.ContainsFunc(names, s.locks.held)
	if free {
		defer s.mu.Unlock()
		do()
		return nil
	}
	s.mu.Unlock()
	if err := s.lockAll(ctx, names); err != nil {
		return fmt.Errorf("memory: append: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.locks.releaseAll(names)
	do()
	return nil
}

// lockAll takes the locks in order, or none when ctx ends first. It sorts names and must not get one twice.
func (s *Store) lockAll(ctx context.Context, names []string) error {
	slices.Sort(names)
	for i, name := range names {
		if err := s.lock(ctx, name); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.locks.releaseAll(names[:i])
			return err
		}
	}
	return nil
}

func (s *Store) lock(ctx context.Context, name string) error {
	s.mu.Lock()
	if s.locks.take(name) {
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	s.locks[name] = append(s.locks[name], turn)
	s.mu.Unlock()
	select {
	case <-turn: // whoever had it has handed it over
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-turn:
		s.locks.release(name)
	default:
		s.locks[name] = slices.DeleteFunc(s.locks[name], func(c chan struct{}) bool { return c == turn })
	}
	return ctx.Err()
}

func (l locks) held(name string) bool {
	_, held := l[name]
	return held
}

// take takes a lock if nobody has it.
func (l locks) take(name string) bool {
	if l.held(name) {
		return false
	}
	l[name] = nil
	return true
}

func (l locks) release(name string) {
	queue := l[name]
	if len(queue) == 0 {
		delete(l, name)
		return
	}
	l[name] = queue[1:]
	close(queue[0])
}

func (l locks) releaseAll(names []string) {
	for _, name := range names {
		l.release(name)
	}
}
