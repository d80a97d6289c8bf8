package aggregate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/daybook-go/daybook/eventstore"
)

// WithIdempotencyKey gives a command a name, so that it takes effect once however often it is sent, by whichever
// process: the first outcome is stored with its events, and the same command gets it again, marked as Repeated. That
// holds for refusals too: a [*RefusedError] is the answer also when the rule would allow the command by now.
//
// The key belongs to the caller (see [InScope]) and to one request: the same key with another operation or other bytes
// ([ForRequest]) is an [*eventstore.ReusedKeyError]. While the first call is being executed, others of this process
// wait for it, or are told; see [TellIfRunning].
//
// Not remembered is what says nothing about the command: errors of the store, the end of the context, [Transient]
// errors, a [*VersionError], and a panic. Keys need a store that is an [eventstore.OnceAppender], and are kept as
// long as the store says.
func WithIdempotencyKey(key string, opts ...KeyOption) IdempotencyOption {
	option := IdempotencyOption{key: key}
	for _, opt := range opts {
		opt(&option)
	}
	return option
}

// IdempotencyOption is made by [WithIdempotencyKey].
type IdempotencyOption struct {
	key       string
	scope     *string
	request   []byte
	tell      bool
	inContext *contextUse // of a key in a context, else nil
}

func (o IdempotencyOption) applyHandle(c *handleConfig) { c.key = &o }

// KeyOption changes what a key stands for.
type KeyOption func(*IdempotencyOption)

// InScope says whose key it is; equal keys of two scopes never meet. At most 200 bytes. Default: tenant and actor of
// the context's metadata, see [eventstore.WithMetadata], as "tenant/actor", with a hash in their place when they are long;
// "" when there are none.
func InScope(scope string) KeyOption { return func(o *IdempotencyOption) { o.scope = &scope } }

// ForRequest says what is asked for, in any form that is equal for equal requests, such as the body of a request.
// Another command with the same key but other bytes is refused. Only a keyed hash is stored. The operation, such as
// "handle account-42", is always part of the comparison.
func ForRequest(request []byte) KeyOption {
	return func(o *IdempotencyOption) { o.request = append([]byte{}, request...) }
}

// TellIfRunning returns an [*eventstore.InProgressError] at once while a command with the key is being executed, instead
// of waiting for its outcome. Other processes are noticed if their calls ask to be told as well.
func TellIfRunning() KeyOption { return func(o *IdempotencyOption) { o.tell = true } }

// maxScope is the longest scope that stores take.
const maxScope = 200

// ScopeOf is the scope of a key without [InScope].
func ScopeOf(m eventstore.Metadata) string {
	if m.Tenant == "" && m.Actor == "" {
		return ""
	}
	// Escaped, so that "a/b" and "c" are not "a" and "b/c".
	scope := url.PathEscape(m.Tenant) + "/" + url.PathEscape(m.Actor)
	if len(scope) > maxScope {
		sum := sha256.Sum256([]byte(scope))
		scope = "sha256:" + hex.EncodeToString(sum[:])
	}
	return scope
}

// claim returns the claim that stands for the key when it is used for the operation.
func (o *IdempotencyOption) claim(ctx context.Context, operation string) (eventstore.Claim, error) {
	scope := ScopeOf(eventstore.MetadataFrom(ctx))
	if o.scope != nil {
		scope = *o.scope
	}
	call, err := newEventID()
	if err != nil {
		return eventstore.Claim{}, err
	}
	claim := eventstore.Claim{Scope: scope, Key: o.key, Request: requestOf(operation, o.request), Call: call}
	return claim, claim.Validate()
}

// requestOf joins operation and request; the former has no zero byte.
func requestOf(operation string, request []byte) []byte {
	return append(append([]byte(operation), 0), request...)
}

// keyed is a command's key, ready for use.
type keyed struct {
	store    eventstore.OnceAppender
	claim    eventstore.Claim
	option   *IdempotencyOption
	refusals []Refusal
	// doubtful: there is reason to think that an outcome is stored, so it is looked for before anything is decided.
	doubtful bool
	refused  bool // this call has stored a refusal
}

