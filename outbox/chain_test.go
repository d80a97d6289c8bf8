package outbox

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		applied, previous, position int64
		want                        verdict
		why                         string
	}{
		{0, 0, 5, apply, "the first message of a chain"},
		{0, 3, 5, hole, "a first message that is not the first of its chain"},
		{5, 0, 5, drop, "a repeat of the last one"},
		{9, 3, 5, drop, "an old one"},
		{3, 3, 5, apply, "the next one"},
		{4, 3, 5, apply, "applied was moved by a head between the two"},
		{2, 3, 5, hole, "the one before is missing"},
		{5, 6, 5, drop, "a position that is applied is dropped whatever else it says"},
		{3, 5, 5, hole, "no message is its own previous: never applied unasked"},
	} {
		got := judge(eventstore.PositionAt(c.applied), eventstore.PositionAt(c.previous), eventstore.PositionAt(c.position))
		if got != c.want {
			t.Errorf("%s: judge(%d, %d, %d) = %v, want %v", c.why, c.applied, c.previous, c.position, got, c.want)
		}
	}
	if got := verdict(9).String(); got != "verdict(?)" {
		t.Errorf("an unknown verdict calls itself %q", got)
	}
}

// A consumer that follows the rule applies each message of a chain once and in order, whatever arrives.
func TestJudgeAppliesEachOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chain := []int64{0}
		for _, gap := range rapid.SliceOfN(rapid.Int64Range(1, 5), 1, 20).Draw(t, "gaps") {
			chain = append(chain, chain[len(chain)-1]+gap)
		}
		arrivals := rapid.SliceOfN(rapid.IntRange(1, len(chain)-1), 0, 60).Draw(t, "arrivals")
		applied, got := int64(0), []int64(nil)
		for _, i := range append(arrivals, len(chain)-1) {
			position, previous := chain[i], chain[i-1]
			verdict := judge(eventstore.PositionAt(applied), eventstore.PositionAt(previous), eventstore.PositionAt(position))
			switch verdict {
			case drop:
				continue
			case hole:
				for _, p := range chain {
					if p > applied && p <= previous {
						got, applied = append(got, p), p
					}
				}
			}
			got, applied = append(got, position), position
		}
		if len(got) != len(chain)-1 {
			t.Fatalf("applied %v of %v", got, chain[1:])
		}
		for i, p := range got {
			if p != chain[i+1] {
				t.Fatalf("applied %v, want %v", got, chain[1:])
			}
		}
	})
}
