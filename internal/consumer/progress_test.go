package consumer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
)

// TestProgressIsWhatItsPartitionsAre compares a Progress with one plain number per partition, and its rows with a table.
func TestProgressIsWhatItsPartitionsAre(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const partitions = 5
		var p Progress
		plain := make([]int64, partitions)
		table := map[int32]int64{}
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			floor := rapid.Int64Range(0, 30).Draw(t, "floor")
			var marks []eventstore.Mark
			for range rapid.IntRange(0, 4).Draw(t, "marks") {
				marks = append(marks, eventstore.Mark{
					Partition: rapid.IntRange(0, partitions-1).Draw(t, "partition"),
					Position:  eventstore.PositionAt(rapid.Int64Range(1, 40).Draw(t, "position")),
				})
			}
			next := p.Raise(partitions, eventstore.PositionAt(floor), marks)
			for i := range plain {
				plain[i] = max(plain[i], floor)
			}
			for _, m := range marks {
				plain[m.Partition] = max(plain[m.Partition], m.Position.Ordinal())
			}
			if !next.Covers(p) || p.Covers(next) != same(p, next, partitions) {
				t.Fatalf("%+v to %+v: Covers is wrong", p, next)
			}
			apply(t, table, p.movesTo(next), next.floor)
			p = next
			lowest := plain[0]
			for i, want := range plain {
				lowest = min(lowest, want)
				if got := p.At(i).Ordinal(); got != want {
					t.Fatalf("partition %d is at %d, want %d", i, got, want)
				}
				if row, ok := table[int32(i)]; ok != (want > p.floor) || ok && row != want {
					t.Fatalf("the row of partition %d is %d %v, want %d beyond %d", i, row, ok, want, p.floor)
				}
			}
			if p.floor > lowest || len(marks) > 0 && p.floor != lowest {
				t.Fatalf("the floor is %d, the lowest partition %d", p.floor, lowest)
			}
		}
	})
}

func same(p, q Progress, partitions int) bool {
	for i := range partitions {
		if p.at(i) != q.at(i) {
			return false
		}
	}
	return true
}

// apply does to table what commit_batch does to checkpoints.
func apply(t *rapid.T, table map[int32]int64, m moves, floor int64) {
	for i, partition := range m.partitions {
		if table[partition] != m.before[i] {
			t.Fatalf("partition %d is at %d, the move is from %d", partition, table[partition], m.before[i])
		}
		switch {
		case m.after[i] <= floor:
			delete(table, partition)
		case m.after[i] <= m.before[i]:
			t.Fatalf("partition %d goes from %d to %d", partition, m.before[i], m.after[i])
		default:
			table[partition] = m.after[i]
		}
	}
}

func TestProgressCoversAFloor(t *testing.T) {
	t.Parallel()
	p := Progress{}.Raise(2, eventstore.PositionAt(5), []eventstore.Mark{{Partition: 0, Position: eventstore.PositionAt(9)}})
	for q, want := range map[int64]bool{5: true, 6: false} {
		if got := p.Covers(ProgressAt(eventstore.PositionAt(q))); got != want {
			t.Errorf("covers a floor of %d: %v, want %v", q, got, want)
		}
	}
	if !(Progress{}).IsZero() || p.IsZero() {
		t.Error("IsZero is wrong")
	}
}
