package aggregate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// patience is how long a turn may last before the next begins beside it.
const patience = time.Second

// WithoutLanes lets the commands of a repository on one stream run side by side, as those of different processes do,
// instead of one after the other with all that this process has for the stream. Each still decides on what is stored, or again.
func WithoutLanes() Option {
	return optionFunc(func(c *repositoryConfig) { c.noLanes = true })
}

// turns lets those who name the same key go one after the other, in the order in which they came. It is a courtesy that
// saves work, never a lock that something depends on: who has had the turn for longer than patience loses it to the next
// in line. So a command that is given from within another one on the same key cannot hang for ever, and what is slow
// gains one companion in each such time, not all that wait.
//
// It takes memory only for keys in use, and is safe for concurrent use.
type turns[K comparable] struct {
	patience time.Duration

	mu    sync.Mutex
	lines map[K]*line
}

// line is who has the turn, and who waits.
type line struct {
	holder  *turn
	since   time.Time
	waiting []*turn
}

// turn is one who came. Its channel is closed when its turn has come.
type turn struct{ come chan struct{} }

func newTurns[K comparable](patience time.Duration) *turns[K] {
	return &turns[K]{patience: patience, lines: map[K]*line{}}
}

// enter waits until it is the caller's turn, which the caller leaves. Waiting ends with ctx, whose error comes back then.
func (t *turns[K]) enter(ctx context.Context, key K) (*turn, error) {
	me, first := t.queue(key)
	if first {
		return me, nil
	}
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	for {
		select {
		case <-me.come:
			return me, nil
		case <-ctx.Done():
			t.giveUp(key, me)
			return nil, ctx.Err()
		case <-timer.C:
			timer.Reset(t.hurry(key))
		}
	}
}

// tryEnter takes the turn if nobody has it; else it returns nil.
func (t *turns[K]) tryEnter(key K) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines[key] != nil {
		return nil
	}
	me := &turn{}
	t.lines[key] = &line{holder: me, since: time.Now()}
	return me
}

func (t *turns[K]) queue(key K) (me *turn, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if l == nil {
		me = &turn{}
		t.lines[key] = &line{holder: me, since: time.Now()}
		return me, true
	}
	me = &turn{come: make(chan struct{})}
	l.waiting = append(l.waiting, me)
	return me, false
}

// leave ends a turn; leaving again, or after the turn was lost, is harmless. open lets all that wait go at once.
func (t *turns[K]) leave(key K, me *turn, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if l == nil || l.holder != me {
		return
	}
	if !open {
		t.next(key, l)
		return
	}
	for _, w := range l.waiting {
		close(w.come)
	}
	delete(t.lines, key)
}

// giveUp leaves the line, or the turn that came in the same moment.
func (t *turns[K]) giveUp(key K, me *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	switch {
	case l == nil:
	case l.holder == me:
		t.next(key, l)
	default:
		l.waiting = slices.DeleteFunc(l.waiting, func(w *turn) bool { return w == me })
	}
}

// hurry passes the turn on when it has lasted too long, and returns the time until the next look.
func (t *turns[K]) hurry(key K) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if l == nil {
		return t.patience
	}
	if time.Since(l.since) >= t.patience {
		t.next(key, l)
	}
	return max(t.patience-time.Since(l.since), time.Millisecond)
}

func (t *turns[K]) next(key K, l *line) {
	if len(l.waiting) == 0 {
		delete(t.lines, key)
		return
	}
	l.holder, l.since = l.waiting[0], time.Now()
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	close(l.holder.come)
}

// lane is the way to one stream of a store.
type lane struct {
	store  any
	stream eventstore.StreamID
}

// inLanes are the commands of this process that are on their way to a stream, through whichever repository.
var inLanes = newTurns[lane](patience)

// enterLanes takes the lanes, one after the other.
func enterLanes(ctx context.Context, in *turns[lane], lanes []lane) (leave func(), err error) {
	entered := make([]*turn, 0, len(lanes))
	leave = func() {
		for i, me := range entered {
			in.leave(lanes[i], me, false)
		}
	}
	for _, l := range lanes {
		me, err := in.enter(ctx, l)
		if err != nil {
			leave()
			return nil, err
		}
		entered = append(entered, me)
	}
	return leave, nil
}

// enterLanes takes the lanes that the command is known to need, unless it has them.
func (c *command) enterLanes(ctx context.Context) error {
	if slices.Equal(c.lanes, c.entered) {
		return nil
	}
	c.leaveLanes()
	lanes := slices.Clone(c.lanes)
	leave, err := enterLanes(ctx, inLanes, lanes)
	if err != nil {
		return fmt.Errorf("aggregate: %s: wait for the commands before it: %w", c.operation, err)
	}
	c.leave, c.entered = leave, lanes
	return nil
}

func (c *command) leaveLanes() {
	if c.leave != nil {
		c.leave()
	}
	c.leave, c.entered = nil, nil
}
