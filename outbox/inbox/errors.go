package inbox

import (
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// ShutdownError says that the handler did not return in time. Its goroutine is still there; what it does can no longer
// commit. Its only field is
//
//	Consumers []string // the inbox's name
type ShutdownError = consumer.ShutdownError

// NotInstalledError says that the tables of Daybook are not there, or older than this program.
type NotInstalledError struct{ Inbox, Schema string }

// Error names what was looked for and the remedy.
func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("inbox: %q: the tables of schema %q are not there, or old: call postgres.Migrate on the inbox's own database first", e.Inbox, e.Schema)
}

// ShapeError says that the consumer was registered in another way than the program has.
type ShapeError struct {
	Inbox      string
	Version    int
	Have, Want string
}

// Error names both shapes and the remedy.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("inbox: %q version %d is registered as (%s), and the program has (%s): give it its old configuration back, or raise Config.Version",
		e.Inbox, e.Version, e.Have, e.Want)
}

// Gap is what is missing of one partition.
type Gap struct {
	Partition int
	// Applied is the position up to which the partition is complete. Missing is the position of the last message that has not
	// come: what lies behind it is stored, and waits.
	Applied, Missing eventstore.Position
	// Since is when the first message behind the gap came.
	Since time.Time
}

// GapError is what the Observer is told when a gap has lasted for longer than Config.GapAfter.
type GapError struct {
	Inbox, Topic string
	Gap
}

// Error names the gap and what can be done.
func (e *GapError) Error() string {
	return fmt.Sprintf("inbox: %q waits for messages of topic %q that the broker has not brought: partition %d is complete up to position %s, "+
		"and what lies up to %s has been missing since %s: let them be published again, or accept the gap with inbox.AcceptGap",
		e.Inbox, e.Topic, e.Partition, e.Applied, e.Missing, e.Since.UTC().Format(time.RFC3339))
}

// UnreadableError is why a message that is not a relay's, or cannot be read, became a letter.
type UnreadableError struct {
	// Message is its UUID, as the broker gave it.
	Message string
	Err     error
}

// Error names the message and the cause.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("inbox: message %q: %v", e.Message, e.Err)
}

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Err }
