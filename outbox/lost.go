package outbox

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// ErrLost: a consumer was behind for so long that messages which it has not seen were cleaned away. Details are in
// [*LostError].
var ErrLost = errors.New("outbox: messages lost to a consumer")

// LostError names a consumer that cannot go on, because the outbox no longer has what comes next for it. It matches
// [ErrLost]. Only a topic that does not carry the whole log can come to this: one that does is caught up with from the
// log.
type LostError struct {
	Topic, Group, Consumer string
	// Applied is where the consumer stands, Cleaned the position up to which the outbox has been cleaned.
	Applied, Cleaned eventstore.Position
}

// Error names the consumer, what it lost and the remedy.
func (e *LostError) Error() string {
	if e.Applied.IsZero() {
		return fmt.Sprintf("outbox: consumer %q of group %q has applied nothing of topic %q, whose messages up to position %s are cleaned away, "+
			"because all who followed had passed them or the retention was over: start it with StartAt: outbox.AtHead, "+
			"or set CatchUp if the topic carries the whole log", e.Consumer, e.Group, e.Topic, e.Cleaned)
	}
	return fmt.Sprintf("outbox: consumer %q of group %q has applied topic %q up to position %s, and what follows was cleaned away up to %s "+
		"because the group was behind for longer than the retention: install a new version of it, fill what it lacks by other means, "+
		"and let it start at the head", e.Consumer, e.Group, e.Topic, e.Applied, e.Cleaned)
}

// Is matches [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

func (s *Subscription) lost(applied, cleaned eventstore.Position) *LostError {
	return &LostError{Topic: s.cfg.Topic, Group: s.cfg.Group, Applied: applied, Cleaned: cleaned}
}

func quoted(schema string) string { return pgx.Identifier{schema}.Sanitize() }
