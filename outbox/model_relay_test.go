package outbox_test

import "slices"

// The relay of the model: one process of several. It owns the stream by a lease that it may lose without noticing,
// publishes a page message by message, and then moves its cursor and its tails together.

// modelEnvelope is a message as it is published. Epoch, position and previous are facts of the log: whoever publishes it
// again sends the same.
type modelEnvelope struct {
	modelMessage
	epoch    int
	previous int64
	head     bool // no message, but nothing lies between previous and position
	skip     bool // no message, but what stands in the place of one that is set aside
	redriven bool // later than in its place; of a marker: it never comes
}

type modelRelay struct {
	run    *modelRun
	name   string
	frozen bool // stands still, and goes on later as if nothing had happened
	owner  bool // as it believes
	epoch  int
	fence  int

	cursor  int64
	tails   modelChains // position of the last message of each chain
	known   modelChains // what messages and heads have told so far
	changed [modelTopics][modelPartitions]bool

	reading bool // a page is in hand
	hand    []modelEnvelope
	through int64

	aside []modelAside // with what is not committed yet
	rev   int
	again *modelAgain // what is redriven
}

// take is the takeover: a new fence first, then the place as it was committed.
func (r *modelRelay) take() {
	store := r.run.store
	store.relay.fence++
	tails := store.relay.tails
	if r.run.rules.tailsInMemory {
		tails = r.tails
	}
	*r = modelRelay{
		run: r.run, name: r.name, owner: true, epoch: store.epoch, fence: store.relay.fence,
		cursor: store.relay.cursor, tails: tails, known: tails, aside: slices.Clone(store.relay.aside), rev: store.relay.rev,
	}
	if r.run.rules.asideForgotten {
		r.aside = nil
	}
	r.run.note("%s takes over at %d with fence %d", r.name, r.cursor, r.fence)
}

// lead takes the lease if nobody renews it. To renew it is to have the fence.
func (r *modelRelay) lead() {
	row := r.run.store.relay
	for _, other := range r.run.relays {
		if other.owner && !other.frozen && other.fence == row.fence && other.epoch == r.run.store.epoch {
			return
		}
	}
	if !r.frozen {
		r.take()
	}
}

func (r *modelRelay) crash() {
	r.run.note("%s crashes with %d in hand", r.name, len(r.hand))
	*r = modelRelay{run: r.run, name: r.name}
}

// step goes on for a while, and may stop anywhere.
func (r *modelRelay) step() {
	for range 1 + r.run.random(8) {
		switch {
		case r.frozen || !r.owner:
			return
		case r.again != nil:
			r.redrive()
		case !r.reading && len(r.aside) > 0 && r.run.chance(30):
			r.resume()
		case !r.reading:
			r.read()
		case len(r.hand) > 0:
			r.send(r.hand[0])
			r.hand = r.hand[1:]
		default:
			r.reading = false
			if !r.run.rules.cursorFirst {
				r.commit()
			}
		}
	}
}

// read takes the next page in hand, each message with the position of the one before it in its chain.
func (r *modelRelay) read() {
	run := r.run
	page := run.store.page(modelQuery{
		topic: modelAny, partition: modelAny, after: r.cursor, rows: 1 + run.random(4), limit: 1 + run.random(6),
	})
	if page.cleaned > r.cursor && !run.rules.relayTrustsRows {
		// Cleaning never passes the owner's cursor: another relay works, and rows are missing that the chain needs.
		run.note("%s steps down: at %d, and %d is cleaned", r.name, r.cursor, page.cleaned)
		*r = modelRelay{run: run, name: r.name, tails: r.tails}
		return
	}
	if page.through <= r.cursor {
		return
	}
	r.reading, r.through, r.changed = true, page.through, [modelTopics][modelPartitions]bool{}
	for _, m := range page.messages {
		previous := r.tails[m.topic][m.partition]
		switch {
		case run.rules.previousFromPage:
			previous = r.cursor
		case run.rules.previousFromCursor:
			previous = max(previous, r.cursor)
		}
		r.hand = append(r.hand, modelEnvelope{modelMessage: m, epoch: r.epoch, previous: previous})
		r.tails[m.topic][m.partition], r.known[m.topic][m.partition] = m.position, m.position
		r.changed[m.topic][m.partition] = true
	}
	run.note("%s reads (%d, %d]: %d messages", r.name, r.cursor, r.through, len(page.messages))
	if !run.rules.noHeads && run.chance(30) {
		r.heads()
	}
	if run.rules.cursorFirst {
		r.commit()
	}
}

// heads says of every chain that it has nothing more up to the end of the page.
func (r *modelRelay) heads() {
	position := r.through
	if r.run.rules.headsBeyondSent {
		position = r.run.store.safe(r.run.rules)
	}
	for topic := range r.known {
		for partition, known := range r.known[topic] {
			if known >= position {
				continue
			}
			r.hand = append(r.hand, modelEnvelope{
				modelMessage: modelMessage{position: position, topic: topic, partition: partition, stream: partition},
				epoch:        r.epoch, previous: r.tails[topic][partition], head: true,
			})
			r.known[topic][partition] = position
			if r.run.rules.headIsPrevious {
				r.tails[topic][partition], r.changed[topic][partition] = position, true
			}
		}
	}
}

// commit moves cursor and tails in one transaction that only the owner can commit. Of the tails only those are written
// that have changed.
func (r *modelRelay) commit() {
	store, rules := r.run.store, r.run.rules
	row := &store.relay
	fenced := row.fence != r.fence || row.cursor != r.cursor || row.cursor > r.through || row.rev != r.rev
	if store.epoch != r.epoch && !rules.fenceWithoutEpoch {
		fenced = true
	}
	if fenced && !rules.noFence {
		r.run.note("%s is refused: fence %d, cursor %d", r.name, r.fence, r.cursor)
		*r = modelRelay{run: r.run, name: r.name, tails: r.tails}
		return
	}
	row.cursor = r.through
	for topic := range r.changed {
		for partition, changed := range r.changed[topic] {
			if changed {
				row.tails[topic][partition] = r.tails[topic][partition]
			}
		}
	}
	r.cursor, row.aside = r.through, slices.Clone(r.aside)
}
