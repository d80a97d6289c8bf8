package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/panics"
)

// job is a message to publish, or a head when there is none.
type job struct {
	message            *eventstore.OutboxMessage
	topic              string
	partition          int
	position, previous eventstore.Position
}

// lane is what is published one after the other: all that a page has of some partitions. A message that the broker does
// not take stays the next one.
type lane struct {
	jobs            []job
	next            int
	tries           int           // of the next message
	messages, heads int           // taken by the broker in this round
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

// add queues a job behind those of its partition.
func (l *lanes) add(j job) {
	at := l.all[uint(j.partition)%uint(len(l.all))]
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
		at.jobs, at.next, at.tries = at.jobs[:0], 0, 0
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
		at.messages, at.heads, at.err = 0, 0, nil
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
	for ; at.next < len(at.jobs); at.next++ {
		j := at.jobs[at.next]
		err := l.ctx.Err()
		if err == nil {
			at.tries++
			at.begin(j)
			err = l.publish(j)
			at.end()
		}
		if err != nil {
			at.err = &PublishError{Topic: j.topic, Partition: j.partition, Position: j.position, Attempt: at.tries, Err: err}
			if j.message != nil {
				at.err.ID = j.message.ID
			}
			return
		}
		at.tries = 0
		if j.message != nil {
			at.messages++
		} else {
			at.heads++
		}
	}
}

// publish makes the message anew each time: a publisher may have changed the one of the last attempt.
func (l *lanes) publish(j job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, panics.Stack()}
		}
	}()
	var msg *message.Message
	if j.message != nil {
		msg = l.encoder.encode(*j.message, j.previous)
	} else {
		msg = l.encoder.encodeHead(j.topic, j.partition, j.position, j.previous)
	}
	msg.SetContext(l.ctx)
	return l.publisher.Publish(j.topic, msg)
}

// panicError is a panic of a publisher. Its stack goes to the log only.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("the publisher panicked: %v", e.value) }

func stackOf(err error) string {
	var p *panicError
	if errors.As(err, &p) {
		return p.stack
	}
	return ""
}
