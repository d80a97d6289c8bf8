package commandhttp

import (
	"log/slog"
	"testing"
)

// Faults are read of by somebody also when nobody thought of a logger.
func TestFaultsAreLoggedByDefault(t *testing.T) {
	t.Parallel()
	if got := (Config{}).withDefaults().Logger; got == nil || got.Handler() != slog.Default().Handler() {
		t.Error("the default is not that of the program")
	}
	own := slog.New(slog.DiscardHandler)
	if got := (Config{Logger: own}).withDefaults().Logger; got != own {
		t.Error("another logger than the one that was given")
	}
}
