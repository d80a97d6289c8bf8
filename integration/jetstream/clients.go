// Package jetstream is NATS JetStream with Daybook: how streams, publishers and subscribers are set up, which errors mean
// what, and a server within the process.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

// region stream

// MakeStream makes the stream of a topic, on as many servers as replicas says, or adapts the one that is there. It
// belongs where you migrate: a topic without a stream is not published.
func MakeStream(ctx context.Context, url, topic string, replicas int) error {
	conn, err := nats.Connect(url)
	if err != nil {
		return fmt.Errorf("jetstream: make stream %q: %w", topic, err)
	}
	defer conn.Close()
	js, err := conn.JetStream(nats.Context(ctx))
	if err != nil {
		return fmt.Errorf("jetstream: make stream %q: %w", topic, err)
	}
	cfg := &nats.StreamConfig{
		Name: topic, Subjects: []string{topic}, // one subject, one stream: one order for all partitions
		Storage: nats.FileStorage, Replicas: replicas,
		Retention: nats.LimitsPolicy, MaxAge: 24 * time.Hour, // the outbox keeps what followers lack
	}
	if _, err = js.AddStream(cfg); errors.Is(err, nats.ErrStreamNameAlreadyInUse) {
		_, err = js.UpdateStream(cfg)
	}
	if err != nil {
		return fmt.Errorf("jetstream: make stream %q: %w", topic, err)
	}
	return nil
}

// endregion

// region connection

// connection are the options of every connection of a relay or follower.
func connection() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1),                     // the default gives up after two minutes, for good
		nats.ReconnectWait(250 * time.Millisecond), // between attempts
		nats.ReconnectBufSize(-1),                  // refuse at once what cannot be sent, the relay repeats it
	}
}

// endregion

// region publisher

// NewPublisher connects the publisher of a relay. Publish returns when JetStream has confirmed.
func NewPublisher(url string) (message.Publisher, error) {
	conn, err := nats.Connect(url, connection()...)
	if err != nil {
		return nil, err
	}
	js, err := conn.JetStream()
	if err != nil {
		conn.Close()
		return nil, err
	}
	inner, err := wnats.NewPublisherWithNatsConn(conn, wnats.PublisherPublishConfig{
		Marshaler:         &wnats.NATSMarshaler{},
		SubjectCalculator: wnats.DefaultSubjectCalculator,
		JetStream: wnats.JetStreamConfig{
			TrackMsgId:     false,                                        // a new leader may refuse what the old one had in hand
			PublishOptions: []nats.PubOpt{nats.AckWait(3 * time.Second)}, // then the relay tries again
		},
	}, nil)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return publisher{inner, js}, nil
}

// endregion
