package outbox

import (
	"fmt"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// blame is who a refusal is put down to.
type blame uint8

const (
	blameNobody blame = iota // it was taken after all
	blameBroker              // environment: everything waits
	blameTopic               // the broker takes others, and nothing on this topic
	blameMessage
)

// takenOn is when the broker has last taken something on a topic.
type takenOn struct {
	topic string
	at    time.Time
}

// takenTopics is when the broker last took something on each topic, in all segments of the process.
type takenTopics struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (t *takenTopics) note(l *lanes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range l.all {
		for _, on := range at.topics {
			if t.at == nil {
				t.at = map[string]time.Time{}
			}
			if on.at.After(t.at[on.topic]) {
				t.at[on.topic] = on.at
			}
		}
	}
}

// since reports whether something was taken on another topic since a time.
func (t *takenTopics) since(other string, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic, when := range t.at {
		if topic != other && when.After(at) {
			return true
		}
	}
	return false
}

// others are topics on which something was taken, or may be.
func (t *takenTopics) others(topic string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for o := range t.at {
		if o != topic && len(all) < mostOthers {
			all = append(all, o)
		}
	}
	return all
}

// mostOthers bounds how many topics are asked for one refusal.
const mostOthers = 3

// judge finds out who is to blame for the refusal of a lane's next job.
func (l *publishing) judge(at *lane) (blame, eventstore.FailureKind) {
	j := at.jobs[at.next]
	if l.cfg.Classify != nil {
		kind := l.classify(at.err.Err)
		switch {
		case kind == eventstore.Environment || l.crowded(&j):
			return blameBroker, eventstore.Environment
		case !j.isMessage(): // what says nothing of its own is not worth a wait
			return blameTopic, kind
		}
		return blameMessage, kind
	}
	began := time.Now()
	if at.tries == 1 { // a connection that broke while it rested, say
		if at.err = l.lanes.try(at); at.err == nil {
			return blameNobody, eventstore.Transient
		}
	}
	switch {
	case l.crowded(&j):
	case j.isMessage() && l.probe(at, j):
		// The broker is well now. Was it so when it refused?
		if at.err = l.lanes.try(at); at.err == nil {
			return blameNobody, eventstore.Transient
		}
		return blameMessage, eventstore.Transient
	case l.takesOthers(at, j, began):
		return blameTopic, eventstore.Transient
	}
	return blameBroker, eventstore.Environment
}

// classify takes a panic of the user's for a word about the environment: nothing is set aside for it.
func (l *publishing) classify(err error) (kind eventstore.FailureKind) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("Config.Classify panicked: the relay waits instead", "panic", fmt.Sprint(p))
			kind = eventstore.Environment
		}
	}()
	return l.cfg.Classify(err)
}

// probe publishes something that does no harm on the topic and partition of a message that was refused: how far its chain
// reaches, or, where its predecessor is right before it, the marker that would stand in its place.
func (l *publishing) probe(at *lane, j job) bool {
	p := job{message: j.message, topic: j.topic, partition: j.partition, position: j.position, previous: j.previous, as: asSkip}
	if before := eventstore.PositionAt(j.position.Ordinal() - 1); j.previous.Before(before) {
		p = job{topic: j.topic, partition: j.partition, position: before, previous: j.previous}
	}
	return l.lanes.send(at, p) == nil
}

// takesOthers finds out whether the broker takes something on another topic: what comes next there, or how far another
// chain reaches.
func (l *publishing) takesOthers(at *lane, j job, began time.Time) bool {
	if l.took.since(j.topic, began) {
		return true
	}
	asked := 0
	for i := at.next + 1; i < len(at.jobs) && asked < mostOthers; i++ {
		other := &at.jobs[i]
		if other.done || other.topic == j.topic || !l.firstOfChain(at, i) {
			continue
		}
		asked++
		if l.lanes.send(at, *other) == nil {
			other.done = true
			return true
		}
	}
	for _, topic := range l.took.others(j.topic) {
		if head, some := l.headFor(topic, j.partition); some && l.lanes.send(at, head) == nil {
			return true
		}
	}
	return false
}

// headFor is a head of a topic that does no harm: of a partition, or, where that ends with a message, of another one.
func (l *publishing) headFor(topic string, partition int) (head job, some bool) {
	for p := l.first - 1; p <= min(l.last, l.rows.Partitions()-1); p++ {
		head = job{topic: topic, partition: p}
		if p < l.first {
			head.partition = partition
		}
		if head.position, head.previous = l.headOf(topic, head.partition); head.previous.Before(head.position) {
			return head, true
		}
	}
	return head, false
}

// firstOfChain reports whether nothing of its topic and partition that is not published lies before a job.
func (l *publishing) firstOfChain(at *lane, i int) bool {
	for _, o := range at.jobs[at.next:i] {
		if !o.done && o.topic == at.jobs[i].topic && o.partition == at.jobs[i].partition {
			return false
		}
	}
	return true
}

// headOf says how far a chain is complete, while a page is in the lanes, which rest, and its last message.
func (l *publishing) headOf(topic string, partition int) (position, previous eventstore.Position) {
	at := l.lanes.of(partition)
	for _, o := range at.jobs[at.next:] {
		if !o.done && o.topic == topic && o.partition == partition {
			return eventstore.PositionAt(o.position.Ordinal() - 1), o.previous
		}
	}
	return l.reach, l.chains.at(topic, partition).tail
}
