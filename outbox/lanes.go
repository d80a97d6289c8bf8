package outbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// job is a message to publish, or a head when there is none.
type job struct {
	message            *eventstore.OutboxMessage
	topic              string
	partition          int
	position, previous eventstore.Position
	as                 form
	done               bool // published out of turn, or given up
}

// form is what is published of a message.
type form uint8

const (
	asItself    form = iota
	asSkip           // a marker stands in its place
	asRedriven       // later than in its place
	asDiscarded      // a marker says that it never comes
)

// isMessage reports whether something comes that takes effect.
func (j job) isMessage() bool { return j.message != nil && (j.as == asItself || j.as == asRedriven) }

// lane is what is published one after the other: all that a page has of some partitions. A message that the broker does
// not take stays the next one.
type lane struct {
	jobs            []job
	next            int
	tries           int           // of the next message
	messages, heads int           // taken by the broker in this round; markers count as heads
	topics          []takenOn     // on which it took something in this round
	err             *PublishError // why the round ended early
	wake            chan struct{}

	mu   sync.Mutex
	call call // what the publisher has in hand; others look at it
}

// call is a message or head that Publish has not returned for yet.
type call struct {
	topic    string
	position eventstore.Position
	began    time.Time // zero: none
}

// begin and end keep the call up to date.
func (at *lane) begin(j job) {
	at.mu.Lock()
	at.call = call{j.topic, j.position, time.Now()}
	at.mu.Unlock()
}

func (at *lane) end() {
	at.mu.Lock()
	at.call = call{}
	at.mu.Unlock()
}

// lanes publish a page, each partition in order, several partitions at once. One goroutine uses them.
type lanes struct {
	encoder   *encoder
	publisher message.Publisher
	all       []*lane
	ctx       context.Context // of the round; written while no lane works
	busy      sync.WaitGroup  // lanes at work in this round
	watch     *watch          // is told of rounds; may be nil
	alive     sync.WaitGroup
}

// openLanes starts n workers, which rest between rounds until the lanes are closed.
func openLanes(n int, e *encoder, publisher message.Publisher) *lanes {
	l := &lanes{encoder: e, publisher: publisher}
	for range n {
		at := &lane{wake: make(chan struct{}, 1)}
		l.all = append(l.all, at)
		l.alive.Go(func() {
			for range at.wake {
				l.work(at)
				l.busy.Done()
			}
		})
	}
	return l
}

func (l *lanes) close() {
	for _, at := range l.all {
		close(at.wake)
	}
	l.alive.Wait()
}

// of is the lane of a partition.
func (l *lanes) of(partition int) *lane { return l.all[uint(partition)%uint(len(l.all))] }

// add queues a job behind those of its partition.
func (l *lanes) add(j job) {
	at := l.of(j.partition)
	at.jobs = append(at.jobs, j)
}

// oldest is the call that the publisher has not returned from for the longest time. Any goroutine may ask.
func (l *lanes) oldest() (oldest call, some bool) {
	for _, at := range l.all {
		at.mu.Lock()
		c := at.call
		at.mu.Unlock()
		if !c.began.IsZero() && (!some || c.began.Before(oldest.began)) {
			oldest, some = c, true
		}
	}
	return oldest, some
}

// clear forgets what was published.
func (l *lanes) clear() {
	for _, at := range l.all {
		clear(at.jobs) // lets go of the messages
		at.jobs, at.next, at.tries, at.err = at.jobs[:0], 0, 0, nil
	}
}

// round publishes what is left in each lane, up to the first message that the broker does not take, and reports what it
// took and the first such error in the order of the log. All lanes have ended when it returns. The last lane with work
// is this goroutine's, so that a page of one lane wakes nobody.
func (l *lanes) round(ctx context.Context) (messages, heads int, err *PublishError) {
	l.ctx = ctx
	l.watch.begin()
	defer l.watch.end()
	var mine *lane
	for _, at := range l.all {
		at.messages, at.heads, at.err, at.topics = 0, 0, nil, at.topics[:0]
		if at.next == len(at.jobs) {
			continue
		}
		if mine != nil {
			l.busy.Add(1)
			mine.wake <- struct{}{}
		}
		mine = at
	}
	if mine != nil {
		l.work(mine)
	}
	l.busy.Wait()
	for _, at := range l.all {
		messages, heads = messages+at.messages, heads+at.heads
		if at.err != nil && (err == nil || at.err.Position.Before(err.Position)) {
			err = at.err
		}
	}
	return messages, heads, err
}

func (l *lanes) work(at *lane) {
	for at.err = nil; at.next < len(at.jobs) && at.err == nil; {
		if at.jobs[at.next].done {
			at.next++
			continue
		}
		at.err = l.try(at)
	}
}

// try publishes the next job of a lane, which is not at work or is this goroutine's.
func (l *lanes) try(at *lane) *PublishError {
	j := at.jobs[at.next]
	err := l.ctx.Err()
	if err == nil {
		at.tries++
		err = l.send(at, j)
	}
	if err != nil {
		refused := &PublishError{Topic: j.topic, Partition: j.partition, Position: j.position, Attempt: at.tries, Err: err}
		if j.isMessage() {
			refused.ID = j.message.ID
		}
		return refused
	}
	at.tries = 0
	at.next++
	return nil
}

// send publishes something in the lane's name, out of turn or not.
func (l *lanes) send(at *lane, j job) error {
	at.begin(j)
	err := l.publish(j)
	at.end()
	if err != nil {
		return err
	}
	if j.isMessage() {
		at.messages++
	} else {
		at.heads++
	}
	i := slices.IndexFunc(at.topics, func(t takenOn) bool { return t.topic == j.topic })
	if i < 0 {
		i, at.topics = len(at.topics), append(at.topics, takenOn{topic: j.topic})
	}
	at.topics[i].at = time.Now()
	return nil
}

// publish makes the message anew each time: a publisher may have changed the one of the last attempt.
func (l *lanes) publish(j job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = consumer.Panicked("the publisher", p)
		}
	}()
	var msg *message.Message
	switch {
	case j.message != nil && j.as == asItself:
		msg = l.encoder.encode(*j.message, j.previous)
	case j.as == asSkip:
		msg = l.encoder.encodeSkip(*j.message, j.previous)
	case j.as == asRedriven:
		msg = l.encoder.encodeRedriven(*j.message, j.previous)
	case j.as == asDiscarded:
		msg = l.encoder.encodeDiscarded(*j.message, j.previous)
	default:
		msg = l.encoder.encodeHead(j.topic, j.partition, j.position, j.previous)
	}
	msg.SetContext(l.ctx)
	return l.publisher.Publish(j.topic, msg)
}
