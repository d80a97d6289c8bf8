package eventstore

import (
	"fmt"
	"time"
)

// CleanReport says what a cleaning of the outbox did.
type CleanReport struct {
	// Lost are the subscribers declared lost by this cleaning.
	Lost []LostSubscriber
	// Cleaned is how far messages are gone, or may go at any time.
	Cleaned Position
	// Rows is the number of rows deleted one by one, Ranges the number of ranges emptied at once, whose rows are not
	// counted.
	Rows   int64
	Ranges int
}

// LostSubscriber is a subscriber that stayed behind for longer than the retention. It holds nothing back any more: what
// it missed may be gone from the outbox. A projection then catches up from the log; anything else is re-based by its
// owner.
type LostSubscriber struct {
	Topic, Group, Consumer string
	Version                int
	// Floor is how far it had come, Oldest when the first message that it had not passed was recorded.
	Floor  Position
	Oldest time.Time
}

// String is one line for people.
func (l LostSubscriber) String() string {
	return fmt.Sprintf("%s v%d of group %q is lost to topic %q: it stands at position %s, and its next message is of %s",
		l.Consumer, l.Version, l.Group, l.Topic, l.Floor, l.Oldest.UTC().Format(time.RFC3339))
}
