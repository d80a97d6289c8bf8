package outbox_test

import (
	"cmp"
	"slices"
)

// The log of the model: appends that draw their positions between those of others and commit late, the rows that say
// what was published where, and the safe head.

const (
	modelPartitions = 3
	modelStreams    = 7 // a stream lies in partition stream % modelPartitions
	modelKinds      = 4 // of events; routes choose by it
	modelBlock      = 8 // positions; a row of the outbox never crosses its border
)

// The topics. Everything carries every event, so that the log can stand in for it. Chosen has a content filter that
// changes in the middle of a run, and messages of its own that are not in the log.
const (
	modelEverything = iota
	modelChosen
	modelTopics
	modelAny = -1 // topic or partition of a query
)

// modelChains has one number for each topic and partition.
type modelChains [modelTopics][modelPartitions]int64

// modelMessage is a message as its row says. No two messages of any history have the same content.
type modelMessage struct {
	position, content        int64
	topic, partition, stream int
}

type modelEvent struct {
	position, content int64
	kind              int
}

// modelRow says that versions from..to of a stream were published on a topic; or it has its own content.
type modelRow struct {
	first, last              int64
	topic, partition, stream int
	from, to                 int
	own                      int64
}

// modelRoute has a bit for each kind of event that it accepts.
type modelRoute uint

func (r modelRoute) accepts(kind int) bool { return r>>kind&1 == 1 }

// modelAppend is an open transaction: it has registered where the sequence stood, and draws one position at a time.
type modelAppend struct {
	registered       int64
	stream           int
	events, commands int // still to be drawn
	routes           [modelTopics]modelRoute
	drawn, own       []modelEvent
}

// modelLog holds what is committed, and what is not yet.
type modelLog struct {
	streams  [modelStreams][]modelEvent // version v is at v-1
	rows     []modelRow                 // by first position, then topic
	written  []modelMessage             // what the rows ever said, also those that are gone
	highest  int64                      // committed position
	sequence int64
	routes   [modelTopics]modelRoute
	open     []*modelAppend
}

// begin registers an append, unless another one holds the head of its stream.
func (l *modelLog) begin(stream, events, commands int) {
	if slices.ContainsFunc(l.open, func(a *modelAppend) bool { return a.stream == stream }) {
		return
	}
	l.open = append(l.open, &modelAppend{
		registered: l.sequence, stream: stream, events: events, commands: commands, routes: l.routes,
	})
}

// draw gives the append its next position: of an event while there are any, then of a message of its own. It reports
// whether there was one to draw.
func (l *modelLog) draw(a *modelAppend, content int64, kind int) bool {
	e := modelEvent{position: l.sequence + 1, content: content, kind: kind}
	switch {
	case a.events > 0:
		a.events--
		a.drawn = append(a.drawn, e)
	case a.commands > 0:
		a.commands--
		a.own = append(a.own, e)
	default:
		return false
	}
	l.sequence++
	return true
}

// end forgets a transaction, which gives its positions up unless it was committed.
func (l *modelLog) end(a *modelAppend) {
	l.open = slices.DeleteFunc(l.open, func(o *modelAppend) bool { return o == a })
}

// commit makes events and rows visible together: a row for each topic, contiguous run of accepted versions, and block.
func (l *modelLog) commit(a *modelAppend, rules modelRules) {
	partition := a.stream % modelPartitions
	base := len(l.streams[a.stream])
	l.streams[a.stream] = append(l.streams[a.stream], a.drawn...)
	for topic, route := range a.routes {
		run := -1
		for i, e := range a.drawn {
			if !route.accepts(e.kind) {
				run = -1
				continue
			}
			version := base + i + 1
			if run >= 0 && (rules.rowsCrossBlocks || l.rows[run].first/modelBlock == e.position/modelBlock) {
				l.rows[run].last, l.rows[run].to = e.position, version
			} else {
				run = len(l.rows)
				l.rows = append(l.rows, modelRow{
					first: e.position, last: e.position, topic: topic, partition: partition, stream: a.stream, from: version, to: version,
				})
			}
			l.write(e, topic, a.stream)
		}
	}
	for _, e := range a.own {
		l.rows = append(l.rows, modelRow{
			first: e.position, last: e.position, topic: modelChosen, partition: partition, stream: a.stream, own: e.content,
		})
		l.write(e, modelChosen, a.stream)
	}
	for _, e := range slices.Concat(a.drawn, a.own) {
		l.highest = max(l.highest, e.position)
	}
	slices.SortFunc(l.rows, func(a, b modelRow) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.topic, b.topic))
	})
	l.end(a)
}

func (l *modelLog) write(e modelEvent, topic, stream int) {
	l.written = append(l.written, modelMessage{
		position: e.position, content: e.content, topic: topic, partition: stream % modelPartitions, stream: stream,
	})
}

// safe is the position at or below which nothing can still appear.
func (l *modelLog) safe(rules modelRules) int64 {
	safe := l.highest
	if rules.unsafeHead {
		return safe
	}
	for _, a := range l.open {
		safe = min(safe, a.registered)
	}
	return safe
}

// between reads the events of a partition from the log itself, as if all of them were on the topic that accepts them.
func (l *modelLog) between(after, upTo int64, topic, partition int, route modelRoute) []modelMessage {
	var found []modelMessage
	for stream := partition; stream < modelStreams; stream += modelPartitions {
		for _, e := range l.streams[stream] {
			if e.position > after && e.position <= upTo && route.accepts(e.kind) {
				found = append(found, modelMessage{e.position, e.content, topic, partition, stream})
			}
		}
	}
	slices.SortFunc(found, func(a, b modelMessage) int { return cmp.Compare(a.position, b.position) })
	return found
}

func (l *modelLog) clone() modelLog {
	c := *l
	for i := range c.streams {
		c.streams[i] = slices.Clone(c.streams[i])
	}
	c.rows, c.written, c.open = slices.Clone(c.rows), slices.Clone(c.written), nil
	return c
}
