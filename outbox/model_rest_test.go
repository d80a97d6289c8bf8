package outbox_test

// The end of a run: no more appends, nothing more goes wrong, and everything comes to rest or is stuck.

// rest lets everything finish that can: the broker stays as it is.
func (r *modelRun) rest() {
	r.broker.dead = false
	clear(r.bad)
	r.settle()
	r.note("no more appends; the safe head is %d", r.store.highest)
	for _, relay := range r.relays {
		relay.frozen = false
	}
	// A consumer that receives nothing asks the store after a dozen of these.
	for still, last := 0, (modelProgress{}); still < 50; still++ {
		for _, relay := range r.relays {
			relay.step()
		}
		r.relays[0].lead()
		for _, i := range r.inboxes {
			for range 20 { // what comes too early goes to the end, or not quite

				i.step()
			}
		}
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

// modelProgress changes whenever something moves that is not for ever.
type modelProgress struct {
	cursor  int64
	waiting int
	applied [4][modelPartitions]int64
	aside   int64
}

func (r *modelRun) progress() modelProgress {
	p := modelProgress{cursor: r.store.relay.cursor}
	for i, c := range r.consumers {
		for _, queue := range r.broker.queues[c.group] {
			p.waiting += len(queue)
		}
		p.waiting += len(c.buffer) + len(c.pending)
		p.applied[i] = c.stored().applied
	}
	for _, relay := range r.relays {
		p.waiting += len(relay.hand)
	}
	for _, a := range r.store.relay.aside {
		p.aside += 1 + a.at
	}
	for _, i := range r.inboxes {
		p.waiting += len(i.rows) + 1000*len(i.effects)
		for _, queue := range i.queues {
			p.waiting += len(queue)
		}
	}
	return p
}
