package aggregate_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

// brokenStore is a snapshot store whose table can be taken away.
type brokenStore struct {
	snapshot.Store
	load, save atomic.Bool
}

var errTable = errors.New("no such table")

func (s *brokenStore) Load(ctx context.Context, stream eventstore.StreamID, fingerprint string, before eventstore.Version) (snapshot.Snapshot, iter.Seq2[eventstore.RecordedEvent, error], error) {
	if s.load.Load() {
		return snapshot.Snapshot{}, nil, errTable
	}
	return s.Store.Load(ctx, stream, fingerprint, before)
}

func (s *brokenStore) Save(ctx context.Context, kept snapshot.Snapshot, keep int) error {
	if s.save.Load() {
		return errTable
	}
	return s.Store.Save(ctx, kept, keep)
}

// lines returns what was logged since the last call, from the level on.
func (c *counter) lines() (short []string) {
	for line := range strings.Lines(c.log.String()) {
		_, line, _ = strings.Cut(line, "level=")
		short = append(short, strings.TrimSpace(line))
	}
	c.log.Reset()
	return short
}

func (c *counter) wantLine(t *testing.T, when string, parts ...string) {
	t.Helper()
	lines := c.lines()
	if len(lines) != 1 {
		t.Fatalf("%s: %d lines, want 1: %q", when, len(lines), lines)
	}
	for _, part := range parts {
		if !strings.Contains(lines[0], part) {
			t.Errorf("%s: line %q does not say %q", when, lines[0], part)
		}
	}
}

// A table that is away for many commands is one line, and so is its return.
func TestSnapshotTroubleIsLoggedPerChange(t *testing.T) {
	t.Parallel()
	c := newCounter()
	store := &brokenStore{Store: c.store.Snapshots()}
	repository := aggregate.NewRepository(c.store, aggregate.Define("count", func(s count, _ event) count { s.N++; return s }, countedCatalog),
		aggregate.WithSnapshots(store, c.policy(1)))
	commands := func() {
		t.Helper()
		var all sync.WaitGroup
		for _, id := range []string{"a", "b", "c"} {
			all.Go(func() {
				for range 5 {
					_, err := repository.Handle(t.Context(), id, up(1))
					if err := errors.Join(err, repository.Snapshots().Drain(t.Context())); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	commands()
	if lines := c.lines(); len(lines) != 0 {
		t.Fatalf("lines without trouble: %q", lines)
	}
	for range 2 { // it can break again
		store.load.Store(true)
		commands()
		c.wantLine(t, "reading breaks", "WARN", "snapshots cannot be read", "aggregate=count-", "no such table")
		store.load.Store(false)
		commands()
		c.wantLine(t, "reading works", "INFO", "snapshots can be read again", "failures=15")

		store.save.Store(true)
		commands()
		c.wantLine(t, "saving breaks", "WARN", "no snapshot was taken", "aggregate=count-", "version=", "no such table")
		store.save.Store(false)
		commands()
		c.wantLine(t, "saving works", "INFO", "snapshots are taken again", "failures=15")
	}
}

// A caller that gives up is no trouble of snapshots.
func TestCancelledCommandsAreNoSnapshotTrouble(t *testing.T) {
	t.Parallel()
	c := newCounter()
	store := &brokenStore{Store: c.store.Snapshots()}
	store.load.Store(true)
	repository := aggregate.NewRepository(c.store, aggregate.Define("count", func(s count, _ event) count { s.N++; return s }, countedCatalog),
		aggregate.WithSnapshots(store, c.policy(1)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := repository.Load(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("load: %v", err)
	}
	if lines := c.lines(); len(lines) != 0 {
		t.Errorf("lines: %q", lines)
	}
}

// Trouble of one stream ends only with that stream; streams that work in between do not make it new each time.
func TestUnusableSnapshotIsLoggedPerChange(t *testing.T) {
	t.Parallel()
	c := newCounter()
	now := time.Unix(1700000000, 0)
	policy := c.policy(3)
	policy.Clock = func() time.Time { return now }
	repository := c.repository(policy, 1)
	damage := func(id string) {
		t.Helper()
		if _, err := repository.Handle(t.Context(), id, up(3)); err != nil {
			t.Fatal(err)
		}
		drain(t, repository.Snapshots())
		kept := c.kept(t)
		kept.Stream.ID, kept.Version, kept.Position = id, 50, eventstore.PositionAt(1<<40)
		if err := c.store.Snapshots().Save(t.Context(), kept, 2); err != nil {
			t.Fatal(err)
		}
	}
	load := func(ids ...string) {
		t.Helper()
		for range 5 {
			for _, id := range ids {
				if loaded := must[aggregate.Loaded[count]](t)(repository.Load(t.Context(), id)); loaded.State.N != 3 {
					t.Fatalf("%s: %+v", id, loaded)
				}
			}
		}
	}
	damage("a")
	damage("b")
	if _, err := repository.Handle(t.Context(), "sound", up(3)); err != nil {
		t.Fatal(err)
	}
	load("a", "sound", "b")
	c.wantLine(t, "two are broken", "WARN", "a snapshot cannot be used", "aggregate=count-a", "version=50", "newer than the stream")
	now = now.Add(time.Hour)
	load("a", "sound", "b")
	c.wantLine(t, "the other is not hidden for ever", "WARN", "a snapshot cannot be used", "aggregate=count-b")
	if err := c.store.Snapshots().Delete(t.Context(), eventstore.NewStreamID("count", "b")); err != nil {
		t.Fatal(err)
	}
	load("b", "sound")
	c.wantLine(t, "it is gone", "INFO", "no longer in the way", "aggregate=count-b")
}
