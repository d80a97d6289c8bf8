package outbox

import "fmt"

// The end of a run: no more appends, nothing more goes wrong, and everything comes to rest or is stuck.

// rest lets everything finish that can: the broker stays as it is.
func (r *modelRun) rest() {
	r.broker.dead = false
	r.settle()
	r.note("no more appends; the safe head is %d", r.store.highest)
	for _, relay := range r.relays {
		relay.frozen = false
	}
	for still, last := 0, ""; still < 100; still++ {
		for _, relay := range r.relays {
			relay.step()
		}
		r.relays[0].lead()
		for _, c := range r.consumers {
			if !c.up {
				c.start()
			}
			for range 3 {
				c.step()
			}
		}
		if !r.world.perfect && r.chance(5) {
			r.clean()
		}
		if now := r.progress(); now != last {
			still, last = 0, now
		}
	}
}

// settle commits what is open.
func (r *modelRun) settle() {
	for len(r.store.open) > 0 {
		a := r.store.open[0]
		for r.store.draw(a, r.contents+1, r.random(modelKinds)) {
			r.contents++
		}
		r.store.commit(a, r.rules)
	}
}

// progress changes whenever something moves that is not for ever.
func (r *modelRun) progress() string {
	var waiting int
	var applied [][modelPartitions]int64
	for _, c := range r.consumers {
		for _, queue := range r.broker.queues[c.group] {
			waiting += len(queue)
		}
		waiting += len(c.buffer) + len(c.pending)
		applied = append(applied, c.stored().applied)
	}
	for _, relay := range r.relays {
		waiting += len(relay.hand)
	}
	return fmt.Sprint(r.store.relay.cursor, waiting, applied)
}
