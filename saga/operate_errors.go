package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
)

var (
	// ErrNoInstance: there is no such instance or run. Details are in [*NoInstanceError].
	ErrNoInstance = errors.New("saga: no such instance")
	// ErrNoPlan: there is no such plan of an operator.
	ErrNoPlan = errors.New("saga: no such plan")
	// ErrOperatorRefused: what an operator asked for is against the state that something has by now; nothing was changed.
	// Details are in [*OperatorError].
	ErrOperatorRefused = errors.New("saga: refused")
)

// NoInstanceError names an instance that is not there, and what is near. It matches [ErrNoInstance].
type NoInstanceError struct {
	Saga, Key string
	Run       int // 0: any
	// Keys are a few that are there, around the one asked for; Sagas are those that have instances, when this one has none.
	Keys, Sagas []string
	// Letters are dead letters of the saga that are of a stream with this key: what should have begun it may be among them.
	Letters []uuid.UUID
}

// Error says what is near, and how to list all.
func (e *NoInstanceError) Error() string {
	text := fmt.Sprintf("saga: no instance %q of %q", e.Key, e.Saga)
	if e.Run != 0 {
		text = fmt.Sprintf("saga: no run %d of instance %q of %q", e.Run, e.Key, e.Saga)
	}
	switch {
	case len(e.Letters) > 0:
		return text + ": what should have begun it may be a letter; see `daybook deadletter show " + e.Letters[0].String() + "`"
	case len(e.Keys) > 0:
		return text + ": near it are " + opList(e.Keys) + "; `daybook saga list " + shellWord(e.Saga) + "` lists them"
	case len(e.Sagas) > 0:
		return text + ": that saga has none; there are some of " + opList(e.Sagas)
	}
	return text + ": no saga has begun in this store"
}

// Is matches [ErrNoInstance].
func (e *NoInstanceError) Is(target error) bool { return target == ErrNoInstance }

// OperatorError says what was not done and why. It matches [ErrOperatorRefused].
type OperatorError struct {
	Action string    // "retry", "answer", "cancel", "mark", "skip", "pause", "resume", "cancel plan", "withdraw"
	Plan   uuid.UUID // zero when it is not about a plan
	Reason string
}

// Error names what was asked for, and why not.
func (e *OperatorError) Error() string {
	if e.Plan == uuid.Nil {
		return fmt.Sprintf("saga: %s refused: %s", e.Action, e.Reason)
	}
	return fmt.Sprintf("saga: %s %s refused: %s", e.Action, e.Plan, e.Reason)
}

// Is matches [ErrOperatorRefused].
func (e *OperatorError) Is(target error) bool { return target == ErrOperatorRefused }

func opRefuse(action string, format string, args ...any) error {
	return &OperatorError{Action: action, Reason: fmt.Sprintf(format, args...)}
}

func opInvalid(field, value, reason, remedy string) error {
	return fmt.Errorf("saga: %w", &eventstore.InvalidError{Field: field, Value: value, Reason: reason, Remedy: remedy})
}

// opFail says what could not be done. What names itself stays as it is.
func opFail(what, schema string, err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, ErrNoInstance), errors.Is(err, ErrNoPlan), errors.Is(err, ErrOperatorRefused), strings.HasPrefix(err.Error(), "saga: "):
		return err
	case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000"): // no such table, no such schema
		return &noTablesError{fmt.Sprintf("saga: %s: no tables of sagas in schema %q: run `daybook migrate`, or call postgres.Migrate", what, schema), err}
	case errors.As(err, &pg) && pg.Code == "57014" && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("saga: %s: it took longer than %v: %w", what, explainTimeout, err)
	}
	return fmt.Errorf("saga: %s: %w", what, err)
}

// noTablesError says all that its cause, which it wraps, does.
type noTablesError struct {
	text  string
	cause error
}

func (e *noTablesError) Error() string { return e.text }
func (e *noTablesError) Unwrap() error { return e.cause }

// opStorable: PostgreSQL has it as a text.
func opStorable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

func opLong(text string, most int) string {
	return fmt.Sprintf("has %d bytes, more than %d", len(text), most)
}

func opList(names []string) string {
	var quoted []string
	for _, n := range names {
		quoted = append(quoted, fmt.Sprintf("%.100q", n))
	}
	return strings.Join(quoted, ", ")
}
