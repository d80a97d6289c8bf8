package integration_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/integration"
	"github.com/daybook-go/daybook/integration/brokertest"
)

// taken counts what was published.
type taken struct{ n int }

func (p *taken) Publish(_ string, messages ...*message.Message) error {
	p.n += len(messages)
	return nil
}
func (p *taken) Close() error { return nil }

func TestLimit(t *testing.T) {
	t.Parallel()
	p := &taken{}
	l := integration.Limit(p, 1000)
	small, large := brokertest.Message(500), brokertest.Message(500)
	large.Metadata["note"] = string(brokertest.Message(600).Payload)
	if err := l.Publish("t", small); err != nil {
		t.Error(err)
	}
	err := l.Publish("t", small, large)
	var refused *integration.TooLargeError
	if !errors.As(err, &refused) || refused.ID != large.UUID || refused.Topic != "t" || refused.Of != 1000 || refused.Size < 1100 {
		t.Errorf("%v, want the second message to be refused", err)
	}
	if p.n != 1 {
		t.Errorf("%d messages were published, want 1", p.n)
	}
}
