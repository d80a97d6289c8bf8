package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/internal/panics"
	"github.com/daybook-go/daybook/outbox"
)

const (
	// subscribeAgain bounds the pause between two attempts to subscribe.
	subscribeSoon, subscribeAgain = 50 * time.Millisecond, 5 * time.Second
	// unsubscribePatience is how long the end of the subscriptions is waited for. A subscriber that ignores the end of its
	// context keeps its goroutine, and not the inbox.
	unsubscribePatience = 500 * time.Millisecond
)

// delivery is a message that a broker has handed over. It is acknowledged when what it leads to is committed.
type delivery struct {
	msg *message.Message
	got outbox.Received
	err error // it cannot be read
}

// receiver subscribes while this process owns the inbox, and only then: one that stands by takes no messages away.
type receiver struct {
	in   *Inbox
	out  chan delivery // without room: what is not asked for stays at the broker
	stop context.CancelFunc
	done chan struct{}
}

func (in *Inbox) receive() *receiver {
	ctx, stop := context.WithCancel(context.Background())
	r := &receiver{in: in, out: make(chan delivery), stop: stop, done: make(chan struct{})}
	var lanes sync.WaitGroup
	for range in.cfg.Subscriptions {
		lanes.Go(func() { r.run(ctx) })
	}
	go func() {
		lanes.Wait()
		close(r.done)
	}()
	return r
}

func (r *receiver) close() {
	r.stop()
	patience := time.NewTimer(unsubscribePatience)
	defer patience.Stop()
	select {
	case <-r.done:
	case <-patience.C:
	}
}

func (r *receiver) run(ctx context.Context) {
	for again := subscribeSoon; ctx.Err() == nil; again = min(2*again, subscribeAgain) {
		messages, err := r.subscribe(ctx)
		if err == nil && ctx.Err() == nil {
			r.in.state.subscribed(1, "")
			if r.pass(ctx, messages) > 0 {
				again = subscribeSoon
			}
			r.in.state.subscribed(-1, "")
			err = errors.New("the subscriber closed its channel")
		}
		if ctx.Err() == nil {
			r.in.state.subscribed(0, fmt.Sprintf("subscribe to topic %q: %v", r.in.cfg.Topic, err))
			pause(ctx, again)
		}
	}
}

// subscribe takes a panic of the subscriber for an error: it must not end the program.
func (r *receiver) subscribe(ctx context.Context) (messages <-chan *message.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the subscriber panicked: %s", panics.Describe(p))
		}
	}()
	return r.in.subscriber.Subscribe(ctx, r.in.cfg.Topic)
}

// pass hands on what comes until the subscription ends.
func (r *receiver) pass(ctx context.Context, messages <-chan *message.Message) (n int) {
	for msg := range messages {
		n++
		d := delivery{msg: msg}
		d.got, d.err = outbox.Decode(msg)
		select {
		case r.out <- d:
		case <-ctx.Done():
			msg.Nack() // the broker gives it to the next owner
		}
	}
	return n
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
