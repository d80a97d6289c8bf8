// Package flow has what the parts of sagas agree on: an instance and its progress, what comes in, what goes out, and the
// pure machines between. It knows no database. Package saga makes machines of definitions and runs them.
package flow

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// Ref names one run of an instance.
type Ref struct {
	Saga, Key string
	Run       int // from 1
}

func (r Ref) String() string { return fmt.Sprintf("%s %q run %d", r.Saga, r.Key, r.Run) }

// State is where an instance stands.
type State string

// The states of an instance. Stuck and paused are told apart from them.
const (
	Running      State = "running"
	Compensating State = "compensating"
	Completed    State = "completed"
	Compensated  State = "compensated"
)

// Over reports whether it has ended.
func (s State) Over() bool { return s == Completed || s == Compensated }

// Direction says what a command of a step is for.
type Direction string

// The directions.
const (
	Do   Direction = "do"
	Undo Direction = "undo"
	End  Direction = "end" // the last command, which tells how the saga ended
)

var commandIDs = uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:daybook:saga:commands"))

// CommandID is the id of what a step sends with an intent. It does not depend on the attempt: what is sent again is
// the same command. Part of the stored form, never changes.
func CommandID(ref Ref, step string, direction Direction, intent int) uuid.UUID {
	var name []byte
	for _, part := range [...]string{ref.Saga, ref.Key, strconv.Itoa(ref.Run), step, string(direction), strconv.Itoa(intent)} {
		name = append(strconv.AppendInt(name, int64(len(part)), 10), ':')
		name = append(name, part...)
	}
	return uuid.NewSHA1(commandIDs, name)
}

// StepState is where a step stands.
type StepState string

// The states of a step.
const (
	Waiting    StepState = "waiting"  // its command was sent, or its group has begun
	RetryLater StepState = "retrying" // definitely not done; a timer sends it again
	Done       StepState = "done"
	Skipped    StepState = "skipped"     // its condition was false
	Refused    StepState = "refused"     // definitely not done, and not tried again
	Undoing    StepState = "undoing"     // its undo was sent
	UndoLater  StepState = "undo later"  // its undo failed; a timer sends it again
	Undone     StepState = "undone"      // confirmed, or there was nothing to undo
	UndoFailed StepState = "undo failed" // people must act
)

// Step is the progress of one step. It is stored as JSON: names and values never change.
type Step struct {
	Name         string    `json:"name"`
	State        StepState `json:"state"`
	Intent       int       `json:"intent,omitempty"`       // of the last do; 0: none was sent
	Attempts     int       `json:"attempts,omitempty"`     // how many intents have definitely failed, by answer or reply
	UndoIntent   int       `json:"undoIntent,omitempty"`   // of the last undo
	Undoes       int       `json:"undoes,omitempty"`       // the intent of the do that the last undo undoes
	Undos        int       `json:"undos,omitempty"`        // the highest intent of an undo, those of earlier dos included
	UndoAttempts int       `json:"undoAttempts,omitempty"` // how many undos have failed
	Place        int       `json:"place,omitempty"`        // in the order of completion, from 1; what is undone first is last
	Again        bool      `json:"again,omitempty"`        // when the undo is confirmed, the step is tried again
	Carried      bool      `json:"carried,omitempty"`      // a reply said that its command was carried out
	Marked       bool      `json:"marked,omitempty"`       // somebody said so by hand
	Text         string    `json:"text,omitempty"`         // why it was refused, or failed last
	Sent         string    `json:"sent,omitempty"`         // what was sent last, do or undo, for people: "TakePayment to 42"
	BeganAt      time.Time `json:"beganAt,omitzero"`
	SentAt       time.Time `json:"sentAt,omitzero"` // of the last command, do or undo
	EndedAt      time.Time `json:"endedAt,omitzero"`
}

// Reasons why an instance is stuck, and what Explain says besides.
const (
	DeadLetter         = "dead_letter"
	ReplyOverdue       = "reply_overdue"
	TimerOverdue       = "timer_overdue"
	CompensationFailed = "compensation_failed"
	Retrying           = "retrying"
	HandlerMissing     = "handler_missing"
	Paused             = "paused"
	OutboxBlocked      = "outbox_blocked"
)

// Stuck says why an instance does not go on by itself. The zero value: it does.
type Stuck struct {
	Reason, Step, Text string
	Since              time.Time
}

// Instance is one run of a saga. What a machine keeps beside the steps, it keeps in Extra.
type Instance struct {
	Ref
	Version   int // of the definition it began with
	State     State
	Stuck     Stuck
	Steps     []Step            // those that have begun or been skipped, in the order in which they began
	Extra     map[string]string // of the machine; small
	Data      any               // the user's state, of the machine's type
	StartedBy uuid.UUID         // the event that began it
	Tenant    string
	// CorrelationID is that of the event that began it, or the event's id.
	CorrelationID string
	StartedAt     time.Time
}

// Step returns the progress of a step, or nil when it has not begun.
func (i *Instance) Step(name string) *Step {
	for n := range i.Steps {
		if i.Steps[n].Name == name {
			return &i.Steps[n]
		}
	}
	return nil
}

// Origin says which command of the instance caused an event, or is replied to.
type Origin struct {
	ID        uuid.UUID // zero: none of this instance
	Step      string
	Direction Direction
	Intent    int
}

// ReplyState is how the carrying out of a command ended.
type ReplyState string

// The ends of commands.
const (
	ReplyDone    ReplyState = "done"
	ReplyRefused ReplyState = "refused" // by its receiver, for good: definitely not done
	ReplyExpired ReplyState = "expired" // it never ran, and never will
	ReplyFailed  ReplyState = "failed"  // it has no effect in the store, and never will; outside nobody knows
)

