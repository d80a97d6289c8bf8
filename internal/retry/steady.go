package retry

import "time"

// slack is what goroutines may differ that read the clock one after the other, and call in another order. A clock that
// is further back has been set.
const slack = time.Second

// steady turns what a clock says into a time that never goes back. The zero value is ready.
type steady struct {
	origin time.Time
	last   time.Duration
	shift  time.Duration
	begun  bool
}

// at is the time since the first call. A clock that was set back goes on from where it had been.
func (s *steady) at(now time.Time) time.Duration {
	if !s.begun {
		s.begun, s.origin = true, now
	}
	t := now.Sub(s.origin) + s.shift
	if back := s.last - t; back > 0 {
		if back > slack {
			s.shift += back
		}
		return s.last
	}
	s.last = t
	return t
}
