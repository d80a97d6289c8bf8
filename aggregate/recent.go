package aggregate

import (
	"hash/maphash"
	"sync"

	"github.com/daybook-go/daybook/eventstore"
)

// recent remembers the keys of the last commands of this process that have an outcome, so that who sends one again soon
// is answered by a look-up, and not decided in vain. Two keys of one hash cost a look-up and no more. It is safe for
// concurrent use.
type recent struct {
	mu   sync.Mutex
	ring [4096]uint64
	next int
	in   map[uint64]int // how often each stands in the ring
}

var (
	recentKeys = recent{in: map[uint64]int{}}
	recentSeed = maphash.MakeSeed()
)

func hashOf(claim eventstore.Claim) uint64 {
	return maphash.String(recentSeed, claim.Scope+"\x00"+claim.Key)
}

func (r *recent) add(claim eventstore.Claim) {
	h := hashOf(claim)
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := r.ring[r.next]
	if r.in[oldest]--; r.in[oldest] <= 0 {
		delete(r.in, oldest)
	}
	r.ring[r.next] = h
	r.in[h]++
	r.next = (r.next + 1) % len(r.ring)
}

func (r *recent) has(claim eventstore.Claim) bool {
	h := hashOf(claim)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.in[h] > 0
}
