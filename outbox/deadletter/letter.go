package deadletter

import (
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// State is what a letter waits for, or how it ended.
type State string

// The states of a letter. Retrying and Parked are open: the message has not taken effect, and nothing behind it in its
// sequence does. The others are closed.
const (
	// Retrying: the next attempt is due in its own time.
	Retrying State = "retrying"
	// Parked: it waits for people.
	Parked State = "parked"
	// Behind: an earlier letter of its sequence was put back, and the message is queued behind that. Should it fail again, the
	// letter is opened again.
	Behind State = "behind"
	// Applied: an attempt succeeded.
	Applied State = "applied"
	// Discarded: somebody has decided that it takes no effect.
	Discarded State = "discarded"
	// TakenOver: another version of the consumer has applied it.
	TakenOver State = "taken over"

	// Open, in a [Filter], stands for retrying and parked, Closed for all others.
	Open   State = "open"
	Closed State = "closed"
)

// Open reports whether the letter keeps its sequence from going on.
func (s State) Open() bool { return s == Retrying || s == Parked }

// Letter is what is known of a message that failed, without its payload. The texts of errors are what handlers wrote.
type Letter struct {
	ID        uuid.UUID           `json:"id"`
	Consumer  string              `json:"consumer"`
	Version   int                 `json:"version"`
	Topic     string              `json:"topic,omitempty"` // of relays and inboxes
	Sequence  string              `json:"sequence"`        // the partition key
	Partition int                 `json:"partition"`
	Position  eventstore.Position `json:"position"`
	State     State               `json:"state"`
	// Kind is what the last failure meant: "transient" or "permanent".
	Kind string `json:"kind"`
	// Attempts is how often it was tried in all, Round how often since it was set aside or redriven last.
	Attempts int `json:"attempts"`
	Round    int `json:"round"`
	// Fingerprint is shared by failures of one cause; see [Letters.Groups].
	Fingerprint string `json:"fingerprint"`
	// Error is the outermost text of the last failure.
	Error         string    `json:"error"`
	FirstFailedAt time.Time `json:"first_failed_at"`
	LastFailedAt  time.Time `json:"last_failed_at"`
	Handler       string    `json:"handler"`
	// Program is the module and the version of the program that failed last.
	Program string `json:"program"`
	// ClosedAt and ClosedBy are of closed letters, Reason of discarded ones.
	ClosedAt time.Time `json:"closed_at,omitzero"`
	ClosedBy string    `json:"closed_by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	// The message: its id, its type, and the event that it is, if it is one.
	MessageID     uuid.UUID          `json:"message_id"`
	Type          string             `json:"type"`
	Stream        string             `json:"stream,omitempty"` // empty for a message of its own
	StreamVersion eventstore.Version `json:"stream_version,omitempty"`
	RecordedAt    time.Time          `json:"recorded_at"`
}

// columns of a letter, in the order of into. An array that is empty has no first text.
const columns = `l.letter, l.consumer, l.version, l.topic, l.sequence, l.partition, l.position, l.state, l.kind, l.attempts, l.round,
  l.fingerprint, coalesce(l.errors[1], '') AS error, l.first_failed_at, l.last_failed_at, l.handler, l.program,
  l.closed_at, l.closed_by, l.reason, l.id, l.type, l.stream_id, l.stream_version, l.recorded_at`

// into are the places for the columns, and what to do when they are filled.
func (l *Letter) into() (places []any, filled func()) {
	var position int64
	var closed *time.Time
	return []any{
			&l.ID, &l.Consumer, &l.Version, &l.Topic, &l.Sequence, &l.Partition, &position, &l.State, &l.Kind, &l.Attempts, &l.Round,
			&l.Fingerprint, &l.Error, &l.FirstFailedAt, &l.LastFailedAt, &l.Handler, &l.Program,
			&closed, &l.ClosedBy, &l.Reason, &l.MessageID, &l.Type, &l.Stream, &l.StreamVersion, &l.RecordedAt,
		}, func() {
			l.Position = eventstore.PositionAt(position)
			if closed != nil {
				l.ClosedAt = closed.UTC()
			}
			l.FirstFailedAt, l.LastFailedAt, l.RecordedAt = l.FirstFailedAt.UTC(), l.LastFailedAt.UTC(), l.RecordedAt.UTC()
		}
}

// Detail is all that is known of a letter.
type Detail struct {
	Letter
	// Message is the message that failed, unchanged. Of a message of its own the stream is zero.
	Message eventstore.RecordedEvent `json:"-"`
	// Errors is the chain of the last failure, FirstErrors that of the first, outermost first.
	Errors      []string `json:"errors"`
	FirstErrors []string `json:"first_errors"`
	// Waiting is what is set aside of its sequence; nil when the sequence goes on.
	Waiting *Waiting `json:"waiting,omitempty"`
	// Plan is the running plan that has the letter; zero when there is none.
	Plan    uuid.UUID `json:"plan,omitzero"`
	Actions []Action  `json:"actions,omitempty"`
}

// Waiting is a sequence that is set aside.
type Waiting struct {
	// State is "retrying", "parked", or "draining": nothing failed, and what was queued goes on step by step.
	State string    `json:"state"`
	DueAt time.Time `json:"due_at,omitzero"`
	Since time.Time `json:"since"`
	// Queued is how many messages are known behind the letter; First and Last are the first position that has not taken
	// effect and the last that is known.
	Queued int64               `json:"queued"`
	First  eventstore.Position `json:"first"`
	Last   eventstore.Position `json:"last"`
}

// Action is what somebody did to a letter.
type Action struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	What   string    `json:"what"` // "redrive", "cancel", "discard", "undo", "accept gap"
	Plan   uuid.UUID `json:"plan,omitzero"`
	Reason string    `json:"reason,omitempty"`
}
