package aggregate

import (
	"context"
	"sync/atomic"

	"github.com/daybook-go/daybook/eventstore"
)

type (
	contextKey     struct{}
	contextVersion struct{}
)

// ContextWithIdempotencyKey gives the command that is executed under the context a key, as [WithIdempotencyKey] does for
// one call. It is for what stands in front of a handler and knows the key but not the call, such as a middleware. An
// option of the call wins; an empty key takes the context's key away, for a command within a command.
//
// One key is for one Handle or Transact, which may be tried again after an error. A second one, when an outcome of the
// first is stored, is refused with an error that matches [ErrMisuse] and leaves the first as it is: what belongs together
// is one [Transact].
func ContextWithIdempotencyKey(ctx context.Context, key string, opts ...KeyOption) context.Context {
	option := WithIdempotencyKey(key, opts...)
	option.inContext = new(contextUse)
	return context.WithValue(ctx, contextKey{}, &option)
}

// ContextWithVersion gives the Handle that is executed under the context a claim about the aggregate's version, as
// [IfVersion] does. An option of the call wins. Transact does not look at it: it does not know which aggregate is meant.
func ContextWithVersion(ctx context.Context, v eventstore.ExpectedVersion) context.Context {
	return context.WithValue(ctx, contextVersion{}, v)
}

// contextUse is what has become of a key in a context.
type contextUse struct {
	taken, ended atomic.Bool
	refusal      atomic.Pointer[string] // the code
}

// KeyUsed reports whether a Handle or Transact has taken the key that [ContextWithIdempotencyKey] put into ctx. After a
// success without that, nothing is stored under the key, and a repeat would be executed again.
func KeyUsed(ctx context.Context) bool {
	option := keyOfContext(ctx)
	return option != nil && option.inContext.taken.Load()
}

// KeyRefusal reports whether the command under the key that [ContextWithIdempotencyKey] put into ctx was refused, for
// good, and under which code (see [Refuses]; "" for an error that is not declared): a repeat gets that refusal again,
// whatever its handler makes of the first.
func KeyRefusal(ctx context.Context) (code string, refused bool) {
	if option := keyOfContext(ctx); option != nil {
		if stored := option.inContext.refusal.Load(); stored != nil {
			return *stored, true
		}
	}
	return "", false
}

func keyOfContext(ctx context.Context) *IdempotencyOption {
	option, _ := ctx.Value(contextKey{}).(*IdempotencyOption)
	if option != nil && option.key == "" {
		return nil
	}
	return option
}

func versionOfContext(ctx context.Context) *eventstore.ExpectedVersion {
	if v, ok := ctx.Value(contextVersion{}).(eventstore.ExpectedVersion); ok {
		return &v
	}
	return nil
}
