package admission

// limiter says how many requests may run at once. take is called under the lock of the gate, the permit's methods are
// not; each permit is ended once.
type limiter interface {
	take() (permit, bool)
	limit() int
}

// permit is the right to run. record gives it back with its duration as a measurement, drop without.
type permit interface {
	Record()
	Drop()
}

func newLimiter(c Config) limiter {
	if c.MinConcurrency == c.MaxConcurrency {
		return &fixed{max: c.MaxConcurrency}
	}
	return newAdaptive(c)
}
