package aggregate

import (
	"context"
	"reflect"

	"github.com/daybook-go/daybook/eventstore"
)

// running is the gate of this process: calls with one key go one after the other, whichever repository they come
// through. It belongs to no repository because a key does not. It holds the keys in use and nothing else.
var running = newTurns[gateKey](patience)

// gateKey names a command with a key in a store.
type gateKey struct {
	store      any
	scope, key string
}

// enterGate waits for a command with the same key, or, when the caller asked to be told, returns an
// [*eventstore.InProgressError] while there is one, here or in another process.
func enterGate(ctx context.Context, store eventstore.OnceAppender, claim eventstore.Claim, tell bool) (func(), error) {
	place := gateKey{scope: claim.Scope, key: claim.Key}
	if reflect.TypeOf(store).Comparable() { // else all such stores share a line, which costs time only
		place.store = store
	}
	if !tell {
		return running.enter(ctx, place)
	}
	leave, ok := running.tryEnter(place)
	if !ok {
		return nil, &eventstore.InProgressError{Scope: claim.Scope, Key: claim.Key}
	}
	release, err := store.HoldKey(ctx, claim)
	if err != nil {
		leave()
		return nil, err
	}
	return func() { release(); leave() }, nil
}
