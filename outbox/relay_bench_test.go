package outbox

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

// BenchmarkRelay publishes a backlog of events; an operation is one message.
func BenchmarkRelay(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) message.Publisher{
		"free": func(*testing.B) message.Publisher { return freeBroker{} },
		"GoChannel": func(b *testing.B) message.Publisher {
			c := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true, OutputChannelBuffer: 100}, nil)
			b.Cleanup(func() {
				if err := c.Close(); err != nil {
					b.Error(err)
				}
			})
			messages, err := c.Subscribe(b.Context(), "events")
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				for m := range messages {
					m.Ack()
				}
			}()
			return c
		},
	} {
		b.Run(name, func(b *testing.B) {
			w := newRelayWorld(b)
			for left := b.N; left > 0; left -= 10 {
				w.append("routed", string(rune('a'+left/10%26)), min(left, 10))
			}
			r := w.relay(open(b), Config{})
			b.ReportAllocs()
			b.ResetTimer()
			stop := w.start(r)
			w.sent()
			b.StopTimer()
			stop()
		})
	}
}

// freeBroker takes everything and costs nothing.
type freeBroker struct{}

func (freeBroker) Publish(string, ...*message.Message) error { return nil }
func (freeBroker) Close() error                              { return nil }
