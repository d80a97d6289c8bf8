package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	// heldBack is how long a full buffer holds the broker back. After that messages pass by the buffer until there is
	// room again: consumers find them missing and read them from the outbox, while a broker that is held by one consumer
	// would hold everybody.
	heldBack = time.Second
	// subscribeAgain is the longest pause between two attempts to subscribe.
	subscribeAgain = 5 * time.Second
	// unsubscribePatience is how long the end of a subscription is waited for. A subscriber that ignores the end of its
	// context keeps its goroutine, and not its consumers.
	unsubscribePatience = 500 * time.Millisecond
	// complainEvery is the shortest time between two lines about messages that are refused.
	complainEvery = time.Minute
)

// item is what waits in the buffer: a message, or the error that ends everybody who follows.
type item struct {
	received
	err error
}

// receiver moves messages from the broker into the buffer while somebody follows.
type receiver struct {
	sub    *Subscription
	buffer *buffer[item]
	stop   context.CancelFunc
	done   chan struct{}

	overflowing bool
	complained  time.Time
	earlier     map[uuid.UUID]bool // epochs that ended
}

// attach returns a reader of the buffer, and begins to receive with the first.
func (s *Subscription) attach() *reader[item] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers++; s.followers == 1 {
		ctx, stop := context.WithCancel(context.Background())
		r := &receiver{sub: s, buffer: newBuffer[item](s.cfg.Buffer), stop: stop, done: make(chan struct{})}
		s.receiver = r
		go func() {
			defer close(r.done)
			r.run(ctx)
		}()
	}
	return s.receiver.buffer.reader()
}

// detach ends a reader, and with the last the receiving.
func (s *Subscription) detach(reader *reader[item]) {
	reader.leave()
	s.mu.Lock()
	r := s.receiver
	s.followers--
	last := s.followers == 0
	if last {
		s.receiver = nil
	}
	s.mu.Unlock()
	if !last {
		return
	}
	r.stop()
	r.buffer.close()
	patience := time.NewTimer(unsubscribePatience)
	defer patience.Stop()
	select {
	case <-r.done:
	case <-patience.C:
	}
	s.mu.Lock()
	idle := s.followers == 0
	s.mu.Unlock()
	if idle {
		s.become(true, "standby", "nobody follows")
	}
}

func (r *receiver) run(ctx context.Context) {
	for again := 50 * time.Millisecond; ctx.Err() == nil; again = min(2*again, subscribeAgain) {
		messages, err := r.subscribe(ctx)
		if err == nil && ctx.Err() == nil {
			r.sub.become(true, "following", "")
			if r.receive(ctx, messages) > 0 {
				again = 50 * time.Millisecond
			}
			err = errors.New("the subscriber closed its channel")
		}
		if ctx.Err() == nil {
			r.sub.become(false, "waiting", fmt.Sprintf("subscribe to topic %q: %v", r.sub.cfg.Topic, err))
			rest(ctx, again)
		}
	}
}

// subscribe takes a panic of the subscriber for an error: it must not end the program.
func (r *receiver) subscribe(ctx context.Context) (messages <-chan *message.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the subscriber panicked: %v", p)
		}
	}()
	return r.sub.subscriber.Subscribe(ctx, r.sub.cfg.Topic)
}

func (r *receiver) receive(ctx context.Context, messages <-chan *message.Message) (n int) {
	for msg := range messages {
		n++
		r.sub.counts.received.Add(1)
		if it, ok := r.accept(ctx, msg); ok && !r.put(ctx, it) {
			msg.Nack() // shutting down: the broker may give it to somebody else
			continue
		}
		msg.Ack()
	}
	return n
}

// accept decodes a message. It is not ok when the message is to be passed by.
func (r *receiver) accept(ctx context.Context, msg *message.Message) (item, bool) {
	got, err := decode(msg)
	switch {
	case err != nil:
		r.refuse("is not ours", err)
		return item{}, false
	case got.topic != r.sub.cfg.Topic:
		r.refuse("is of another topic", fmt.Errorf("it says %q", got.topic))
		return item{}, false
	case got.epoch != r.sub.rows.Epoch():
		return r.foreign(ctx, got.epoch)
	case got.partition < 0 || got.partition >= r.sub.rows.Partitions():
		r.refuse("is of no partition", fmt.Errorf("partition %d of %d", got.partition, r.sub.rows.Partitions()))
		return item{}, false
	}
	return item{received: got}, true
}

// foreign judges a message of another epoch. One that ended is history that was taken back; one that is not known means
// that this program works on what it should not.
func (r *receiver) foreign(ctx context.Context, epoch uuid.UUID) (item, bool) {
	if r.earlier[epoch] {
		r.refuse("is of an earlier epoch", fmt.Errorf("epoch %s", epoch))
		return item{}, false
	}
	current, earlier, err := r.sub.rows.Epochs(ctx)
	if err != nil { // nothing is lost by passing it by
		r.refuse("is of another epoch", err)
		return item{}, false
	}
	r.earlier = make(map[uuid.UUID]bool, len(earlier))
	for _, e := range earlier {
		r.earlier[e] = true
	}
	switch {
	case current != r.sub.rows.Epoch():
		return item{err: &eventstore.HistoryError{
			Reason: fmt.Sprintf("the store's epoch has changed from %s to %s", r.sub.rows.Epoch(), current),
			Remedy: "restart the program, and rebuild what was ahead",
		}}, true
	case r.earlier[epoch]:
		r.refuse("is of an earlier epoch", fmt.Errorf("epoch %s", epoch))
		return item{}, false
	}
	return item{err: &eventstore.HistoryError{
		Reason: fmt.Sprintf("topic %q carries a message of epoch %s, and the store's is %s", r.sub.cfg.Topic, epoch, current),
		Remedy: "find out which store publishes on this topic, or whether this database was restored without " +
			"`daybook epoch new`, before going on",
	}}, true
}

func (r *receiver) refuse(why string, err error) {
	r.sub.counts.refused.Add(1)
	if time.Since(r.complained) > complainEvery {
		r.complained = time.Now()
		r.sub.log.Warn("a message "+why+" and is passed by", "error", err.Error(), "refused", r.sub.counts.refused.Load())
	}
}

// put reports false when ctx has ended.
func (r *receiver) put(ctx context.Context, it item) bool {
	if full := !r.buffer.tryPut(it); !full || r.overflowing {
		r.overflowing = full
		return true
	}
	patient, cancel := context.WithTimeout(ctx, heldBack)
	defer cancel()
	err := r.buffer.put(patient, it)
	r.overflowing = err != nil
	return err == nil || ctx.Err() == nil
}
