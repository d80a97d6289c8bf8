package pgserver

import (
	"strings"
	"testing"
)

// The line that tells of the processes of a killed server may be followed by many that those write when they end.
func TestLeftoversAreSeenInALongLog(t *testing.T) {
	t.Parallel()
	noise := strings.Repeat("FATAL:  terminating connection due to unexpected postmaster exit\n", 50)
	e := &earlyExitError{how: "exit status 1", log: "FATAL:  pre-existing shared memory block is still in use\n" + noise}
	if !e.leftovers() {
		t.Error("the leftovers are not seen")
	}
	if text := e.Error(); strings.Count(text, "\n") > 0 || len(text) > 1000 {
		t.Errorf("the text is long: %s", text)
	}
}
