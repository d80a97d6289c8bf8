package rabbitmq

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/integration/brokertest"
)

func TestClassify(t *testing.T) {
	s := serve(t, "max_message_size = 100000\n")
	conn, err := amqp091.Dial(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"plain", "full"} {
		if err := channel.ExchangeDeclare(topic, "fanout", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		args := amqp091.Table{"x-queue-type": "quorum"}
		if topic == "full" {
			args["x-max-length"], args["x-overflow"] = 1, "reject-publish"
		}
		if _, err := channel.QueueDeclare(topic+".queue", true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
		if err := channel.QueueBind(topic+".queue", "", topic, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := channel.ExchangeDeclare("other", "direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	p, err := NewPublisher(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	brokertest.Taken(t, p, "plain", brokertest.Message(5000))
	brokertest.Refused(t, p, "plain", brokertest.Message(MaxMessage), "are allowed", Classify, eventstore.Permanent)
	brokertest.Refused(t, p, "other", brokertest.Message(10), "PRECONDITION_FAILED", Classify, eventstore.Permanent)

	// Without Limit: the server closes the channel, and the client does not say why.
	cfg := settings(s.Address(), "")
	cfg.Publish.ConfirmDelivery = true
	bare, err := amqp.NewPublisher(cfg, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bare.Close() }() // its channel is closed already
	brokertest.Refused(t, bare, "plain", brokertest.Message(200_000), "delivery not confirmed", Classify, eventstore.Environment)

	full := 0
	for range 10 { // a quorum queue refuses a little later than at its limit
		if err := p.Publish("full", brokertest.Message(10)); err != nil {
			full++
		}
	}
	if full == 0 {
		t.Error("the queue takes more than it may")
	}
	brokertest.Refused(t, p, "full", brokertest.Message(10), "delivery not confirmed", Classify, eventstore.Environment)

	s.(brokertest.Killer).Kill()
	brokertest.Refused(t, p, "plain", brokertest.Message(10), "", Classify, eventstore.Environment)
}
