package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// DB is what instances are read from and operators write to: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx. What operators write
// on a pgx.Tx is committed by its owner, and sequential scans are off for the rest of it.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

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

	// Done, Now and Compensated are steps by what has become of them; Other have been skipped, or refused, or cannot be
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
}

// stands: nobody claims it.
func (t TimerInfo) stands() bool { return t.FreeAt.IsZero() }

// LetterInfo is a dead letter that concerns the instance; see package outbox/deadletter.
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

// An ExplainOption changes what [Explain] and the functions beside it read.
type ExplainOption func(*explaining)

type explaining struct {
	schema  string
	run     int
	at      time.Time
	overdue time.Duration
}

// InSchema names the PostgreSQL schema of the store. Default "daybook".
func InSchema(schema string) ExplainOption { return func(o *explaining) { o.schema = schema } }

// OfRun asks for one run, from 1. Default: the one that is under way, else the last.
func OfRun(run int) ExplainOption { return func(o *explaining) { o.run = run } }

// At says what time it is. Default: the database's clock.
func At(now time.Time) ExplainOption { return func(o *explaining) { o.at = now } }

// OverdueAfter is how long a step without a deadline may wait for an answer before that is a problem. Default 1 h.
func OverdueAfter(d time.Duration) ExplainOption { return func(o *explaining) { o.overdue = d } }

const (
	explainDefaultSchema  = "daybook"
	explainDefaultOverdue = time.Hour
	// explainPatience is how long what should go at once may stay where it is.
	explainPatience = 30 * time.Second
	// explainTimeout bounds each statement, in the server.
	explainTimeout = 10 * time.Second
)

func explainOptions(options []ExplainOption) explaining {
	o := explaining{schema: explainDefaultSchema, overdue: explainDefaultOverdue}
	for _, option := range options {
		option(&o)
	}
	if o.schema == "" {
		o.schema = explainDefaultSchema
	}
	if o.overdue <= 0 {
		o.overdue = explainDefaultOverdue
	}
	return o
}

func (o explaining) sql(text string) string {
	return strings.ReplaceAll(text, "{schema}", pgx.Identifier{o.schema}.Sanitize())
}

// Explain says where an instance is and why: what it waits for, what became of what it sent, what happens
// next, and what keeps it. It reads one moment, changes nothing, and needs no program that knows the definition. What it
// reads is bounded, and found by indexes. On a transaction of the caller's it reads what that sees.
//
// No such instance is a [*NoInstanceError], which matches [ErrNoInstance].
func Explain(ctx context.Context, db DB, saga, key string, options ...ExplainOption) (Explanation, error) {
	o := explainOptions(options)
	var e Explanation
	if err := errors.Join(explainNames(saga, key), explainRun(o.run)); err != nil {
		return e, err
	}
	err := o.read(ctx, db, "explain", func(tx pgx.Tx) error {
		r := reading{explaining: o, tx: tx}
		if err := r.all(ctx, saga, key); err != nil {
			return err
		}
		e = r.explain()
		return nil
	})
	return e, err
}

func explainRun(run int) error {
	if run < 0 {
		return opInvalid("OfRun", fmt.Sprint(run), "is no run", "name a run from 1, or leave it out for the last")
	}
	return nil
}

// read runs f in a transaction that sees one moment, is bounded in time, and never reads a table whole because the planner
// was told of it when it was empty.
func (o explaining) read(ctx context.Context, db DB, what string, f func(pgx.Tx) error) error {
	if db == nil {
		return fmt.Errorf("saga: %s: db is nil: pass the pool of the store's database", what)
	}
	var tx pgx.Tx
	var err error
	if beginner, ok := db.(interface {
		BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
	}); ok {
		tx, err = beginner.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	} else { // a transaction of the caller's: what is set here goes with the savepoint
		tx, err = db.Begin(ctx)
	}
	if err != nil {
		return opFail(what, o.schema, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has only read
	if _, err := tx.Exec(ctx, explainPlanSQL, fmt.Sprint(explainTimeout.Milliseconds())); err != nil {
		return opFail(what, o.schema, err)
	}
	if err := f(tx); err != nil {
		return opFail(what, o.schema, err)
	}
	return nil
}

const explainPlanSQL = `SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
  set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)`

// explainNames checks what a row is found by.
func explainNames(saga string, keys ...string) error {
	if saga == "" {
		return opInvalid("saga", "", "is empty", "name the saga")
	}
	for _, name := range append([]string{saga}, keys...) {
		if name == "" || !opStorable(name) {
			return opInvalid("saga or key", fmt.Sprintf("%.200q", name), "is empty, has a zero byte, or is not UTF-8", "name what is stored")
		}
	}
	return nil
}

func explainPosition(p int64) string {
	if p == 0 {
		return ""
	}
	return eventstore.PositionAt(p).String()
}
