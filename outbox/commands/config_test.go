package commands

import (
	"log/slog"
	"testing"
)

// Changes of state are read of by somebody also when nobody thought of a logger.
func TestLoggerByDefault(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	if cfg.Logger == nil || cfg.Logger.Handler() != slog.Default().Handler() || cfg.inner().Logger != cfg.Logger {
		t.Error("the default is not that of the program")
	}
	own := slog.New(slog.DiscardHandler)
	if got := (Config{Logger: own}).withDefaults().Logger; got != own {
		t.Error("another logger than the one that was given")
	}
}
