package aggregate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

// snapshotTimeout bounds how long one snapshot may keep others waiting.
const snapshotTimeout = 2 * time.Second

// snapshots keeps the states of one repository.
type snapshots[S any] struct {
	store       snapshot.Store
	policy      snapshot.Policy
	fingerprint string
	bound       int // the most events that the policy lets a load fold; negative: it promises nothing
	trouble     troubleLog
	queue       *snapshotQueue
}

func newSnapshots[S any](store snapshot.Store, policy snapshot.Policy, save func(snapshotJob) bool) (*snapshots[S], error) {
	policy = policy.WithDefaults()
	if err := checkState[S](policy.Codec); err != nil {
		return nil, err
	}
	bound, promised := policy.Bound()
	if !promised {
		bound = -1
	}
	fingerprint := snapshot.Fingerprint(reflect.TypeFor[S](), policy.Codec.ContentType(), policy.Revision)
	return &snapshots[S]{
		store: store, policy: policy, fingerprint: fingerprint, bound: bound,
		trouble: troubleLog{logger: policy.Logger, clock: policy.Clock},
		queue:   newSnapshotQueue(policy.Queue, save),
	}, nil
}

func (s *snapshots[S]) encode(state S) (data []byte, err error) {
	defer recoverAs(&err, "encode the state")
	return s.policy.Codec.Marshal(&state)
}

func (s *snapshots[S]) decode(data []byte) (state S, err error) {
	defer recoverAs(&err, "decode")
	if err = s.policy.Codec.Unmarshal(data, &state); err != nil {
		err = fmt.Errorf("decode: %w", err)
	}
	return state, err
}

// loadWithSnapshot folds what came after the newest snapshot into its state. If that cannot be used, for whatever
// reason, an older one is tried, as many as are kept, and then the events; there is one warning and never an error.
func (r *Repository[S, E]) loadWithSnapshot(ctx context.Context, stream eventstore.StreamID) (loaded[S], error) {
	if err := stream.Validate(); err != nil {
		return loaded[S]{}, err
	}
	s := r.snapshots
	unusable, before := false, eventstore.Version(0)
	for range s.policy.Keep {
		kept, events, err := s.store.Load(ctx, stream, s.fingerprint, before)
		if err != nil {
			if !gone(ctx) {
				s.trouble.failed(ctx, cannotRead, stream, 0, err)
			}
			break
		}
		s.trouble.worked(ctx, cannotRead, stream)
		var state loaded[S]
		var why error
		if kept.IsZero() {
			err = r.fold(&state, stream, events)
		} else {
			state, why, err = r.fromSnapshot(stream, kept, events)
		}
		switch {
		case err != nil:
			return loaded[S]{}, err
		case why == nil:
			if !unusable {
				s.trouble.worked(ctx, cannotUse, stream)
			}
			state.unusable = unusable
			return state, nil
		case !unusable:
			s.trouble.failed(ctx, cannotUse, stream, kept.Version, why)
		}
		unusable = true
		if kept.Version <= 1 || before > 0 && kept.Version >= before {
			break // there can be none before it
		}
		before = kept.Version
	}
	state, err := r.replay(ctx, stream, eventstore.Range{})
	state.unusable = unusable
	return state, err
}

// fromSnapshot folds events, which begin with the last one in the snapshot, into its state; why says what keeps the
// snapshot from being used.
func (r *Repository[S, E]) fromSnapshot(
	stream eventstore.StreamID, kept snapshot.Snapshot, events iter.Seq2[eventstore.RecordedEvent, error],
) (state loaded[S], why, err error) {
	state.trail = trail{version: kept.Version, snapshot: kept.Version, since: kept.TakenAt}
	if state.state, why = r.snapshots.decode(kept.Data); why != nil {
		return loaded[S]{}, why, nil
	}
	proved := false
	for recorded, err := range events {
		switch {
		case err != nil:
			return loaded[S]{}, nil, err
		case proved:
			if err := r.foldOne(&state, stream, recorded); err != nil {
				return loaded[S]{}, nil, err
			}
		case recorded.Version != kept.Version || recorded.Position != kept.Position:
			return loaded[S]{}, fmt.Errorf("it was taken at position %s, where the stream has version %d at position %s",
				kept.Position, recorded.Version, recorded.Position), nil
		default:
			proved, state.last = true, recorded.ID
		}
	}
	if !proved {
		return loaded[S]{}, errors.New("it is newer than the stream"), nil
	}
	return state, nil, nil
}

