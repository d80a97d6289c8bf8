package outbox_test

import "fmt"

// The truth of the model: each group has applied exactly the messages that the rows of its topic said, each once, in the
// order of their positions in each partition.

type modelFaults struct {
	lost   int // passed over without a word
	stuck  int // never reached
	twice  int
	order  int // behind one with a higher position of its partition
	ghosts int // never on the topic in this history
	robbed int // rows were gone although the group had to be waited for
}

func (f modelFaults) none() bool { return f == modelFaults{} }

func (f modelFaults) String() string {
	return fmt.Sprintf("lost %d, stuck %d, twice %d, order %d, ghosts %d, robbed %d",
		f.lost, f.stuck, f.twice, f.order, f.ghosts, f.robbed)
}

// count compares what every group has committed with the rows.
func (f *modelFaults) count(r *modelRun) {
	if at := r.store.relay.cursor; at < r.store.highest {
		f.stuck++
		r.note("the relay has stopped at %d of %d", at, r.store.highest)
	}
	if n := len(r.store.relay.aside); n > 0 {
		f.stuck++
		r.note("FAULT %d sequences are still set aside: %v", n, r.store.relay.aside)
	}
	for _, i := range r.inboxes {
		f.countInbox(i)
	}
	for _, c := range r.consumers {
		g := c.stored()
		expected := map[modelMessage]bool{}
		for _, m := range r.store.written {
			if m.topic == g.topic && m.position > g.start {
				expected[m] = true
			}
		}
		settled := func(m modelMessage) bool {
			for _, gap := range g.gaps {
				if gap.partition == m.partition && m.position > gap.after && m.position <= gap.upTo {
					return true
				}
			}
			return false
		}
		seen := map[modelMessage]bool{}
		var last [modelPartitions]int64
		for _, m := range g.effects {
			switch {
			case !expected[m]:
				f.ghosts++
				r.note("FAULT %s applied %v, which is not on its topic", g.name, m)
			case seen[m]:
				f.twice++
				r.note("FAULT %s applied %v twice", g.name, m)
			case m.position < last[m.partition]:
				f.order++
				r.note("FAULT %s applied %v after %d", g.name, m, last[m.partition])
			}
			seen[m], last[m.partition] = true, max(last[m.partition], m.position)
		}
		for _, m := range r.store.written {
			switch {
			case !expected[m] || seen[m] || settled(m):
			case m.position > g.applied[m.partition]:
				f.stuck++
				r.note("FAULT %s never reached %v, it is at %v", g.name, m, g.applied)
			default:
				f.lost++
				r.note("FAULT %s passed over %v, it is at %v", g.name, m, g.applied)
			}
		}
	}
}

func (f *modelFaults) add(g modelFaults) {
	f.lost, f.stuck, f.twice = f.lost+g.lost, f.stuck+g.stuck, f.twice+g.twice
	f.order, f.ghosts, f.robbed = f.order+g.order, f.ghosts+g.ghosts, f.robbed+g.robbed
}
