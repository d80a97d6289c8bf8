package outbox_test

import (
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// The consumer of the model: a process with a bounded buffer in front of a group's committed state. What it has
// acknowledged and not committed is lost when it crashes, and filled from the outbox afterwards.

const (
	modelBuffer  = 8
	modelSilence = 25 // attempts to receive, after which the consumer asks the store
)

type modelConsumer struct {
	run     *modelRun
	group   string
	topic   int
	atHead  bool // starts at the safe head instead of 0
	begins  int  // step of its first start
	up      bool
	epoch   int
	quiet   int // steps without anything to do
	buffer  []modelEnvelope
	applied [modelPartitions]int64
	loaded  [modelPartitions]int64 // what is committed, as far as the process knows
	begun   [modelPartitions]bool

	pending []modelMessage // effects of the open transaction
	gaps    []modelGap
	half    bool // effects are committed, places are not: must never be
}

func (c *modelConsumer) stored() *modelGroup {
	for _, g := range c.run.store.groups {
		if g.name == c.group {
			return g
		}
	}
	panic("no group " + c.group)
}

// start loads what is committed. A first start is at 0 or, when asked for, at the safe head.
func (c *modelConsumer) start() {
	store, g := c.run.store, c.stored()
	c.run.broker.subscribe(c.group)
	if !g.registered {
		store.register(g)
		if c.atHead {
			g.start = store.safe(store.rules)
			g.applied = [modelPartitions]int64{g.start, g.start, g.start}
		}
	}
	*c = modelConsumer{
		run: c.run, group: c.group, topic: c.topic, atHead: c.atHead, begins: c.begins,
		up: true, epoch: store.epoch, applied: g.applied, loaded: g.applied,
	}
	for partition, applied := range g.applied {
		c.begun[partition] = applied > g.start
	}
	c.run.note("%s starts at %v", c.group, c.applied)
}

func (c *modelConsumer) crash() {
	c.run.note("%s crashes with %d received and %d not committed", c.group, len(c.buffer), len(c.pending))
	c.up, c.buffer, c.pending, c.gaps, c.half = false, nil, nil, nil, false
}

// step does one of the things that its process does in threads of their own.
func (c *modelConsumer) step() {
	if !c.up {
		return
	}
	switch c.run.random(5) {
	case 0, 1:
		for range 1 + c.run.random(3) {
			c.receive()
		}
	case 2, 3:
		for range min(len(c.buffer), 1+c.run.random(3)) {
			e := c.buffer[0]
			c.buffer = c.buffer[1:]
			c.process(e)
		}
	default:
		c.commit()
	}
	if c.quiet > modelSilence && !c.run.rules.silenceTrusted {
		c.quiet = 0
		for partition := range modelPartitions {
			if c.begun[partition] || !c.run.rules.startAnywhere || !c.atHead {
				c.fill(partition, c.run.store.safe(c.run.store.rules))
			}
		}
	}
}

// receive takes a message into the buffer and acknowledges it. When the buffer is full the oldest may go.
func (c *modelConsumer) receive() {
	if len(c.buffer) >= modelBuffer {
		if c.run.world.perfect || c.run.chance(50) {
			return
		}
		c.buffer = c.buffer[1:]
	}
	if e, ok := c.run.broker.receive(c.group); ok {
		c.buffer, c.quiet = append(c.buffer, e), 0
	} else if len(c.buffer) == 0 {
		c.quiet++
	}
}

// process is the chain rule.
func (c *modelConsumer) process(e modelEnvelope) {
	if e.epoch != c.epoch && !c.run.rules.noEpoch {
		c.run.note("%s drops %v of epoch %d", c.group, e, e.epoch)
		return
	}
	applied := &c.applied[e.partition]
	if c.run.rules.startAnywhere && c.atHead && !c.begun[e.partition] {
		*applied, c.begun[e.partition] = max(*applied, e.previous), true
	}
	verdict := c.judge(e)
	if verdict == outbox.ChainHole && !c.run.rules.holesDropped {
		c.run.fills++
		c.fill(e.partition, c.needs(e))
		verdict = c.judge(e)
	}
	c.run.note("%s at %d: %v after %d: %v", c.group, *applied, e.modelMessage, e.previous, verdict)
	if verdict != outbox.ChainApply {
		return
	}
	if !e.head && !e.skip {
		c.pending = append(c.pending, e.modelMessage)
	}
	*applied = e.position
}

func (c *modelConsumer) judge(e modelEnvelope) outbox.Verdict {
	applied, rules := c.applied[e.partition], c.run.rules
	v := outbox.JudgeChain(eventstore.PositionAt(applied), eventstore.PositionAt(c.needs(e)), eventstore.PositionAt(e.position))
	switch {
	case v == outbox.ChainHole && rules.holesIgnored, v == outbox.ChainDrop && rules.nothingDropped:
		return outbox.ChainApply
	case v == outbox.ChainApply && e.previous != applied && rules.onlyExact:
		return outbox.ChainDrop
	}
	return v
}

// needs: a marker is a hole that ends with its own position.
func (c *modelConsumer) needs(e modelEnvelope) int64 {
	if e.skip && !c.run.rules.markersPassed {
		return e.position
	}
	return e.previous
}

// fill applies what the rows say of (applied, upTo], in pages.
func (c *modelConsumer) fill(partition int, upTo int64) {
	store, rules := c.run.store, c.run.rules
	applied := &c.applied[partition]
	if rules.filledFromLog {
		c.take(store.between(*applied, upTo, c.topic, partition, store.routes[c.topic]))
		*applied = max(*applied, upTo)
	}
	for *applied < upTo {
		page := store.page(modelQuery{
			topic: c.topic, partition: partition, after: *applied, upTo: upTo, rows: 1 + c.run.random(4), limit: 1 + c.run.random(4),
		})
		switch {
		case page.cleaned > *applied && !rules.cleanedUnread:
			c.heal(partition, page.cleaned)
		case page.through <= *applied:
			return
		default:
			c.take(page.messages)
			*applied = page.through
		}
	}
}

func (c *modelConsumer) take(messages []modelMessage) { c.pending = append(c.pending, messages...) }

// heal goes on where rows may be gone: from the log when it has all that the topic had, else as the group's owner has
// settled it. To a group that cleaning has to wait for it must not happen.
func (c *modelConsumer) heal(partition int, cleaned int64) {
	store, g := c.run.store, c.stored()
	if !g.lost && cleaned > g.excused && c.epoch == store.epoch {
		c.run.faults.robbed++
		c.run.note("%s was not waited for: %d is cleaned", c.group, cleaned)
	}
	if g.lost {
		store.register(g)
	}
	applied := &c.applied[partition]
	c.run.note("%s has lost (%d, %d] of partition %d", c.group, *applied, cleaned, partition)
	if c.topic == modelEverything {
		c.take(store.between(*applied, cleaned, c.topic, partition, store.routes[c.topic]))
	} else {
		c.gaps = append(c.gaps, modelGap{partition, *applied, cleaned})
	}
	*applied = cleaned
}

// commit makes effects and places durable together, if the places are where the process found them, in the history that
// it has read.
func (c *modelConsumer) commit() {
	g, rules := c.stored(), c.run.rules
	if g.applied != c.loaded || c.epoch != c.run.store.epoch && !rules.commitWithoutEpoch {
		c.run.note("%s is refused: at %v of epoch %d", c.group, c.loaded, c.epoch)
		c.crash()
		c.start()
		return
	}
	if !c.half {
		g.effects, g.gaps = append(g.effects, c.pending...), append(g.gaps, c.gaps...)
		c.pending, c.gaps = nil, nil
		if rules.placesApart {
			c.half = true
			return
		}
	}
	g.applied, c.loaded, c.half = c.applied, c.applied, false
}
