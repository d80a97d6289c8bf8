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
// One key is for one Handle or Transact. A second one under the same context is a command with the same key: it gets
// the outcome of the first if it is the same operation, else an [*eventstore.ReusedKeyError]. What belongs together is
// one [Transact].
func ContextWithIdempotencyKey(ctx context.Context, key string, opts ...KeyOption) context.Context {
	option := WithIdempotencyKey(key, opts...)
	option.used, option.refused = new(atomic.Bool), new(atomic.Bool)
	return context.WithValue(ctx, contextKey{}, &option)
}

// ContextWithVersion gives the Handle that is executed under the context a claim about the aggregate's version, as
// [IfVersion] does. An option of the call wins. Transact does not look at it: it does not know which aggregate is meant.
func ContextWithVersion(ctx context.Context, v eventstore.ExpectedVersion) context.Context {
	return context.WithValue(ctx, contextVersion{}, v)
}

// KeyUsed reports whether a Handle or Transact has taken the key that [ContextWithIdempotencyKey] put into ctx. After a
// success without that, nothing is stored under the key, and a repeat would be executed again.
func KeyUsed(ctx context.Context) bool {
	option := keyOfContext(ctx)
	return option != nil && option.used.Load()
}

// KeyRefused reports whether the command under the key that [ContextWithIdempotencyKey] put into ctx was refused, for
// good: a repeat gets that refusal again, whatever its handler makes of the first.
func KeyRefused(ctx context.Context) bool {
	option := keyOfContext(ctx)
	return option != nil && option.refused.Load()
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
