package aggregate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

// snapshotTimeout bounds what taking a snapshot may add to a command.
const snapshotTimeout = 2 * time.Second

// snapshots keeps the states of one repository.
type snapshots[S any] struct {
	store       snapshot.Store
	policy      snapshot.Policy
	fingerprint string
	trouble     troubleLog
}

func newSnapshots[S any](store snapshot.Store, policy snapshot.Policy) (*snapshots[S], error) {
	policy = policy.WithDefaults()
	if err := checkState[S](policy.Codec); err != nil {
		return nil, err
	}
	fingerprint := snapshot.Fingerprint(reflect.TypeFor[S](), policy.Codec.ContentType(), policy.Revision)
	return &snapshots[S]{
		store: store, policy: policy, fingerprint: fingerprint,
		trouble: troubleLog{logger: policy.Logger, clock: policy.Clock},
	}, nil
}

// loadWithSnapshot folds what came after the snapshot into its state. Whatever is wrong with the snapshot ends in a
// full replay, never in an error.
func (r *Repository[S, E]) loadWithSnapshot(ctx context.Context, stream eventstore.StreamID) (loaded[S], error) {
	if err := stream.Validate(); err != nil {
		return loaded[S]{}, err
	}
	kept, events, err := r.snapshots.store.Load(ctx, stream, r.snapshots.fingerprint)
	if err != nil {
		if !gone(ctx) {
			r.snapshots.trouble.failed(ctx, cannotRead, stream, 0, err)
		}
		return r.replay(ctx, stream, eventstore.Range{})
	}
	r.snapshots.trouble.worked(ctx, cannotRead, stream)
	if kept.IsZero() {
		r.snapshots.trouble.worked(ctx, cannotUse, stream)
		var state loaded[S]
		err := r.fold(&state, stream, events)
		return state, err
	}
	state := loaded[S]{trail: trail{version: kept.Version, snapshot: kept.Version}}
	if err := r.snapshots.policy.Codec.Unmarshal(kept.Data, &state.state); err != nil {
		return r.replayInstead(ctx, stream, kept.Version, fmt.Errorf("decode: %w", err))
	}
	proved := false
	for recorded, err := range events {
		switch {
		case err != nil:
			return loaded[S]{}, err
		case proved:
			if err := r.foldOne(&state, stream, recorded); err != nil {
				return loaded[S]{}, err
			}
		case recorded.Version != kept.Version || recorded.Position != kept.Position:
			return r.replayInstead(ctx, stream, kept.Version, fmt.Errorf("it was taken at position %s, where the stream has version %d at position %s",
				kept.Position, recorded.Version, recorded.Position))
		default:
			proved, state.last = true, recorded.ID
		}
	}
	if !proved {
		return r.replayInstead(ctx, stream, kept.Version, errors.New("it is newer than the stream"))
	}
	r.snapshots.trouble.worked(ctx, cannotUse, stream)
	return state, nil
}

func (r *Repository[S, E]) replayInstead(ctx context.Context, stream eventstore.StreamID, v eventstore.Version, why error) (loaded[S], error) {
	r.snapshots.trouble.failed(ctx, cannotUse, stream, v, why)
	state, err := r.replay(ctx, stream, eventstore.Range{})
	state.unusable = true
	return state, err
}

// takeSnapshot keeps the state that a command has reached, if it is time to. The command is committed: nothing that
// happens here may change its outcome.
func (r *Repository[S, E]) takeSnapshot(ctx context.Context, stream eventstore.StreamID, before loaded[S], pending []eventstore.EventData, state S) {
	version := before.version + eventstore.Version(len(pending))
	if r.snapshots == nil || !r.snapshots.policy.Due(before.snapshot, version) {
		return
	}
	log, doing := &r.snapshots.trouble, cannotEncode
	defer func() {
		if p := recover(); p != nil { // of a marshaller of the user's, for example
			log.failed(ctx, doing, stream, version, fmt.Errorf("panic: %v", p))
		}
	}()
	data, err := r.snapshots.policy.Codec.Marshal(&state)
	if err != nil {
		log.failed(ctx, doing, stream, version, err)
		return
	}
	log.worked(ctx, doing, stream)

	doing = cannotSave
	within, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	switch err := r.saveSnapshot(within, stream, before.unusable, version, data); {
	case err == nil:
		log.worked(ctx, doing, stream)
	case !gone(ctx):
		log.failed(ctx, doing, stream, version, err)
	}
}

// gone: the caller gave up, which says nothing about snapshots. A deadline may well be over because of them.
func gone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func (r *Repository[S, E]) saveSnapshot(ctx context.Context, stream eventstore.StreamID, unusable bool, version eventstore.Version, data []byte) error {
	// The append does not tell the position of each stream, so the last event is read back.
	var last eventstore.RecordedEvent
	for recorded, err := range r.store.ReadStream(ctx, stream, eventstore.Range{From: version, To: version}) {
		if err != nil {
			return err
		}
		last = recorded
	}
	if last.Version != version {
		return errors.New("its last event cannot be read back")
	}
	if unusable {
		// It may claim a later version and would never be replaced.
		if err := r.snapshots.store.Delete(ctx, stream); err != nil {
			return fmt.Errorf("delete the unusable one: %w", err)
		}
	}
	return r.snapshots.store.Save(ctx, snapshot.Snapshot{
		Stream: stream, Fingerprint: r.snapshots.fingerprint, Version: version, Position: last.Position,
		ContentType: r.snapshots.policy.Codec.ContentType(), Data: data, TakenAt: r.snapshots.policy.Clock().UTC(),
	})
}

// checkState refuses states of which a snapshot would keep only a part. The codecs of eventstore look at the whole type
// before they encode a value, so an empty list, or a nil pointer, of states brings up every fault without a state; the
// pointer keeps the fault's path short. A codec of the user's own answers for itself.
func checkState[S any](codec eventstore.Codec) error {
	if codec != eventstore.Msgpack && codec != eventstore.JSON {
		return nil
	}
	var probe any = &[]S{}
	if reflect.TypeFor[S]().Kind() == reflect.Struct {
		probe = new(*S)
	}
	if _, err := codec.Marshal(probe); err != nil {
		return fmt.Errorf("state %s: %w", reflect.TypeFor[S](), err)
	}
	return nil
}