// Reply tells how the carrying out of a command ended.
type Reply struct {
	Command      uuid.UUID
	State        ReplyState
	Code, Reason string
	At           time.Time
}

// Action is what an operator decided.
type Action struct {
	Name   string // see the Action… constants
	Step   string
	Event  *eventstore.RecordedEvent // of an answer by hand; may be nil
	Refuse bool                      // the answer by hand is a refusal
	Actor  string
	Reason string
}

// The names of actions that machines take. Pause and resume are the manager's.
const (
	ActionRetry  = "retry"  // do the step now: what waits is sent again under the same id, what has failed with a new intent
	ActionAnswer = "answer" // take the step as answered
	ActionCancel = "cancel" // compensate
	ActionMark   = "mark"   // take the step as undone
)

// Input is one thing that an instance reacts to. One of Event, Reply, Timer and Action is set.
type Input struct {
	Now     time.Time
	Event   *eventstore.RecordedEvent
	Payload any    // of Event, decoded
	ByKey   bool   // the event was found by a declared key, not by the command that caused it
	Origin  Origin // of Event or Reply
	Reply   *Reply
	Timer   string
	Action  *Action
}

// Command is what an instance sends.
type Command struct {
	ID        uuid.UUID
	Step      string
	Direction Direction
	Intent    int
	Undoes    uuid.UUID // of an undo: the command that it undoes
	Again     bool      // sent before, with the same bytes: the stored ones are sent

	// As [Preparer] made it.
	Type, Target, ContentType string
	Data                      []byte
	Payload                   any // for tests without a database
}

// Timer is set by name, in place of one that was set before.
type Timer struct {
	Name string
	// After is counted from the transaction that sets it, by the database's clock; From, if set, is what it is counted
	// from instead, a time of that clock.
	After time.Duration
	From  time.Time
	// Spread puts it up to so much later, at a place that a hash of instance and name picks.
	Spread time.Duration
	// Does says what it will do, for people: "undoes take-payment, then compensates".
	Does string
}

// Entry is a line of the history.
type Entry struct {
	Kind string // started, sent, sent again, answered, late, refused, failed, retry, timer, skipped, undo, undone, stuck, completed, compensated, action, ignored
	Step string
	Text string
	// Of what brought it about, if anything did.
	Event    uuid.UUID
	Position eventstore.Position
	Actor    string
	Reason   string
}

// Effects are what a reaction has recorded, in order.
type Effects struct {
	Commands  []Command
	Timers    []Timer
	Cancel    []string // timers by name; a name that is not set is harmless
	CancelAll bool     // all timers of the instance, before Timers are set
	History   []Entry
	// Closed are commands that must not be carried out any more, because their step is over. Dispatchers ask before they carry one out.
	Closed []uuid.UUID
	// Ignored counts inputs that changed nothing.
	Ignored int
}

// Preparer makes the stored form of a command. to is what it is addressed to; empty when the payload says it itself.
// The error is one of the definition, not of the database.
type Preparer interface {
	Prepare(ctx context.Context, to string, payload any) (Command, error)
}

// Machine is a definition at work. Its methods are pure apart from prep: same input, same effects. They are safe for
// concurrent use; an instance belongs to one caller. An error leaves the instance in any state: throw it away.
type Machine interface {
	Name() string
	Version() int
	Kind() string // "process", "flow", "after"
	// Types are the wire names of the events that it reads, sorted.
	Types() []string
	// Decode returns the payload of an event of one of the types.
	Decode(e eventstore.RecordedEvent) (any, error)
	// Starts returns the key of the instance that the event begins, and false when it begins none.
	Starts(e *eventstore.RecordedEvent, payload any) (key string, ok bool, err error)
	// Keys are those of instances that the event concerns by declared keys.
	Keys(e *eventstore.RecordedEvent, payload any) ([]string, error)
	// Answers reports whether the event can be an answer to a command: it is found by the command that caused it.
	Answers(e *eventstore.RecordedEvent) bool
	// Begin makes the instance. in.Event is the event that Starts said yes to.
	Begin(ctx context.Context, prep Preparer, ref Ref, in Input) (*Instance, Effects, error)
	// React changes the instance.
	React(ctx context.Context, prep Preparer, i *Instance, in Input) (Effects, error)
	// Encode returns the stored forms of Data, and of Steps with Extra.
	Encode(i *Instance) (data []byte, contentType string, progress []byte, err error)
	// Restore sets Data, Steps and Extra from their stored forms.
	Restore(i *Instance, data []byte, contentType string, progress []byte) error
	// Awaits says in words what the instance waits for, such as "an answer to take-payment (TakePayment to 42)".
	Awaits(i *Instance) string
}

// Reactor is a definition without instances: an event in, commands out, once.
type Reactor interface {
	Name() string
	Version() int
	Types() []string
	Decode(e eventstore.RecordedEvent) (any, error)
	// Commands are what the event brings about. Their ids derive from name, event and place.
	Commands(ctx context.Context, prep Preparer, e *eventstore.RecordedEvent, payload any) ([]Command, error)
}

// ReactorCommandID is the id of the nth command, from 0, that an event brings about. Part of the stored form.
func ReactorCommandID(reactor string, event uuid.UUID, n int) uuid.UUID {
	return CommandID(Ref{Saga: reactor, Key: event.String(), Run: 1}, "", Do, n+1)
}

// Parts are what a definition is made of: one of them is set.
type Parts struct {
	Machine Machine
	Reactor Reactor
	Events  *eventstore.Catalog // of either
}

// Asker is a machine that knows which of an instance's commands an event may answer. Tests without a bus ask it.
type Asker interface {
	// AnsweredBy returns the names of steps whose last command an event of the type may answer, in order.
	AnsweredBy(i *Instance, wire string) []string
}
