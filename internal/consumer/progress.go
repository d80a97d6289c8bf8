package consumer

import (
	"slices"

	"github.com/daybook-go/daybook/eventstore"
)

// Progress is what a consumer has applied: everything at or below the floor, and in single partitions more. A log is
// read in one order, so that there only the floor moves; the partitions of a published stream move by themselves. The
// zero Progress is before everything. A Progress is immutable.
type Progress struct {
	floor int64
	ahead []int64 // by partition, 0 where nothing lies beyond the floor; nil when nothing does anywhere
}

// ProgressAt is everything at or below a position, in all partitions.
func ProgressAt(floor eventstore.Position) Progress { return Progress{floor: floor.Ordinal()} }

// Floor is the position up to which all partitions are applied.
func (p Progress) Floor() eventstore.Position { return eventstore.PositionAt(p.floor) }

// At is the position up to which one partition is applied.
func (p Progress) At(partition int) eventstore.Position {
	return eventstore.PositionAt(p.at(partition))
}

func (p Progress) at(partition int) int64 {
	if partition < len(p.ahead) {
		return max(p.floor, p.ahead[partition])
	}
	return p.floor
}

// IsZero reports whether nothing was ever applied.
func (p Progress) IsZero() bool { return p.floor == 0 && p.ahead == nil }

// Covers reports whether everything that q holds is in p.
func (p Progress) Covers(q Progress) bool {
	if p.floor < q.floor && (p.ahead == nil || slices.ContainsFunc(p.ahead, func(at int64) bool { return at < q.floor })) {
		return false
	}
	for partition := range q.ahead {
		if p.at(partition) < q.at(partition) {
			return false
		}
	}
	return true
}

// Raise returns p with all partitions at least at a floor, and those of marks at least at theirs. When every one of the
// partitions lies beyond the floor, the floor follows.
func (p Progress) Raise(partitions int, floor eventstore.Position, marks []eventstore.Mark) Progress {
	next := Progress{floor: max(p.floor, floor.Ordinal()), ahead: p.ahead}
	if len(marks) > 0 {
		next.ahead = make([]int64, partitions)
		copy(next.ahead, p.ahead)
		for _, m := range marks {
			next.ahead[m.Partition] = max(next.ahead[m.Partition], m.Position.Ordinal())
		}
	} else if p.ahead == nil || next.floor == p.floor {
		return next
	} else {
		next.ahead = slices.Clone(p.ahead)
	}
	return next.settle()
}

// settle lifts the floor to the lowest partition, and forgets partitions that are not beyond it.
func (p Progress) settle() Progress {
	if lowest := slices.Min(p.ahead); lowest > p.floor {
		p.floor = lowest
	}
	some := false
	for partition, at := range p.ahead {
		if at <= p.floor {
			p.ahead[partition] = 0
		} else {
			some = true
		}
	}
	if !some {
		p.ahead = nil
	}
	return p
}

// moves are the rows that lead from one progress to another, as commit_batch takes them: 0 stands for no row, and a row
// that is not beyond the new floor goes.
type moves struct {
	topics        []string
	partitions    []int32
	before, after []int64
}

func (p Progress) movesTo(next Progress) moves {
	m := moves{topics: []string{}, partitions: []int32{}, before: []int64{}, after: []int64{}}
	for partition := range max(len(p.ahead), len(next.ahead)) {
		var before, after int64
		if partition < len(p.ahead) {
			before = p.ahead[partition]
		}
		if partition < len(next.ahead) {
			after = next.ahead[partition]
		}
		if before == after {
			continue
		}
		m.topics = append(m.topics, "")
		m.partitions = append(m.partitions, int32(partition))
		m.before = append(m.before, before)
		m.after = append(m.after, max(after, before)) // a row that goes is named by where it is
	}
	return m
}
