package consumer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Whoever works it out comes to the same: every segment has one owner who is there, and nobody has two more than another.
func TestSegmentsAreSharedFairly(t *testing.T) {
	t.Parallel()
	for range 2000 {
		segments, n := 1+rand.IntN(12), 1+rand.IntN(9)
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%x", rand.Uint32())
		}
		other := slices.Clone(names) // as another process finds them
		rand.Shuffle(n, func(i, j int) { other[i], other[j] = other[j], other[i] })
		slices.Sort(names)
		slices.Sort(other)
		share := map[string]int{}
		for segment := range segments {
			owner := ownerOf(segment, names)
			if !slices.Contains(names, owner) || owner != ownerOf(segment, other) {
				t.Fatalf("segment %d of %q falls to %q and %q", segment, names, owner, ownerOf(segment, other))
			}
			share[owner]++
		}
		for _, name := range names {
			if has := share[name]; has < segments/n || has > (segments+n-1)/n {
				t.Fatalf("%q has %d of %d segments, shared by %d", name, has, segments, n)
			}
		}
	}
	if owner := ownerOf(3, nil); owner != "" {
		t.Errorf("nobody is there, and %q owns a segment", owner)
	}
}

// What is not known, or was found out too long ago, is no reason to take a segment, and none to let one go.
func TestMemberKnowsHowOldItsKnowledgeIs(t *testing.T) {
	t.Parallel()
	m := NewMember(Ref{"s", "shared", 1}, Config{Lease: time.Minute})
	check := func(what string, falls, moved bool) {
		t.Helper()
		mine, _, _ := m.falls(0)
		gone, _ := m.moved(0)
		if mine != falls || gone != moved {
			t.Errorf("%s: it is mine: %v, it has gone: %v", what, mine, gone)
		}
	}
	check("nothing is known", false, false)
	m.names, m.asked = []string{m.name}, time.Now()
	check("alone", true, false)
	m.asked = time.Now().Add(-2 * time.Minute)
	check("it stood still", false, false)
	m.names = []string{"a", "b"}
	check("it stood still, and others have been there since", false, true)
	m.names = nil
	check("nobody is there", false, false)
	m.names, m.asked, m.left = []string{m.name}, time.Now(), true
	check("a worker has stopped", false, true)
}

// A lease counts as over when either clock says so: one may have stood still, the other may have been set.
func TestLeaseIsOverByEitherClock(t *testing.T) {
	t.Parallel()
	l := &lease{}
	l.renewed(time.Now(), time.Minute)
	if l.expired() {
		t.Error("a fresh lease is over")
	}
	l.renewed(time.Now().Add(-2*time.Minute), time.Minute)
	if !l.expired() {
		t.Error("an old lease holds")
	}
	wall := time.Now().Round(0).Add(-time.Second) // no monotonic reading, as after a sleep that it did not count
	l.until.Store(&wall)
	if !l.expired() {
		t.Error("the wall clock was not asked")
	}
}
