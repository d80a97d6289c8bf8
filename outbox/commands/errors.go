package commands

import (
	"fmt"
	"strings"

	"github.com/daybook-go/daybook/outbox"
)

// ShutdownError names the commands whose handlers ignored the end of their contexts, and still run after Run has
// returned. The dispatcher's lease is free; what they still commit is found by the next dispatcher under their keys, and
// takes effect once.
type ShutdownError struct {
	// Commands are the quoted type and the id of each.
	Commands []string
}

// Error names the commands and the remedy.
func (e *ShutdownError) Error() string {
	return fmt.Sprintf("commands: run: shut down: the handlers of %s ignore the end of their context and still run: let them watch ctx",
		strings.Join(e.Commands, ", "))
}

// NotInstalledError says that tables of the store are not there. Its fields are
//
//	Schema  string // where they were looked for
//	Missing string // the first that was not found
type NotInstalledError = outbox.NotInstalledError
