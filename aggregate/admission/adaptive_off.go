//go:build !adaptive

package admission

// newAdaptive keeps to the initial limit when the package is built without the library that moves it.
func newAdaptive(c Config) limiter { return &fixed{max: c.InitialConcurrency} }
