package eventstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
)

var (
	// ErrReusedKey: the key of a command was used before for another request. Give each request a key of its own. Details
	// are in [*ReusedKeyError].
	ErrReusedKey = errors.New("eventstore: key used before for another request")
	// ErrInProgress: a command with the same key is being executed. Ask again in a moment: the answer will be the first
	// outcome. Details are in [*InProgressError].
	ErrInProgress = errors.New("eventstore: command in progress")
)

const (
	maxScope       = 200
	maxKey         = 255
	maxOutcomeText = 8 << 10
	maxResult      = 1 << 20
)

// Claim names a command for ever, or for as long as the store keeps keys, so that it takes effect once however often it
// is sent.
type Claim struct {
	// Scope says whose key it is: keys of two scopes never meet. A tenant, a user, a saga; at most 200 bytes, may be
	// empty.
	Scope string
	// Key is the caller's name for the command: 1 to 255 bytes.
	Key string
	// Request is what is asked for, in any form that is equal for equal requests. The store compares it by a keyed hash
	// (HMAC-SHA-256, RFC 2104) and never keeps it.
	Request []byte
	// Call tells this call from others with the same key, so that an append that was sent again after a lost answer
	// recognises its own outcome. Zero: each call counts as another one.
	Call uuid.UUID
}

// Validate reports a scope or key that cannot be stored. The error is an [*InvalidError], whose field is "key" or
// "scope", as callers know them.
func (c Claim) Validate() error {
	for _, f := range [...]struct {
		name, text string
		limit      int
		remedy     string
	}{
		{"key", c.Key, maxKey, "shorten it, for example to a UUID"},
		{"scope", c.Scope, maxScope, "shorten it, for example to a hash"},
	} {
		if len(f.text) > f.limit {
			return &InvalidError{Field: f.name, Value: f.text, Reason: fmt.Sprintf("has %d bytes, more than %d", len(f.text), f.limit), Remedy: f.remedy}
		}
		if err := checkText(f.name, f.text); err != nil {
			return err
		}
	}
	if c.Key == "" {
		return &InvalidError{Field: "key", Reason: "is empty", Remedy: "give each command a key of its own, for example a UUID"}
	}
	return nil
}

// OutcomeKind says how a command ended.
type OutcomeKind int

const (
	// OutcomeDone: the command was carried out. It may have found nothing to do.
	OutcomeDone OutcomeKind = iota
	// OutcomeRefused: a rule refused it, for good; nothing was written.
	OutcomeRefused
	// OutcomeExpired: its deadline had passed when it was about to run; it never ran.
	OutcomeExpired
)

// String names the kind.
func (k OutcomeKind) String() string {
	switch k {
	case OutcomeDone:
		return "done"
	case OutcomeRefused:
		return "refused"
	case OutcomeExpired:
		return "expired"
	}
	return "OutcomeKind(" + strconv.Itoa(int(k)) + ")"
}

// Outcome is how a command with a key ended.
type Outcome struct {
	Kind OutcomeKind
	// Code names the rule that refused the command, for programs; Text is the refusal's own text, for people. At most
	// 8 KiB each.
	Code, Text string
	// Result is what the command returned, as the caller encoded it, at most 1 MiB.
	Result      []byte
	ContentType string

	// Streams are the streams that the command wrote or checked, which the store fills in. Of an outcome that comes without
	// writes they are those that the caller names, as it has read them; they are not checked.
	Streams []OutcomeStream

	// What follows is filled by the store.

	// Token is what a reader waits for to see the command's events; zero when it wrote none.
	Token Token
	// RecordedAt is the time stored in the command's events, zero when it wrote none; At is when the outcome was stored.
	RecordedAt, At time.Time
	// Repeated: the outcome is that of an earlier call; this one wrote nothing.
	Repeated bool
}

// OutcomeStream is one stream's part of a command.
type OutcomeStream struct {
	Stream StreamID
	// Version is the version after the command, Events how many the command wrote.
	Version Version
	Events  int
}

// Versions are the versions of the streams after the command.
func (o Outcome) Versions() map[StreamID]Version {
	versions := make(map[StreamID]Version, len(o.Streams))
	for _, s := range o.Streams {
		versions[s.Stream] = s.Version
	}
	return versions
}

// Validate reports what cannot be stored. The error is an [*InvalidError].
func (o Outcome) Validate() error {
	if o.Kind < OutcomeDone || o.Kind > OutcomeExpired {
		return &InvalidError{Field: "Outcome.Kind", Value: o.Kind.String(), Reason: "is not known", Remedy: "use OutcomeDone, OutcomeRefused or OutcomeExpired"}
	}
	if len(o.Result) > maxResult {
		return &InvalidError{
			Field: "Outcome.Result", Value: strconv.Itoa(len(o.Result)), Reason: "is more than 1 MiB", Remedy: "keep what identifies the result",
		}
	}
	for _, f := range [...]struct{ name, text string }{{"Outcome.Code", o.Code}, {"Outcome.Text", o.Text}, {"Outcome.ContentType", o.ContentType}} {
		if err := checkLimitedText(f.name, f.text, maxOutcomeText); err != nil {
			return err
		}
	}
	return nil
}

