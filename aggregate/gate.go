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
// [*eventstore.InProgressError] while there is one, here or in another process. waited says that there was one. leave
// says whether the outcome is stored: then all that wait may go and look at once.
func enterGate(ctx context.Context, store eventstore.OnceAppender, claim eventstore.Claim, tell bool) (leave func(known bool), waited bool, err error) {
	place := gateKey{scope: claim.Scope, key: claim.Key}
	if reflect.TypeOf(store).Comparable() { // else all such stores share a line, which costs time only
		place.store = store
	}
	if !tell {
		me, err := running.enter(ctx, place)
		if err != nil {
			return nil, false, err
		}
		return func(known bool) { running.leave(place, me, known) }, me.come != nil, nil
	}
	me := running.tryEnter(place)
	if me == nil {
		return nil, false, &eventstore.InProgressError{Scope: claim.Scope, Key: claim.Key}
	}
	release, err := store.HoldKey(ctx, claim)
	if err != nil {
		running.leave(place, me, false)
		return nil, false, err
	}
	return func(known bool) {
		release()
		running.leave(place, me, known)
	}, false, nil
}