func newKeyed(ctx context.Context, store any, option *IdempotencyOption, operation string, refusals []Refusal) (*keyed, error) {
	once, ok := store.(eventstore.OnceAppender)
	if !ok {
		return nil, &storeError{operation, fmt.Errorf("a store of type %T cannot keep the outcome of a command with a key: use one that is an eventstore.OnceAppender", store)}
	}
	claim, err := option.claim(ctx, operation)
	if err != nil {
		return nil, &storeError{operation, err}
	}
	if use := option.inContext; use != nil {
		if use.ended.Load() {
			return nil, misuse("%s is a second command under the key of one context, which the first has used up: "+
				"put what belongs together into one Transact, or take the key away for the other (ContextWithIdempotencyKey with an empty key)", operation)
		}
		use.taken.Store(true)
	}
	return &keyed{store: once, claim: claim, option: option, refusals: refusals}, nil
}

// first looks up the first outcome.
func (k *keyed) first(ctx context.Context) (eventstore.Outcome, bool, error) {
	outcome, found, err := k.store.FirstOutcome(ctx, k.claim)
	if errors.Is(err, eventstore.ErrReusedKey) {
		return k.expired(ctx, err)
	}
	return outcome, found, err
}

// expired tells whether a key that was used for "another request" was used by [Expire], which does not know the
// operation.
func (k *keyed) expired(ctx context.Context, reused error) (eventstore.Outcome, bool, error) {
	claim := k.claim
	claim.Request = requestOf(expiring, k.option.request)
	outcome, found, err := k.store.FirstOutcome(ctx, claim)
	switch {
	case errors.Is(err, eventstore.ErrReusedKey), err == nil && !found:
		return eventstore.Outcome{}, false, reused
	case err != nil: // it may have expired
		return eventstore.Outcome{}, false, err
	}
	return outcome, true, nil
}

// ended notes that an outcome is stored under the key, for who gave it by a context.
func (k *keyed) ended(outcome eventstore.Outcome) {
	if use := k.option.inContext; use != nil {
		if outcome.Kind == eventstore.OutcomeRefused {
			use.refusal.Store(&outcome.Code)
		}
		use.ended.Store(true)
	}
}

// outcomeOf returns the outcome to store for an error of a decision, and whether there is one.
func (k *keyed) outcomeOf(err error, more []Refusal) (eventstore.Outcome, bool) {
	if !lasting(err) {
		return eventstore.Outcome{}, false
	}
	outcome := eventstore.Outcome{Kind: eventstore.OutcomeRefused, Text: storable(err.Error())}
	for _, r := range append(append(k.refusals[:len(k.refusals):len(k.refusals)], more...), alwaysRefuses...) {
		if errors.Is(err, r.err) {
			outcome.Code = r.code
			break
		}
	}
	return outcome, true
}

// lasting reports whether an error of a decision says something about the command, rather than about the moment.
func lasting(err error) bool {
	var store *storeError
	if eventstore.IsRetryable(err) || IsTransient(err) || errors.As(err, &store) {
		return false
	}
	for _, passing := range [...]error{
		context.Canceled, context.DeadlineExceeded, eventstore.ErrUnconfirmed, eventstore.ErrInProgress, ErrMisuse, ErrVersion,
	} {
		if errors.Is(err, passing) {
			return false
		}
	}
	return true
}

const maxText = 8 << 10

// storable makes a text one that every store takes: a refusal must not fail because of its words.
func storable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-len("…")], "") + "…"
}

// answer turns an outcome that was stored by an earlier call into this call's error.
func (k *keyed) answer(outcome eventstore.Outcome) error {
	k.ended(outcome)
	switch outcome.Kind {
	case eventstore.OutcomeDone:
		return nil
	case eventstore.OutcomeExpired:
		return &ExpiredError{Scope: k.claim.Scope, Key: k.claim.Key, At: outcome.At}
	}
	refused := &RefusedError{Code: outcome.Code, Text: outcome.Text, At: outcome.At}
	for _, r := range append(k.refusals[:len(k.refusals):len(k.refusals)], alwaysRefuses...) {
		if r.code == outcome.Code && outcome.Code != "" {
			refused.sentinel = r.err
			break
		}
	}
	return refused
}

// repeats is what part of the last commands with a key were repeats. While they are rare, a command is not looked up
// before it is decided, which would cost each of them a round trip: a repeat is then recognised by the append. When
// clients send again what they have no answer to, they come in numbers, and the look-up saves more than it costs.
var repeats rate

// rate is a part of one, smoothed over the last few dozen.
type rate struct{ smoothed atomic.Int64 }

const whole = 1 << 16

func (r *rate) note(hit bool) {
	now, before := int64(0), r.smoothed.Load()
	if hit {
		now = whole
	}
	r.smoothed.CompareAndSwap(before, before+(now-before)/32) // one that is lost does not matter
}

// high: more than one in 16.
func (r *rate) high() bool { return r.smoothed.Load() > whole/16 }
