package saga

import (
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/internal/flow"
)

// Reasons why an instance is not where it should be, in [Explanation.Reason] and [Problem.Reason]. All but
// ReasonRetrying mean that it does not go on by itself.
const (
	ReasonDeadLetter         = flow.DeadLetter         // a command was given up, or what came for it cannot be taken
	ReasonReplyOverdue       = flow.ReplyOverdue       // no answer, for longer than it may take
	ReasonTimerOverdue       = flow.TimerOverdue       // a timer was due more than 30 s ago
	ReasonCompensationFailed = flow.CompensationFailed // an undo was refused, or has failed as often as it may
	ReasonRetrying           = flow.Retrying           // something failed and is tried again in its own time
	ReasonHandlerMissing     = flow.HandlerMissing     // no program has the version of its definition
	ReasonPaused             = flow.Paused             // somebody paused it
	ReasonOutboxBlocked      = flow.OutboxBlocked      // a command or its end is in the outbox, and has not moved for 30 s
)

// Explanation is what is known of an instance at one moment. As JSON its names do not change; texts for people may.
type Explanation struct {
	Saga    string `json:"saga"`
	Key     string `json:"key"`
	Run     int    `json:"run"`
	Runs    int    `json:"runs"` // how many there have been
	Version int    `json:"version"`
	Kind    string `json:"kind"`  // "process", "flow", "after"
	State   string `json:"state"` // "running", "compensating", "completed", "compensated"

	// Stuck: it does not go on by itself. Reason is that of the first of Problems, Text says more, Since is when it began.
	// [List] with Filter.Stuck has the instances that are, by the same rule.
	Stuck    bool      `json:"stuck"`
	Reason   string    `json:"reason,omitempty"`
	Text     string    `json:"text,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Problems []Problem `json:"problems,omitempty"`

	// Sentence says it all in one, safe for a terminal.
	Sentence string `json:"sentence"`

	// Awaits is what it waits for, and AwaitsSince since when.
	Awaits      string    `json:"awaits,omitempty"`
	AwaitsSince time.Time `json:"awaits_since,omitzero"`

	// Done, Now and Compensated are steps by what has become of them, the last command is not in Done; Other have been skipped, or refused, or cannot be
	// undone. ToCome are the names of those that have not begun; nil when the row does not say.
	Done        []StepInfo `json:"done"`
	Now         []StepInfo `json:"now"`
	ToCome      []string   `json:"to_come"`
	Compensated []StepInfo `json:"compensated"`
	Other       []StepInfo `json:"other,omitempty"`

	Commands []CommandInfo `json:"commands"` // the last 100, in the order in which they were sent first
	Timers   []TimerInfo   `json:"timers"`   // the next 100, the next to fire first
	Held     int           `json:"held"`     // how many inputs are kept until it can take them
	Letters  []LetterInfo  `json:"letters,omitempty"`
	Timeline []Entry       `json:"timeline"` // the last 500 lines of the history, the oldest first
	Earlier  int64         `json:"earlier"`  // how many lines are left out before those
	Actions  []ActionInfo  `json:"actions,omitempty"`

	Tenant        string    `json:"tenant,omitempty"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	StartedBy     uuid.UUID `json:"started_by"` // the event
	StartedAt     time.Time `json:"started_at"`
	ChangedAt     time.Time `json:"changed_at"`
	EndedAt       time.Time `json:"ended_at,omitzero"`
	At            time.Time `json:"at"` // the moment of which all this is
}

// String is the sentence.
func (e Explanation) String() string { return e.Sentence }

// Problem is one reason why an instance is not where it should be, and what to do.
type Problem struct {
	Reason string    `json:"reason"` // one of the Reason… constants
	Step   string    `json:"step,omitempty"`
	Text   string    `json:"text"`
	Since  time.Time `json:"since,omitzero"`
	// Remedy is what to do, Commands what to type for it.
	Remedy   string   `json:"remedy"`
	Commands []string `json:"commands,omitempty"`
}

// StepInfo is how far a step is.
type StepInfo struct {
	Name     string    `json:"name"`
	State    string    `json:"state"` // "waiting", "retrying", "done", "skipped", "refused", "undoing", "undo later", "undone", "undo failed"
	Intent   int       `json:"intent,omitempty"`
	Attempts int       `json:"attempts,omitempty"` // how many have definitely failed
	Undos    int       `json:"undos,omitempty"`    // how many of its undos have failed
	Carried  bool      `json:"carried,omitempty"`  // its command was carried out
	Marked   bool      `json:"marked,omitempty"`   // somebody said so by hand
	Text     string    `json:"text,omitempty"`     // why it was refused, or failed last
	BeganAt  time.Time `json:"began_at,omitzero"`
	SentAt   time.Time `json:"sent_at,omitzero"`
	EndedAt  time.Time `json:"ended_at,omitzero"`
}

// StateText is the state for people, with why: "given up: attempts_exhausted: the bank is away" of one that is "refused"
// because its command was given up, of which nobody knows the outcome outside.
func (s StepInfo) StateText() string {
	verb, why := s.State, s.Text
	if verb == string(flow.Refused) {
		verb, why = explainRefusal(s.Text)
	}
	return explainJoin(verb, why)
}

// Entry is a line of the history.
type Entry struct {
	Entry    int64     `json:"entry"`
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"`
	Step     string    `json:"step,omitempty"`
	Text     string    `json:"text,omitempty"`
	Event    uuid.UUID `json:"event,omitzero"`
	Position string    `json:"position,omitempty"`
	Actor    string    `json:"actor,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// TimerInfo is a timer that is set.
type TimerInfo struct {
	Name     string    `json:"name"`
	DueAt    time.Time `json:"due_at"`
	Does     string    `json:"does,omitempty"`
	SetAt    time.Time `json:"set_at"`
	Attempts int       `json:"attempts"`        // how many have failed
	Owner    string    `json:"owner,omitempty"` // who has claimed it
	Error    string    `json:"error,omitempty"` // of the last attempt
	// FreeAt is when it may be claimed next: when it is due, or when its lease or its pause ends. Zero for one that stands
	// still, because its instance is paused or it was given up.
	FreeAt time.Time `json:"free_at,omitzero"`

	visible time.Time // as it is stored
	id      int64
}

// stands: nobody claims it.
func (t TimerInfo) stands() bool { return t.FreeAt.IsZero() }

// LetterInfo is a dead letter that concerns the instance; see package outbox/deadletter: what its commands have caused, and,
// unless it has ended, what is of a stream or sequence with its key. Those are among its Problems. What only belongs to the
// same business transaction, which may have many instances, is told here and is no problem of it.
type LetterInfo struct {
	ID       uuid.UUID `json:"id"`
	Consumer string    `json:"consumer"`
	Version  int       `json:"version"`
	State    string    `json:"state"` // "retrying", "parked"
	Type     string    `json:"type"`
	Error    string    `json:"error"`
	FailedAt time.Time `json:"failed_at"`
}

// ActionInfo is what an operator decided for the instance.
type ActionInfo struct {
	Plan   uuid.UUID `json:"plan"`
	Action string    `json:"action"`
	Step   string    `json:"step,omitempty"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	State  string    `json:"state"` // "open", "done", "refused", "cancelled"
	Result string    `json:"result,omitempty"`
	At     time.Time `json:"at"`
	DoneAt time.Time `json:"done_at,omitzero"`
}