// takeSnapshot keeps the state that a command has reached, if it is time to: it is encoded here, where nobody else has
// it, and stored beside the command. The command is committed: nothing that happens here may change its outcome.
func (r *Repository[S, E]) takeSnapshot(ctx context.Context, stream eventstore.StreamID, before loaded[S], pending []eventstore.EventData, state func() (S, error)) {
	if r.snapshots == nil || len(pending) == 0 {
		return
	}
	s, start := r.snapshots, time.Now()
	version := before.version + eventstore.Version(len(pending))
	var err error
	defer func() {
		if err != nil {
			s.trouble.failed(ctx, cannotEncode, stream, version, err)
			r.observer.ObserveSnapshot(eventstore.SnapshotObservation{Category: stream.Category, Duration: time.Since(start), Err: err})
		}
	}()
	defer recoverAs(&err, "decide whether it is due") // a condition of the user's, for example
	facts := r.facts(stream, before, pending, version)
	if !s.policy.Due(facts) {
		return
	}
	reached, err := state()
	if err != nil {
		return
	}
	data, err := s.encode(reached)
	if err != nil {
		return
	}
	s.trouble.worked(ctx, cannotEncode, stream)
	job := snapshotJob{
		ctx: context.WithoutCancel(ctx), stream: stream, version: version, last: pending[len(pending)-1].ID,
		unusable: before.unusable, data: data, takenAt: facts.Now, start: start,
	}
	// A state of its own events alone is right whatever was dropped before.
	if !s.queue.offer(job, func() bool { return before.version == 0 || r.eras.now(before.era) }) {
		r.observer.ObserveSnapshot(eventstore.SnapshotObservation{
			Category: stream.Category, Bytes: len(data), Dropped: true, Duration: time.Since(start),
		})
	}
}

func (r *Repository[S, E]) facts(stream eventstore.StreamID, before loaded[S], pending []eventstore.EventData, version eventstore.Version) snapshot.Facts {
	f := snapshot.Facts{
		Last: before.snapshot, Version: version, LastAt: before.since, Now: r.snapshots.policy.Clock(),
		Replayed: before.replayed, Events: before.types,
	}
	if v, takenAt := r.snapshots.queue.latest(stream, before.seen); v > f.Last {
		f.Last, f.LastAt, f.Replayed = v, takenAt, int(max(before.version-v, 0))
		if v >= before.version {
			f.Events = nil
		}
	}
	for _, e := range pending {
		f.Events = withType(f.Events, e.Type)
	}
	return f
}

// storeSnapshot is what the queue does with a job. It returns whether it is stored.
func (r *Repository[S, E]) storeSnapshot(j snapshotJob) (ok bool) {
	seen := eventstore.SnapshotObservation{Category: j.stream.Category, Bytes: len(j.data)}
	ctx, cancel := context.WithTimeout(j.ctx, snapshotTimeout)
	defer cancel()
	defer func() { _ = recover() }() // of a logger or an observer: nobody is there to be told
	if seen.Err = r.saveSnapshot(ctx, j); seen.Err != nil {
		r.snapshots.trouble.failed(ctx, cannotSave, j.stream, j.version, seen.Err)
	} else {
		r.snapshots.trouble.worked(ctx, cannotSave, j.stream)
		if r.cache != nil {
			r.cache.snapshotTaken(j.stream, j.version, j.takenAt)
		}
	}
	ok, seen.Duration = seen.Err == nil, time.Since(j.start)
	r.observer.ObserveSnapshot(seen)
	return ok
}

func (r *Repository[S, E]) saveSnapshot(ctx context.Context, j snapshotJob) (err error) {
	defer recoverAs(&err, "store it")
	// The append does not tell the position of each stream, so the last event is read back.
	var last eventstore.RecordedEvent
	for recorded, err := range r.store.ReadStream(ctx, j.stream, eventstore.Range{From: j.version, To: j.version}) {
		if err != nil {
			return err
		}
		last = recorded
	}
	if last.Version != j.version || last.ID != j.last {
		return errors.New("its last event cannot be read back")
	}
	s := r.snapshots
	if j.unusable {
		// It may claim a later version and would never be replaced.
		if err := s.store.Delete(ctx, j.stream); err != nil {
			return fmt.Errorf("delete the unusable one: %w", err)
		}
	}
	return s.store.Save(ctx, snapshot.Snapshot{
		Stream: j.stream, Fingerprint: s.fingerprint, Version: j.version, Position: last.Position,
		ContentType: s.policy.Codec.ContentType(), Data: j.data, TakenAt: j.takenAt.UTC(),
	}, s.policy.Keep)
}

// gone: the caller gave up, which says nothing about snapshots. A deadline may well be over because of them.
func gone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

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
