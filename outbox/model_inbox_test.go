package outbox_test

import (
	"slices"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox/inbox"
)

// The inbox of the model: a consumer in a database of its own, which has nothing but what the broker brings. The broker
// delivers to it at least once: it repeats and shuffles, and loses nothing that it took.

type modelInbox struct {
	run     *modelRun
	name    string
	topic   int
	queues  [modelPartitions][]modelEnvelope
	applied [modelPartitions]int64
	rows    []modelSkipped
	effects []modelMessage
	late    []modelSkipped // rows that are written in a transaction of their own, where a rule says so
}

// modelSkipped is a row of a message that has not had its turn.
type modelSkipped struct {
	modelMessage
	bytes bool
}

func newModelInbox(run *modelRun, name string, topic int) *modelInbox {
	return &modelInbox{run: run, name: name, topic: topic}
}

func (b *modelBroker) deliverInboxes(e modelEnvelope) {
	for _, i := range b.run.inboxes {
		if i.topic != e.topic {
			continue
		}
		copies := 1
		if b.run.chance(10) {
			copies = 2
		}
		for range copies {
			i.put(e, 25)
		}
	}
}

// put queues a message, at its place or before others.
func (i *modelInbox) put(e modelEnvelope, shuffled int) {
	queue := append(i.queues[e.partition], e)
	if last := len(queue) - 1; i.run.chance(shuffled) {
		other := last - i.run.random(min(last, 8)+1)
		queue[last], queue[other] = queue[other], queue[last]
	}
	i.queues[e.partition] = queue
}

// step takes a message and commits what the rules say, or crashes before, or after.
func (i *modelInbox) step() {
	partition := i.run.random(modelPartitions)
	if len(i.queues[partition]) == 0 {
		return
	}
	if len(i.late) > 0 {
		if i.run.chance(90) {
			i.rows = append(i.rows, i.late...)
		}
		i.late = nil
	}
	e := i.queues[partition][0]
	i.queues[partition] = i.queues[partition][1:]
	if i.run.chance(3) { // crashes before it commits
		i.put(e, 50)
		return
	}
	if !i.take(e) || i.run.chance(5) { // or before it acknowledges
		i.put(e, 50)
	}
}

// take reports whether the message is done with.
func (i *modelInbox) take(e modelEnvelope) bool {
	applied := &i.applied[e.partition]
	verdict := i.judge(e)
	i.run.note("%s at %d: %v after %d, skip %v, redriven %v: %v", i.name, *applied, e.modelMessage, e.previous, e.skip, e.redriven, verdict)
	switch verdict {
	case inbox.Apply:
		*applied = e.position
		if !e.head {
			i.effects = append(i.effects, e.modelMessage)
		}
	case inbox.Skip, inbox.Join:
		*applied = e.position
		row := modelSkipped{e.modelMessage, verdict == inbox.Join}
		if i.run.rules.rowsApart {
			i.late = append(i.late, row)
		} else {
			i.rows = append(i.rows, row)
		}
	case inbox.Settle:
		i.effects = append(i.effects, e.modelMessage)
		i.remove(e)
	case inbox.Forget:
		i.remove(e)
	case inbox.Await:
		if i.run.chance(50) {
			return false
		}
		i.rows[i.find(e)].bytes = true
	case inbox.Early:
		return false
	}
	return true
}

func (i *modelInbox) find(e modelEnvelope) int {
	return slices.IndexFunc(i.rows, func(s modelSkipped) bool { return s.position == e.position && s.stream == e.stream })
}

// lowest is the first row of a key.
func (i *modelInbox) lowest(stream int) int {
	lowest := -1
	for at, s := range i.rows {
		if s.stream == stream && (lowest < 0 || s.position < i.rows[lowest].position) {
			lowest = at
		}
	}
	return lowest
}

// remove deletes a row and applies those behind it that have their bytes.
func (i *modelInbox) remove(e modelEnvelope) {
	if at := i.find(e); at >= 0 {
		i.rows = slices.Delete(i.rows, at, at+1)
	}
	for at := i.lowest(e.stream); at >= 0 && i.rows[at].bytes; at = i.lowest(e.stream) {
		i.effects = append(i.effects, i.rows[at].modelMessage)
		i.rows = slices.Delete(i.rows, at, at+1)
	}
}

func (i *modelInbox) judge(e modelEnvelope) inbox.Verdict {
	rules := i.run.rules
	known := inbox.Known{Applied: eventstore.PositionAt(i.applied[e.partition]), Own: i.find(e) >= 0}
	if at := i.lowest(e.stream); at >= 0 {
		known.Lowest = eventstore.PositionAt(i.rows[at].position)
	}
	arrival := inbox.Arrival{
		Position: eventstore.PositionAt(e.position), Previous: eventstore.PositionAt(e.previous), Head: e.head, Skip: e.skip, Redriven: e.redriven,
	}
	switch {
	case rules.redrivenByChain && e.redriven, rules.rowsForRedriven && !e.redriven:
		known.Own, arrival.Redriven = false, false
	case rules.notJoined && !known.Own:
		known.Lowest = eventstore.Position{}
	}
	v := inbox.Judge(arrival, known)
	switch {
	case v == inbox.Await && rules.redrivenUnordered:
		return inbox.Settle
	case v == inbox.Early && e.redriven && !e.skip && rules.redrivenAtOnce:
		return inbox.Apply
	}
	return v
}

// countInbox compares an inbox with the rows of its topic. What was discarded may be missing, and the order is that of keys.
func (f *modelFaults) countInbox(i *modelInbox) {
	r := i.run
	seen := map[int64]bool{}
	var last [modelStreams]int64
	for _, m := range i.effects {
		switch {
		case m.topic != i.topic:
			f.ghosts++
		case seen[m.content]:
			f.twice++
			r.note("FAULT %s applied %v twice", i.name, m)
		case m.position < last[m.stream]:
			f.order++
			r.note("FAULT %s applied %v after %d", i.name, m, last[m.stream])
		}
		seen[m.content], last[m.stream] = true, max(last[m.stream], m.position)
	}
	for _, s := range i.rows {
		if !r.discarded[s.content] || !seen[s.content] {
			f.stuck++
			r.note("FAULT %s has a row of %v left", i.name, s)
		}
	}
	for _, m := range r.store.written {
		switch {
		case m.topic != i.topic || seen[m.content] || r.discarded[m.content]:
		case m.position > i.applied[m.partition]:
			f.stuck++
			r.note("FAULT %s never reached %v, it is at %v", i.name, m, i.applied)
		case !slices.ContainsFunc(i.rows, func(s modelSkipped) bool { return s.content == m.content }):
			f.lost++
			r.note("FAULT %s passed over %v, it is at %v", i.name, m, i.applied)
		}
	}
}
