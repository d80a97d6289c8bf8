package commands

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/bus"
)

// calls are the handlers at work in this process. The zero value is ready.
type calls struct {
	mu   sync.Mutex
	all  map[*call]struct{}
	hung int
}

type call struct {
	kind  string
	id    uuid.UUID
	began time.Time
	hung  bool
}

func (s *calls) begin(c bus.Command) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*call]struct{}{}
	}
	made := &call{kind: c.Type, id: c.ID, began: time.Now()}
	s.all[made] = struct{}{}
	return made
}

func (s *calls) end(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	if c.hung {
		s.hung--
	}
}

// hangs notes that nobody waits for a handler any more.
func (s *calls) hangs(c *call, log *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, still := s.all[c]; !still {
		return
	}
	c.hung = true
	s.hung++
	log.Warn("a handler ignores the end of its context and still runs; what it does takes no effect any more", "type", c.kind, "id", c.id, "since", c.began)
}

// hanging says which handlers hang, the oldest first, and how many.
func (s *calls) hanging() (text string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *call
	for c := range s.all {
		if c.hung && (oldest == nil || c.began.Before(oldest.began)) {
			oldest = c
		}
	}
	if oldest == nil {
		return "", 0
	}
	return fmt.Sprintf("%d handlers ignore the end of their context and still run, that of %q %s since %s",
		s.hung, oldest.kind, oldest.id, oldest.began.UTC().Format(time.RFC3339)), s.hung
}

// running names the commands whose handlers still run.
func (s *calls) running() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for c := range s.all {
		names = append(names, fmt.Sprintf("%q %s", c.kind, c.id))
	}
	slices.Sort(names)
	return names
}
