package outbox_test

// Openings: what chance brings about too seldom, played before everything else.

// appends lets so many steps of appends happen, and ends them all.
func (r *modelRun) appends(steps int) {
	for range steps {
		r.append()
	}
	r.settle()
}

// work lets the relay do so many steps.
func (r *modelRelay) work(steps int) {
	for range steps {
		r.step()
	}
}

// thaw lets a frozen relay end the page that it has in hand, and then crash.
func (r *modelRelay) thaw() {
	r.frozen = false
	for r.owner && r.reading {
		r.step()
	}
	r.crash()
}

// subscribe starts the consumers that are there from the beginning; they have no turn yet.
func (r *modelRun) subscribe() {
	for _, c := range r.consumers {
		if c.begins == 0 {
			c.start()
		}
	}
}

// frozenOverTakeover: a relay stands still with a page in hand. The next one is far ahead when the first goes on, of which
// the broker brings nothing, and crashes after it has moved its cursor once more.
func (r *modelRun) frozenOverTakeover() {
	frozen, next := r.relays[0], r.relays[1]
	r.subscribe()
	r.appends(50)
	frozen.take()
	frozen.read()
	frozen.frozen = true
	r.appends(100)
	next.take()
	r.broker.dead = true
	next.work(100)
	r.broker.dead = false
	frozen.thaw()
	r.appends(10)
	next.work(10)
	next.crash()
}

// frozenOverRestore: a relay takes over after a backup, reads a page and stands still while the database goes back. The
// next takeover then has the number of its own, at the cursor that it has read from.
func (r *modelRun) frozenOverRestore() {
	frozen, next := r.relays[0], r.relays[1]
	r.appends(150)
	frozen.take()
	frozen.work(100)
	r.backup = r.store.clone()
	r.appends(150)
	frozen.take()
	frozen.read()
	frozen.frozen = true
	r.restore()
	r.appends(150)
	next.take()
	frozen.thaw()
	next.crash()
}

// frozenOverCleaning: a relay stands still with nothing in hand. When it goes on, what its page would begin with has been
// sent by another and cleaned, and groups have come that were not waited for.
func (r *modelRun) frozenOverCleaning() {
	frozen, next := r.relays[0], r.relays[1]
	frozen.take()
	frozen.frozen = true
	r.appends(100)
	next.take()
	next.work(100)
	r.store.raiseCleaned()
	r.store.dropRows()
	r.subscribe()
	r.appends(20)
	frozen.frozen = false
	frozen.work(10)
	frozen.crash()
}
