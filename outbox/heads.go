package outbox

import (
	"cmp"
	"slices"

	"github.com/daybook-go/daybook/eventstore"
)

// sent is what a relay has published of one topic and partition.
type sent struct {
	topic     string
	partition int
	tail      eventstore.Position // the last message
	announced eventstore.Position // the last message or head
	moved     bool                // the tail is not committed
}

// chains are what a relay knows of all topics and of the partitions of a segment. They are facts of the log only as long as nobody else
// publishes: they are read at the beginning of a tenure and forgotten at its end.
type chains struct {
	first, last int      // partitions
	followed    []string // topics that get heads
	byTopic     map[string]map[int]*sent
	moved       []*sent
}

func newChains(first, last int) *chains {
	return &chains{first: first, last: last, byTopic: map[string]map[int]*sent{}}
}

// follow sets the topics that get heads: those that somebody follows. It reports whether one is new.
func (c *chains) follow(topics []string) (fresh bool) {
	for _, topic := range topics {
		fresh = fresh || !slices.Contains(c.followed, topic)
		c.know(topic)
	}
	c.followed = topics
	return fresh
}

func (c *chains) know(topic string) {
	if c.byTopic[topic] != nil {
		return
	}
	of := make(map[int]*sent, c.last-c.first+1)
	for p := c.first; p <= c.last; p++ {
		of[p] = &sent{topic: topic, partition: p}
	}
	c.byTopic[topic] = of
}

func (c *chains) at(topic string, partition int) *sent {
	c.know(topic)
	of := c.byTopic[topic]
	s := of[partition]
	if s == nil { // a row made by hand; it has its order, and no heads
		s = &sent{topic: topic, partition: partition}
		of[partition] = s
	}
	return s
}

// restore sets the last message as it was committed.
func (c *chains) restore(topic string, partition int, tail eventstore.Position) {
	s := c.at(topic, partition)
	s.tail, s.announced = tail, tail
}

// link makes m the last of its chain and returns the one before it.
func (c *chains) link(m *eventstore.OutboxMessage) (previous eventstore.Position) {
	s := c.at(m.Topic, m.Partition)
	previous = s.tail
	s.tail, s.announced = m.Position, m.Position
	if !s.moved {
		s.moved = true
		c.moved = append(c.moved, s)
	}
	return previous
}

// heads are the head messages that say: everything up to a position is published. They are due for every partition that
// was last told less.
func (c *chains) heads(through eventstore.Position, add func(job)) (n int) {
	for _, topic := range c.followed {
		of := c.byTopic[topic]
		for p := c.first; p <= c.last; p++ {
			if s := of[p]; s.announced.Before(through) {
				add(job{topic: topic, partition: p, position: through, previous: s.tail})
				s.announced = through
				n++
			}
		}
	}
	return n
}

// untell takes back that a partition of a topic was told how far it is complete. It reports whether it is to be told again.
func (c *chains) untell(topic string, partition int) bool {
	s := c.at(topic, partition)
	s.announced = s.tail
	return slices.Contains(c.followed, topic)
}

// tails are the rows of the chains that have moved, in the order in which every relay locks them.
type tails struct {
	topics     []string
	partitions []int32
	positions  []int64
}

func (c *chains) movedTails() tails {
	slices.SortFunc(c.moved, func(a, b *sent) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	var t tails
	for _, s := range c.moved {
		t.topics = append(t.topics, s.topic)
		t.partitions = append(t.partitions, int32(s.partition))
		t.positions = append(t.positions, s.tail.Ordinal())
	}
	return t
}

// committed forgets which chains have moved.
func (c *chains) committed() {
	for _, s := range c.moved {
		s.moved = false
	}
	clear(c.moved)
	c.moved = c.moved[:0]
}
