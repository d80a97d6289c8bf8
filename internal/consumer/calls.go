package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// maxLeft is how many handlers that ignore the end of their contexts a process bears.
const maxLeft = 64

// leftHere are those of this process.
var leftHere = &calls{most: maxLeft}

// calls are handlers that nobody waits for any more, and that still run.
type calls struct {
	most int

	mu   sync.Mutex
	left []*call // the oldest first
}

// call is one run of handlers, in a goroutine of its own.
type call struct {
	w      *Worker
	events []eventstore.RecordedEvent
	began  time.Time

	mu    sync.Mutex
	s     *session // the connection that it uses
	ended bool
	left  bool // nobody waits for it
}

// has notes the connection that the call uses from now on. It reports false when nobody waits for the call any more, and the
// connection is not to be used.
func (c *call) has(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left {
		c.s = s
	}
	return !c.left
}

// end reports whether somebody waits for the call. If not, the connection is the call's own, and it is closed.
func (c *call) end() bool {
	c.mu.Lock()
	c.ended = true
	waited := !c.left
	c.mu.Unlock()
	if waited {
		return true
	}
	if c.s != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = c.s.conn.Close(ctx) // its network connection is closed
		cancel()
	}
	c.w.cfg.calls.forget(c)
	return false
}

// leave leaves a call to itself, together with its connection, unless it has ended. n is how many there are.
func (s *calls) leave(c *call) (n int, left bool) {
	s.mu.Lock()
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		s.mu.Unlock()
		return len(s.left), false
	}
	c.left = true
	s.left = append(s.left, c)
	n = len(s.left)
	c.mu.Unlock()
	s.mu.Unlock()
	if c.s != nil { // nobody writes it any more
		c.s.cut()
	}
	return n, true
}

func (s *calls) forget(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = slices.DeleteFunc(s.left, func(o *call) bool { return o == c })
}

// of says which handlers of a worker still run, the oldest first, and how many; empty when there are none.
func (s *calls) of(w *Worker) (text string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *call
	for _, c := range s.left {
		if c.w != w {
			continue
		}
		if n++; oldest == nil {
			oldest = c
		}
	}
	if oldest == nil {
		return "", 0
	}
	return fmt.Sprintf("%d handlers ignore the end of their context and still run, that of %s since %s",
		n, oldest, oldest.began.UTC().Format(time.RFC3339)), n
}

func (c *call) String() string {
	first := c.events[0]
	if n := len(c.events); n > 1 {
		return fmt.Sprintf("one of %d events from %q at position %s on", n, first.Type, first.Position)
	}
	return fmt.Sprintf("%q at position %s", first.Type, first.Position)
}

// runs reports whether a handler of one event alone, of any worker of a consumer in this process, still runs.
func (s *calls) runs(ref Ref, at eventstore.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.left, func(c *call) bool {
		return c.w.spec.Ref == ref && len(c.events) == 1 && c.events[0].Position == at
	})
}

// maxNamed bounds how many handlers a text names.
const maxNamed = 5

// names says which handlers of the process still run: those that do so most often, and of what.
func (s *calls) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	many := map[string]int{}
	var named []string
	for _, c := range s.left {
		name := fmt.Sprintf("%s for %q", c.w.spec.Ref, c.events[0].Type)
		if many[name]++; many[name] == 1 {
			named = append(named, name)
		}
	}
	slices.SortStableFunc(named, func(a, b string) int { return many[b] - many[a] })
	var texts []string
	for i, name := range named {
		if i == maxNamed {
			texts = append(texts, fmt.Sprintf("%d more", len(named)-i))
			break
		}
		texts = append(texts, fmt.Sprintf("%d of %s", many[name], name))
	}
	return fmt.Sprintf("%d handlers ignore the end of their context and still run: %s", len(s.left), strings.Join(texts, ", "))
}
