package jetstream

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/integration/brokertest"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	s, err := start(&server.Options{Port: server.RANDOM_PORT, StoreDir: t.TempDir(), MaxPayload: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []*nats.StreamConfig{
		{Name: "plain", Subjects: []string{"plain"}},
		{Name: "small", Subjects: []string{"small"}, MaxMsgSize: 1000},
		{Name: "full", Subjects: []string{"full"}, MaxMsgs: 1, Discard: nats.DiscardNew},
	} {
		if _, err := js.AddStream(cfg); err != nil {
			t.Fatal(err)
		}
	}
	p, err := NewPublisher(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	brokertest.Taken(t, p, "plain", brokertest.Message(5000))
	brokertest.Refused(t, p, "plain", brokertest.Message(20_000), nats.ErrMaxPayload.Error(), Classify, eventstore.Permanent)
	brokertest.Refused(t, p, "small", brokertest.Message(5000), "message size exceeds maximum allowed", Classify, eventstore.Permanent)
	brokertest.Refused(t, p, "nobody", brokertest.Message(10), "no stream takes this subject", Classify, eventstore.Permanent)
	brokertest.Refused(t, p, "two words", brokertest.Message(10), nats.ErrBadSubject.Error(), Classify, eventstore.Permanent)
	brokertest.Taken(t, p, "full", brokertest.Message(10))
	brokertest.Refused(t, p, "full", brokertest.Message(10), "maximum messages exceeded", Classify, eventstore.Environment)
	s.Close()
	brokertest.Refused(t, p, "plain", brokertest.Message(10), "", Classify, eventstore.Environment)
}
