package outbox_test

import "slices"

// What the relay of the model sets aside: the sequence of a message that the broker refused, from that message on.

// modelAside is a sequence that is set aside.
type modelAside struct {
	topic, stream int
	letter        bool // at is the position of the message that was refused; otherwise all up to it is done
	discarded     bool // the letter
	at            int64
	previous      int64 // a message of the chain before what comes next
}

// needed is how far rows may go.
func (a modelAside) needed() int64 {
	if a.letter {
		return a.at - 1
	}
	return a.at
}

// modelAgain is a message on its way for another time.
type modelAgain struct {
	of     int // of aside
	sent   bool
	marker modelEnvelope
}

func (r *modelRelay) find(e modelEnvelope) int {
	return slices.IndexFunc(r.aside, func(a modelAside) bool { return a.topic == e.topic && a.stream == e.stream })
}

// send publishes what is in hand, or what stands in its place.
func (r *modelRelay) send(e modelEnvelope) {
	rules := r.run.rules
	if e.head {
		r.run.broker.publish(e)
		return
	}
	if at := r.find(e); at >= 0 && (e.position >= r.aside[at].at || rules.asideByKey) && !rules.nothingQueues {
		r.mark(e)
		return
	}
	if r.run.broker.publish(e) {
		return
	}
	if at := r.find(e); at < 0 { // else a letter of its own, which stands behind the first
		r.aside = append(r.aside, modelAside{topic: e.topic, stream: e.stream, letter: true, at: e.position, previous: e.previous})
	} else if rules.nothingQueues {
		r.hand = slices.Insert(r.hand, 1, e) // tried in its place, without end
		return
	}
	r.run.note("%s sets aside stream %d of topic %d from %d on", r.name, e.stream, e.topic, e.position)
	r.mark(e)
}

func (r *modelRelay) mark(e modelEnvelope) {
	e.skip = true
	if r.run.rules.chainRelinked && r.again == nil {
		for i := range r.hand {
			if h := &r.hand[i]; h.topic == e.topic && h.partition == e.partition && h.previous == e.position {
				h.previous = e.previous
			}
		}
		if tail := &r.tails[e.topic][e.partition]; *tail == e.position {
			*tail = e.previous
		}
		return
	}
	if !r.run.rules.noMarkers {
		r.run.broker.publish(e)
	}
}

// resume takes up one of the sequences: its letter, or what is queued behind.
func (r *modelRelay) resume() {
	run := r.run
	at := run.random(len(r.aside))
	a := &r.aside[at]
	query := modelQuery{topic: a.topic, partition: a.stream % modelPartitions, after: a.at, upTo: r.cursor, rows: 1 + run.random(3), limit: 1 + run.random(3)}
	if a.letter {
		query.after, query.upTo, query.rows, query.limit = a.at-1, a.at, 1, 1
	}
	if query.after >= query.upTo {
		r.release(at)
		return
	}
	page := run.store.page(query)
	if page.cleaned > query.after {
		if run.store.relay.fence == r.fence && run.store.epoch == r.epoch {
			run.faults.robbed++
			run.note("FAULT %s has %v set aside, and %d is cleaned", r.name, *a, page.cleaned)
			r.release(at)
			return
		}
		*r = modelRelay{run: run, name: r.name, tails: r.tails}
		return
	}
	for _, m := range page.messages {
		if m.stream == a.stream {
			r.again = &modelAgain{of: at, marker: modelEnvelope{modelMessage: m, epoch: r.epoch, previous: a.previous, skip: true}}
			return
		}
		a.previous = m.position
	}
	if a.at = page.through; a.at >= r.cursor {
		r.release(at)
	}
}

func (r *modelRelay) release(at int) {
	r.run.note("%s releases %v", r.name, r.aside[at])
	r.aside = slices.Delete(r.aside, at, at+1)
	r.keep()
}

// keep commits what is set aside, at the same cursor.
func (r *modelRelay) keep() {
	r.again = nil
	r.through, r.changed = r.cursor, [modelTopics][modelPartitions]bool{}
	r.commit()
}

// redrive publishes the marker, then the message, then commits.
func (r *modelRelay) redrive() {
	a, e := &r.aside[r.again.of], r.again.marker
	if !r.again.sent {
		r.again.sent = true
		r.mark(e)
		return
	}
	if e.redriven = true; !a.discarded {
		e.skip = false
	}
	r.run.redriven++
	switch {
	case e.skip && r.run.rules.discardUntold:
	case r.run.broker.publish(e):
	default: // the letter goes on, or a new one begins
		a.letter, a.at, a.previous = true, e.position, e.previous
		r.keep()
		return
	}
	*a = modelAside{topic: a.topic, stream: a.stream, at: e.position, previous: e.position}
	if r.run.rules.releasedAtOnce {
		r.release(r.again.of)
		return
	}
	r.keep()
}

// operate is what people do: mend what a message is refused for, or give the message up.
func (r *modelRun) operate() {
	switch n := r.random(1000); {
	case n < 6:
		first := int64(0)
		for content := range r.bad {
			if first == 0 || content < first {
				first = content
			}
		}
		delete(r.bad, first)
	case n < 10 && len(r.store.relay.aside) > 0:
		at := r.random(len(r.store.relay.aside))
		a := r.store.relay.aside[at]
		if !a.letter {
			return
		}
		for _, m := range r.store.written {
			if m.topic == a.topic && m.stream == a.stream && m.position == a.at {
				r.discarded[m.content] = true
				r.note("%v is discarded", m)
			}
		}
		r.store.relay.rev++
		r.store.relay.aside = slices.Clone(r.store.relay.aside)
		r.store.relay.aside[at].discarded = true
	}
}
