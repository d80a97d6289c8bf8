package eventstoretest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
)

// momentOf is how long a test looks whether something does not happen.
const momentOf = 50 * time.Millisecond

// lockedPatience bounds waiting for what must happen.
const lockedPatience = 30 * time.Second

// locked runs f with the streams locked and fails the test when that ends with an error.
func locked(t *testing.T, store onceStore, c *eventstore.Claim, ids []eventstore.StreamID, f func(ctx context.Context, s eventstore.LockedStreams) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lockedPatience)
	defer cancel()
	if err := store.WithStreamsLocked(ctx, c, ids, f); err != nil {
		t.Fatalf("with streams locked: %v", err)
	}
}

// waits runs do beside the test and checks that it does not end while during runs. What it returns waits for the end.
func waits(t *testing.T, what string, do func() error) (end func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	timer := time.NewTimer(momentOf)
	defer timer.Stop()
	select {
	case err := <-ended:
		t.Errorf("%s did not wait: %v", what, err)
		return func() error { return err }
	case <-timer.C:
	}
	return func() error {
		timer := time.NewTimer(lockedPatience)
		defer timer.Stop()
		select {
		case err := <-ended:
			return err
		case <-timer.C:
			return errors.New(what + " waited for ever")
		}
	}
}

func testLocked(t *testing.T, open Open) {
	store := openOnce(t, open)
	bg := context.Background()

	t.Run("nobody else appends", func(t *testing.T) {
		there, missing, other := stream("locked"), stream("locked"), stream("locked")
		mustAppend(t, store, eventstore.To(there, eventstore.NoStream, event("locked.happened", "1")))
		var ends []func() error
		locked(t, store, nil, []eventstore.StreamID{missing, there, missing}, func(ctx context.Context, s eventstore.LockedStreams) error {
			ends = append(ends,
				waits(t, "an append", func() error {
					_, err := store.Append(bg, eventstore.To(there, eventstore.AnyVersion, event("locked.happened", "4")))
					return err
				}),
				waits(t, "a creation", func() error {
					_, err := store.Append(bg, eventstore.To(missing, eventstore.NoStream, event("locked.happened", "lost")))
					if !errors.Is(err, eventstore.ErrConflict) {
						return errors.Join(errors.New("no conflict"), err)
					}
					return nil
				}),
			)
			mustAppend(t, store, eventstore.To(other, eventstore.NoStream, event("locked.happened", "free"))) // waits for nobody
			wantPayloads(t, readWith(ctx, t, store, other), "free")
			wantPayloads(t, readWith(ctx, t, store, there), "1")
			result, err := s.Append(ctx, eventstore.To(there, eventstore.Exactly(1), event("locked.happened", "2"), event("locked.happened", "3")),
				eventstore.To(missing, eventstore.NoStream, event("locked.happened", "1")))
			wantVersions(t, result, map[eventstore.StreamID]eventstore.Version{there: 3, missing: 1})
			wantPayloads(t, readStream(t, store, there, eventstore.Range{}), "1") // not before the end
			return err
		})
		for _, end := range ends {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
		wantPayloads(t, readStream(t, store, there, eventstore.Range{}), "1", "2", "3", "4")
		wantPayloads(t, readStream(t, store, missing, eventstore.Range{}), "1")
	})

	t.Run("an error rolls back", func(t *testing.T) {
		id, c := stream("locked"), claim()
		refusal := errors.New("no")
		for _, fail := range []bool{true, false} {
			err := store.WithStreamsLocked(bg, &c, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
				o, err := s.AppendOnce(ctx, c, done("ok"), eventstore.To(id, eventstore.NoStream, event("locked.happened", "1")))
				if err != nil || o.Repeated {
					t.Errorf("%+v, %v", o, err)
				}
				if fail {
					return refusal
				}
				return err
			})
			if fail && err != refusal || !fail && err != nil { //nolint:errorlint // as it is
				t.Fatalf("fail %t: %v", fail, err)
			}
			n := len(readStream(t, store, id, eventstore.Range{}))
			_, found, err := store.FirstOutcome(bg, c)
			if fail && (n != 0 || found) || !fail && (n != 1 || !found) || err != nil {
				t.Fatalf("fail %t: %d events, outcome %t, %v", fail, n, found, err)
			}
		}
	})

	t.Run("a panic rolls back", func(t *testing.T) {
		id := stream("locked")
		func() {
			defer func() {
				if recover() != "oh" {
					t.Error("the panic did not come through")
				}
			}()
			_ = store.WithStreamsLocked(bg, nil, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
				mustAppend(t, s, eventstore.To(id, eventstore.NoStream, event("locked.happened", "1")))
				panic("oh")
			})
		}()
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("locked.happened", "2")))
		wantPayloads(t, readStream(t, store, id, eventstore.Range{}), "2")
	})

	t.Run("with a key", func(t *testing.T) {
		id, c := stream("locked"), claim()
		var first eventstore.Outcome
		var end func() error
		locked(t, store, &c, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) (err error) {
			end = waits(t, "a command with the same key", func() error {
				got, err := store.AppendOnce(bg, again(c), done("late"), eventstore.To(stream("locked"), eventstore.NoStream, event("locked.happened", "x")))
				if err == nil && !got.Repeated {
					return errors.New("the key took effect twice")
				}
				return err
			})
			first, err = s.AppendOnce(ctx, c, done("ok"), eventstore.To(id, eventstore.NoStream, event("locked.happened", "1")))
			return err
		})
		if err := end(); err != nil {
			t.Error(err)
		}
		wantFirst(t, store, c, first)
		for _, named := range []*eventstore.Claim{&c, nil} {
			locked(t, store, named, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
				got, err := s.AppendOnce(ctx, again(c), done("x"), eventstore.To(id, eventstore.Exactly(1), event("locked.happened", "x")))
				wantRepeat(t, first, got)
				return err
			})
			locked(t, store, named, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
				other := again(c)
				other.Request = []byte("other")
				if _, err := s.AppendOnce(ctx, other, done("x")); !errors.Is(err, eventstore.ErrReusedKey) {
					t.Errorf("another request: %v", err)
				}
				return nil
			})
		}
		wantPayloads(t, readStream(t, store, id, eventstore.Range{}), "1")
		refused := claim()
		locked(t, store, &refused, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) (err error) {
			first, err = s.AppendOnce(ctx, refused, eventstore.Outcome{Kind: eventstore.OutcomeRefused, Code: "no"})
			return err
		})
		wantFirst(t, store, refused, first)
	})

	t.Run("conflicts", func(t *testing.T) {
		id, c := stream("locked"), claim()
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("locked.happened", "1")))
		locked(t, store, &c, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
			_, err := s.AppendOnce(ctx, c, done("x"), eventstore.To(id, eventstore.NoStream, event("locked.happened", "x")))
			_, err2 := s.Append(ctx, eventstore.To(id, eventstore.Exactly(2), event("locked.happened", "x")))
			for _, err := range []error{err, err2} {
				var conflict *eventstore.ConflictError
				if !errors.As(err, &conflict) || conflict.Actual != 1 {
					t.Errorf("%v, want a conflict", err)
				}
			}
			mustAppend(t, s, eventstore.To(id, eventstore.Exactly(1), event("locked.happened", "2"))) // what failed is no append
			if _, err := s.Append(ctx, eventstore.To(id, eventstore.Exactly(2), event("locked.happened", "3"))); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("a second append: %v, want ErrInvalid", err)
			}
			return nil
		})
		wantPayloads(t, readStream(t, store, id, eventstore.Range{}), "1", "2")
		wantNone(t, store, c)
	})

	t.Run("nothing", func(t *testing.T) {
		id := stream("locked")
		ran := 0
		for _, ids := range [][]eventstore.StreamID{nil, {id}} {
			locked(t, store, nil, ids, func(context.Context, eventstore.LockedStreams) error {
				ran++
				return nil
			})
		}
		if ran != 2 {
			t.Errorf("f ran %d times", ran)
		}
		if err := store.WithStreamsLocked(bg, nil, []eventstore.StreamID{id, {}}, func(context.Context, eventstore.LockedStreams) error {
			t.Error("f ran")
			return nil
		}); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("a stream without a name: %v", err)
		}
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, event("locked.happened", "1")))
	})

	t.Run("who would wait for himself is told", func(t *testing.T) {
		id, free, c := stream("locked"), stream("locked"), claim()
		locked(t, store, &c, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
			_, err := store.Append(ctx, eventstore.To(id, eventstore.AnyVersion, event("locked.happened", "x")))
			_, onceErr := store.AppendOnce(ctx, claim(), done(""), eventstore.Check(id, eventstore.NoStream))
			_, keyErr := store.AppendOnce(ctx, again(c), done(""))
			nestedErr := store.WithStreamsLocked(ctx, nil, []eventstore.StreamID{free}, func(context.Context, eventstore.LockedStreams) error { return nil })
			for i, err := range []error{err, onceErr, keyErr, nestedErr} {
				if !errors.Is(err, eventstore.ErrInvalid) {
					t.Errorf("call %d: %v, want ErrInvalid", i, err)
				}
			}
			_, err = store.Append(ctx, eventstore.To(free, eventstore.AnyVersion, event("locked.happened", "1"))) // on its own
			return errors.Join(err, func() error {
				_, err := s.AppendOnce(ctx, c, done(""), eventstore.To(id, eventstore.NoStream, event("locked.happened", "1")))
				return err
			}())
		})
		wantPayloads(t, readStream(t, store, free, eventstore.Range{}), "1")
		wantPayloads(t, readStream(t, store, id, eventstore.Range{}), "1")
	})

	t.Run("giving up", func(t *testing.T) {
		id := stream("locked")
		locked(t, store, nil, []eventstore.StreamID{id}, func(context.Context, eventstore.LockedStreams) error {
			ctx, cancel := context.WithCancel(bg)
			end := waits(t, "a second locker", func() error {
				return store.WithStreamsLocked(ctx, nil, []eventstore.StreamID{id}, func(context.Context, eventstore.LockedStreams) error {
					t.Error("two have the stream")
					return nil
				})
			})
			cancel()
			if err := end(); !errors.Is(err, context.Canceled) {
				t.Errorf("given up with %v", err)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		err := store.WithStreamsLocked(ctx, nil, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
			mustAppend(t, s, eventstore.To(id, eventstore.NoStream, event("locked.happened", "1")))
			cancel()
			return nil
		})
		// Whoever is told of a failure that is certain finds nothing stored.
		if n := len(readStream(t, store, id, eventstore.Range{})); err == nil || !errors.Is(err, eventstore.ErrUnconfirmed) && n != 0 {
			t.Errorf("%d events, %v", n, err)
		}
		locked(t, store, nil, []eventstore.StreamID{id}, func(context.Context, eventstore.LockedStreams) error { return nil })
	})
}

func readWith(ctx context.Context, t *testing.T, store eventstore.StreamReader, id eventstore.StreamID) []eventstore.RecordedEvent {
	t.Helper()
	var list []eventstore.RecordedEvent
	for e, err := range store.ReadStream(ctx, id, eventstore.Range{}) {
		if err != nil {
			t.Fatalf("read stream %q: %v", id, err)
		}
		list = append(list, e)
	}
	return list
}

// testLockedRaces lets lockers of the same streams meet in opposite orders, and optimistic writers with them.
func testLockedRaces(t *testing.T, open Open) {
	store := openOnce(t, open)
	const callers = 12
	a, b := stream("locked"), stream("locked")
	ctx, cancel := context.WithTimeout(context.Background(), lockedPatience)
	defer cancel()
	version := func(ctx context.Context, id eventstore.StreamID) eventstore.Version {
		var v eventstore.Version
		for e, err := range store.ReadStream(ctx, id, eventstore.Range{}) {
			if err != nil {
				t.Errorf("read stream: %v", err)
				break
			}
			v = e.Version
		}
		return v
	}
	const rounds = 5
	outcomes := together(callers, func(i int) (result eventstore.AppendResult, err error) {
		ids := []eventstore.StreamID{a, b}
		if i%2 == 1 {
			ids = []eventstore.StreamID{b, a}
		}
		for range rounds {
			if i%4 == 3 { // one who does not lock
				if err := decideOnce(store, claim(), ids[0], "optimistic"); err != nil {
					return result, err
				}
				continue
			}
			if err := store.WithStreamsLocked(ctx, nil, ids, func(ctx context.Context, s eventstore.LockedStreams) error {
				_, err := s.Append(ctx, eventstore.To(ids[0], eventstore.Exactly(version(ctx, ids[0])), event("locked.happened", "both")),
					eventstore.To(ids[1], eventstore.Exactly(version(ctx, ids[1])), event("locked.happened", "both")))
				return err
			}); err != nil {
				return result, err
			}
		}
		return result, nil
	})
	for i, o := range outcomes {
		if o.err != nil {
			t.Errorf("caller %d: %v", i, o.err)
		}
	}
	got := map[string]int{}
	for _, id := range []eventstore.StreamID{a, b} {
		for _, text := range payloads(readStream(t, store, id, eventstore.Range{})) {
			got[text]++
		}
	}
	if diff := cmp.Diff(map[string]int{"both": callers * 3 / 4 * rounds * 2, "optimistic": callers / 4 * rounds}, got); diff != "" {
		t.Error(diff)
	}
}
