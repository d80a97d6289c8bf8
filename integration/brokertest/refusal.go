package brokertest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// Message is one with a payload of so many bytes, and the headers that brokers look at.
func Message(bytesLong int) *message.Message {
	m := message.NewMessage(uuid.NewString(), bytes.Repeat([]byte("x"), bytesLong))
	m.Metadata[outbox.HeaderKind] = "message"
	m.Metadata[outbox.HeaderPartition] = "7"
	return m
}

// Taken publishes a message that the broker takes.
func Taken(t testing.TB, p message.Publisher, topic string, m *message.Message) {
	t.Helper()
	if err := p.Publish(topic, m); err != nil {
		t.Fatalf("publish on %q: %v", topic, err)
	}
}

// Refused publishes a message that the real client of a broker must refuse, with an error that contains a text, and
// checks what a classifier makes of it.
func Refused(t testing.TB, p message.Publisher, topic string, m *message.Message, text string, classify eventstore.Classifier, want eventstore.FailureKind) {
	t.Helper()
	err := p.Publish(topic, m)
	if err == nil {
		t.Errorf("a message of %d bytes was published on %q, want an error with %q", len(m.Payload), topic, text)
		return
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("publish on %q: %v; want an error with %q", topic, err, text)
	}
	if got := classify(err); got != want {
		t.Errorf("publish on %q: %v (%T) is %s, want %s", topic, err, err, got, want)
	}
}
