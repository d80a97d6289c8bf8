package commands

import (
	"context"
	"math"
	"sync"
)

// Progress says how far the command is that the handler of ctx carries out: a fraction from 0 to 1, and a note for people
// of at most 1,000 bytes. Whoever watches the operation sees it within about a tenth of a second; of several in quick
// succession only the last. It costs nothing beyond memory on the handler's path, is never an error, and does nothing when
// the command did not come through the outbox. A fraction outside of 0 to 1 is moved to the nearest of them.
func Progress(ctx context.Context, fraction float64, note string) {
	p, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return
	}
	if math.IsNaN(fraction) {
		fraction = 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fraction, p.note, p.changed = min(max(fraction, 0), 1), cleaned(note, maxNote), true
}

type progressKey struct{}

// progress is what the handler said last.
type progress struct {
	mu       sync.Mutex
	fraction float64
	note     string
	changed  bool
}

// take returns what is new.
func (p *progress) take() (fraction float64, note string, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed, p.changed = p.changed, false
	return p.fraction, p.note, changed
}

// again says that what was taken did not arrive.
func (p *progress) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = true
}

// last returns what was said last.
func (p *progress) last() (fraction float64, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fraction, p.note
}
