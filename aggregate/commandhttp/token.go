package commandhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	// TokenHeader carries the token of a write, and of a request that must see it.
	TokenHeader = "Consistency-Token"
	// LagHeader says of an answer that is stale how many events it lacks at most.
	LagHeader = "Consistency-Lag"

	// onceOver is how long to look when nobody wants to wait.
	onceOver = 50 * time.Millisecond
)

// Tokens say which tokens are of this store. The zero value takes all.
type Tokens struct {
	// Epoch is that of the store, Partitions how many it has; its methods of the same names say.
	Epoch      uuid.UUID
	Partitions int
}

// Lag says how far what is read is behind a token.
type Lag struct {
	// Want is the position waited for, Have the one reached.
	Want eventstore.Position `json:"want"`
	Have eventstore.Position `json:"have"`
	// Behind is how many events are missing at most; -1 is not known.
	Behind int64 `json:"behind"`
	// Working is false when no process keeps what is read.
	Working bool `json:"working"`
}

// StaleError is what a Wait returns when the token was not reached in time. A lenient reader is answered all the same.
type StaleError struct{ Lag }

// Error says how many events are missing at most.
func (e *StaleError) Error() string {
	return "commandhttp: what is read is at most " + strconv.FormatInt(e.Behind, 10) + " events behind"
}

// StoppedError is what a Wait returns when what is read does not move, so that waiting is in vain.
type StoppedError struct {
	// What stands still, in which State, and Since when. They are shown to the caller; why it does is for the log.
	What, State string
	Since       time.Time
}

// Error names what stands still.
func (e *StoppedError) Error() string { return "commandhttp: " + e.What + " is " + e.State }

// SetAsideError is what a Wait returns when something that the token may stand for could not be applied and is set aside, so
// that the rest goes on. A lenient reader is answered all the same.
type SetAsideError struct {
	Lag
	// What has set it aside, and Since when. They are shown to the caller; what failed, and why, is for the log.
	What  string
	Since time.Time
	// RetryAfter is when it may help to ask again. Default 60 s.
	RetryAfter time.Duration
}

// Error names what has set something aside.
func (e *SetAsideError) Error() string { return "commandhttp: " + e.What + " has set something aside" }

func (e *SetAsideError) problem() *Problem {
	p := &Problem{
		Kind: kindSetAside, RetryAfter: cmp.Or(e.RetryAfter, time.Minute),
		Detail: e.What + " could not show what was written, and has set it aside; what was written is stored",
	}
	if !e.Since.IsZero() {
		p.Extensions = map[string]any{"since": e.Since.UTC()}
	}
	return p
}

// tokenOf reads the headers Consistency-Token, which are all asked for.
func (t Tokens) tokenOf(h http.Header) (eventstore.Token, error) {
	var all eventstore.Token
	for _, text := range h.Values(TokenHeader) {
		token, err := eventstore.ParseToken(strings.TrimSpace(text))
		if err != nil || !t.possible(token) {
			return all, &Problem{
				Kind: kindSyntax, Field: TokenHeader, Value: Shorten(text), Detail: "it is not a token",
				Remedy: "pass on the header of the answer to a write unchanged",
			}
		}
		if t.Epoch != uuid.Nil && !token.IsZero() && token.Epoch() != t.Epoch {
			return all, otherHistory()
		}
		if all, err = all.Merge(token); err != nil {
			return all, otherHistory()
		}
	}
	return all, nil
}

// possible reports whether a store with so many partitions can have made the token.
func (t Tokens) possible(token eventstore.Token) bool {
	for _, mark := range token.Marks() {
		if t.Partitions > 0 && mark.Partition >= t.Partitions {
			return false
		}
	}
	return true
}

func otherHistory() *Problem {
	return &Problem{
		Kind: kindOtherHistory, Field: TokenHeader,
		Detail: "the token is of another epoch of the store than the present one: the store was restored or replaced since",
	}
}

// WaitFunc returns nil when what is read shows the token, a [*StaleError] or the error of ctx when ctx has ended before, and
// a [*StoppedError] or a [*SetAsideError] when waiting is in vain. A [*eventstore.HistoryError] says that the log never had the token.
type WaitFunc func(ctx context.Context, token eventstore.Token) error