// ValidateOnce reports what [OnceAppender].AppendOnce refuses before it asks the store. The error is an [*InvalidError].
// Engines call it.
func ValidateOnce(claim Claim, outcome Outcome, writes []Write) error {
	if err := claim.Validate(); err != nil {
		return err
	}
	if err := outcome.Validate(); err != nil {
		return err
	}
	for i, s := range outcome.Streams {
		if len(writes) > 0 {
			break // the store fills them in
		}
		if err := s.Stream.Validate(); err != nil {
			return err
		}
		if s.Version < 0 || s.Events != 0 {
			return &InvalidError{
				Field: "Outcome.Streams[" + strconv.Itoa(i) + "]", Value: fmt.Sprintf("version %d, %d events", s.Version, s.Events),
				Reason: "is not what a command without writes can have read", Remedy: "give the version that was read, and no events",
			}
		}
	}
	for i, w := range writes {
		field := "writes[" + strconv.Itoa(i) + "]"
		if _, exact := w.Expected.Exact(); !exact {
			return &InvalidError{
				Field: field + ".Expected", Value: w.Expected.String(), Reason: "is no exact version",
				Remedy: "expect the version that the decision was made on, or NoStream",
			}
		}
		if outcome.Kind != OutcomeDone && len(w.Events) > 0 {
			return &InvalidError{
				Field: field + ".Events", Value: strconv.Itoa(len(w.Events)), Reason: "are of a command that was not carried out",
				Remedy: "append no events with an outcome that is " + outcome.Kind.String(),
			}
		}
	}
	return nil
}

// OnceAppender appends for commands that must take effect once.
type OnceAppender interface {
	// AppendOnce stores the events of writes, as [Appender] does, and the outcome under the claim, all in one
	// transaction. If an outcome is stored under the claim already, that one is returned with Repeated set, and nothing is
	// written. A claim whose key was used for another request is a [*ReusedKeyError].
	//
	// Every write must claim an exact version ([NoStream] or [Exactly]); a conflict is a [*ConflictError] as usual, and
	// stores no outcome. Writes may be missing: then the outcome alone is stored, such as a refusal. An outcome that is
	// not [OutcomeDone] comes without events.
	//
	// An outcome that carries the claim's own Call comes back without Repeated, so that a call whose answer was lost may
	// be sent again as it is.
	AppendOnce(ctx context.Context, claim Claim, outcome Outcome, writes ...Write) (Outcome, error)
	// FirstOutcome returns the outcome stored under the claim, with Repeated set unless it is the claim's own Call, and
	// whether there is one.
	FirstOutcome(ctx context.Context, claim Claim) (Outcome, bool, error)
	// HoldKey tells other processes, until release is called, that the command is being executed. It returns an
	// [*InProgressError] at once when another holds the key. It is a courtesy to callers: that a command takes effect
	// once does not depend on it. release may be called more than once.
	HoldKey(ctx context.Context, claim Claim) (release func(), err error)
}

// StreamLocker lets one caller at a time decide on streams, over all processes.
type StreamLocker interface {
	// WithStreamsLocked runs f while no one else can append to the streams, existing or not. What f appends through s is
	// committed when f returns nil, and rolled back when it returns an error, which comes back as it is. f may append once,
	// as the last thing that it does. It reads through the store, with the ctx that it is given, and sees everything that
	// was committed before; an append with that ctx to the streams that does not go through s would wait for itself and is
	// an [*InvalidError], as is WithStreamsLocked inside f. With a claim that is not nil, the claim's key is locked first,
	// in the order in which AppendOnce locks.
	//
	// Waiting ends with ctx. The commit may be unconfirmed ([ErrUnconfirmed]) as that of any append. [ErrBusy] means that
	// everything, f included, has to run again.
	WithStreamsLocked(ctx context.Context, claim *Claim, streams []StreamID, f func(ctx context.Context, s LockedStreams) error) error
}

// LockedStreams appends while streams are locked; see [StreamLocker].
type LockedStreams interface {
	Appender
	// AppendOnce is that of [OnceAppender].
	AppendOnce(ctx context.Context, claim Claim, outcome Outcome, writes ...Write) (Outcome, error)
}

// ReusedKeyError names a key that was used before for another request. It matches [ErrReusedKey]. Nothing was written.
type ReusedKeyError struct{ Scope, Key string }

// Error names the key and the remedy.
func (e *ReusedKeyError) Error() string {
	return fmt.Sprintf("eventstore: key %s of scope %s was used for another request: give each request a key of its own", shorten(e.Key), shorten(e.Scope))
}

// Is matches [ErrReusedKey].
func (e *ReusedKeyError) Is(target error) bool { return target == ErrReusedKey }

// InProgressError names a key whose command is being executed. It matches [ErrInProgress].
type InProgressError struct{ Scope, Key string }

// Error names the key and the remedy.
func (e *InProgressError) Error() string {
	return fmt.Sprintf("eventstore: the command with key %s of scope %s is being executed: ask again in a moment", shorten(e.Key), shorten(e.Scope))
}

// Is matches [ErrInProgress].
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }
