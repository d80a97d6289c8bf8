package admission

import "sync/atomic"

// fixed is a limit that never moves.
type fixed struct {
	max  int
	used atomic.Int64
}

// take is called under the lock of the gate, so that only ends can come in between.
func (f *fixed) take() (permit, bool) {
	if f.used.Load() >= int64(f.max) {
		return nil, false
	}
	f.used.Add(1)
	return f, true
}

func (f *fixed) limit() int { return f.max }

// Record ends a permit.
func (f *fixed) Record() { f.used.Add(-1) }

// Drop ends a permit.
func (f *fixed) Drop() { f.used.Add(-1) }
