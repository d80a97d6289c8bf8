package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// region subscriber

// Subscriber is a follower's. It stands in for those of watermill-nats v2.1.3, which end the program with "send on closed
// channel" when a subscription ends while a message arrives, as it does whenever a runner stands back. It is safe for
// concurrent use.
type Subscriber struct {
	conn *nats.Conn
	open func(ctx context.Context, js jetstream.JetStream, topic string) (jetstream.Consumer, error)
	acks bool // the server waits for them
	busy sync.WaitGroup
	stop context.CancelFunc
	ctx  context.Context
}

// NewSubscriber connects a follower, which gets what is published from now on, in order. The server keeps it in memory and
// forgets it a minute after it has gone: what a follower misses is in the store. It has as many replicas as the stream: the
// only one might be given to a node that is lost.
func NewSubscriber(url string) (*Subscriber, error) {
	return newSubscriber(url, false, func(ctx context.Context, js jetstream.JetStream, topic string) (jetstream.Consumer, error) {
		stream, err := js.Stream(ctx, topic)
		if err != nil {
			return nil, err
		}
		return stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckNonePolicy,
			MemoryStorage: true, Replicas: stream.CachedInfo().Config.Replicas, InactiveThreshold: time.Minute,
		})
	})
}

// endregion

// NewDurable connects a plain subscriber, for which the server keeps everything from the beginning of the stream until
// it is acknowledged.
func NewDurable(url, name string) (*Subscriber, error) {
	return newSubscriber(url, true, func(ctx context.Context, js jetstream.JetStream, topic string) (jetstream.Consumer, error) {
		return js.CreateOrUpdateConsumer(ctx, topic, jetstream.ConsumerConfig{
			Durable: name, DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 10 * time.Second,
		})
	})
}

func newSubscriber(url string, acks bool, open func(context.Context, jetstream.JetStream, string) (jetstream.Consumer, error)) (*Subscriber, error) {
	conn, err := nats.Connect(url, connection()...)
	if err != nil {
		return nil, fmt.Errorf("jetstream: new subscriber: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Subscriber{conn: conn, open: open, acks: acks, stop: stop, ctx: ctx}, nil
}

// region subscribe

// Subscribe implements a Watermill subscriber. The channel is closed when ctx ends, or when the server ends the
// consumer; one goroutine alone sends and closes.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	js, err := jetstream.New(s.conn)
	if err != nil {
		return nil, err
	}
	consumer, err := s.open(ctx, js, topic)
	if err != nil {
		return nil, fmt.Errorf("jetstream: subscribe to %q: %w", topic, err)
	}
	// Without a heartbeat nobody says that a server has forgotten the consumer, as it does when it is restarted or lost.
	messages, err := consumer.Messages(jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return nil, fmt.Errorf("jetstream: subscribe to %q: %w", topic, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	closing := context.AfterFunc(s.ctx, cancel)
	ending := context.AfterFunc(ctx, messages.Stop)
	out := make(chan *message.Message)
	s.busy.Go(func() {
		defer close(out)
		defer func() { closing(); cancel(); ending(); messages.Stop(); s.forget(js, topic, consumer) }()
		for seen := last(ctx, js, topic); ; {
			got, err := messages.Next(jetstream.NextMaxWait(quietFor))
			switch {
			case errors.Is(err, nats.ErrTimeout):
				// A consumer has been seen, after the loss of nodes, that lives and gets nothing any more.
				if at := last(ctx, js, topic); !s.acks && at > seen {
					return
				}
				continue
			case err != nil:
				return // the runner subscribes again
			}
			if at, err := got.Metadata(); err == nil {
				seen = at.Sequence.Stream
			}
			if !s.deliver(ctx, got, out) {
				return
			}
		}
	})
	return out, nil
}

// forget ends the consumer of a follower at the server, which would keep it for its minute, and has room for so many. A
// server that cannot be asked forgets it by itself.
func (s *Subscriber) forget(js jetstream.JetStream, topic string, consumer jetstream.Consumer) {
	if s.acks {
		return // a durable one stays
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = js.DeleteConsumer(ctx, topic, consumer.CachedInfo().Name)
}

// quietFor is how long nothing may come before a follower looks whether there would have been something.
const quietFor = 5 * time.Second

// last is the number of the last message in the stream of a topic, or 0 when the server does not say.
func last(ctx context.Context, js jetstream.JetStream, topic string) uint64 {
	stream, err := js.Stream(ctx, topic)
	if err != nil {
		return 0
	}
	return stream.CachedInfo().State.LastSeq
}

// deliver hands a message over and waits for its acknowledgement. It returns false when the subscription ends.
func (s *Subscriber) deliver(ctx context.Context, got jetstream.Msg, out chan<- *message.Message) bool {
	header := got.Headers()
	msg := message.NewMessage(header.Get(wnats.WatermillUUIDHdr), got.Data())
	for name, values := range header {
		if name != wnats.WatermillUUIDHdr && name != nats.MsgIdHdr {
			msg.Metadata[name] = values[0]
		}
	}
	msg.SetContext(ctx)
	select {
	case out <- msg:
	case <-ctx.Done():
		return false
	}
	select {
	case <-msg.Acked():
		if s.acks {
			_ = got.Ack() // what is lost comes again
		}
	case <-msg.Nacked():
		if s.acks {
			_ = got.Nak()
		}
	case <-ctx.Done():
		return false
	}
	return true
}

// endregion

// Close ends all subscriptions and the connection.
func (s *Subscriber) Close() error {
	s.stop()
	s.busy.Wait()
	s.conn.Close()
	return nil
}
