package sqlqueue

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/integration/brokertest"
	"github.com/daybook-go/daybook/internal/pgserver"
)

var clients = brokertest.Clients{
	Publisher:  NewPublisher,
	Subscriber: NewSubscriber,
	Witness:    func(address string) (message.Subscriber, error) { return NewSubscriber(address, "witness") },
	Classify:   Classify,
}

func TestMain(m *testing.M) { brokertest.Main(m, clients) }

// broker is a server of its own, so that its end is not that of the store.
type broker struct{ *pgserver.Server }

func serve(t *testing.T) broker {
	t.Helper()
	s, err := pgserver.Start(t.Context(), pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return broker{s}
}

func (b broker) Address() string { return b.URL() }

func (b broker) Restart() error {
	if err := b.Kill(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return b.Server.Restart(ctx)
}

func TestTorture(t *testing.T) {
	b := serve(t)
	if err := MakeTable(b.Address(), brokertest.Topic); err != nil {
		t.Fatal(err)
	}
	brokertest.Torture(t, clients, b)
}