// fresh is how fresh a caller wants an answer, and what the caller would rather have than none.
type fresh struct {
	token   eventstore.Token
	wait    time.Duration
	prefers bool // the wait is a preference of the caller
	lenient bool
}

// freshness reads what a request says of it.
func (a *API) freshness(r *http.Request, prefer preferences) (fresh, error) {
	f := fresh{wait: a.cfg.Patience, lenient: prefer.lenient}
	var err error
	if f.token, err = a.cfg.Tokens.tokenOf(r.Header); err != nil {
		return f, err
	}
	if prefer.waits {
		f.wait, f.prefers = min(prefer.wait, a.cfg.MaxPatience), true
	}
	name := a.cfg.WaitParameter
	if query := r.URL.Query(); name != "" && query.Has(name) {
		wait, ok := seconds(query.Get(name))
		if !ok || wait < 0 || wait > a.cfg.MaxPatience {
			return f, &Problem{
				Kind: kindSyntax, Field: name, Value: Shorten(query.Get(name)),
				Detail: "it is no time from 0 to " + strconv.Itoa(int(a.cfg.MaxPatience/time.Second)) + " seconds",
				Remedy: "write seconds, such as " + name + "=2, or " + name + "=500ms",
			}
		}
		f.wait, f.prefers = wait, false
	}
	return f, nil
}

// seconds reads a number of seconds, or a duration with a unit.
func seconds(text string) (time.Duration, bool) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// until waits for the token of a request. It returns how much is missing when that takes too long and the caller is
// lenient, and a problem when the caller is not.
func (a *API) until(ctx context.Context, f fresh, wait WaitFunc, done *applied) (*Lag, error) {
	if wait == nil || f.token.IsZero() {
		return nil, nil
	}
	if f.prefers {
		done.wait(f.wait)
	}
	patient, cancel := context.WithTimeout(ctx, max(f.wait, onceOver))
	defer cancel()
	err := wait(patient, f.token)
	var stale *StaleError
	var aside *SetAsideError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &aside) && f.lenient:
		done.note("handling=lenient")
		return &aside.Lag, nil
	case errors.As(err, &aside):
		return nil, aside.problem()
	case errors.As(err, &stale), patient.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		lag := Lag{Behind: -1, Working: true}
		if stale != nil {
			lag = stale.Lag
		}
		if f.lenient {
			done.note("handling=lenient")
			return &lag, nil
		}
		return nil, tooLong(&lag, ctx.Err() != nil)
	}
	return nil, unwaited(err, f.token, a.cfg.Tokens)
}

// unwaited is the problem of a wait that ended otherwise.
func unwaited(err error, token eventstore.Token, ours Tokens) error {
	var stopped *StoppedError
	var history *eventstore.HistoryError
	switch {
	case errors.As(err, &stopped):
		members := map[string]any{"state": stopped.State}
		if !stopped.Since.IsZero() {
			members["since"] = stopped.Since.UTC()
		}
		return &Problem{
			Kind: kindStopped, Detail: stopped.What + " is " + stopped.State, Extensions: members, RetryAfter: 10 * time.Second,
		}
	case errors.As(err, &history):
		if ours.Epoch != uuid.Nil && token.Epoch() == ours.Epoch {
			return &Problem{Kind: kindBeyondLog, Field: TokenHeader, Detail: history.Reason, Remedy: history.Remedy}
		}
		return otherHistory()
	}
	return err
}

func tooLong(lag *Lag, interrupted bool) *Problem {
	p := &Problem{Kind: kindStale, Detail: "what is read is behind; what was written is stored", RetryAfter: time.Second}
	if lag.Behind >= 0 {
		p.Detail = "what is read is at most " + strconv.FormatInt(lag.Behind, 10) + " events behind; what was written is stored"
		p.Extensions = map[string]any{"want": lag.Want, "have": lag.Have, "behind": lag.Behind, "working": lag.Working}
	}
	switch {
	case interrupted:
		p.Detail += "; the server is ending"
	case !lag.Working:
		p.Detail += "; no process works on it"
		p.RetryAfter = 5 * time.Second
	}
	return p
}
