package inbox

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	// foreignTopic marks letters of messages that cannot be read, each a sequence of its own.
	foreignTopic = "unreadable"
	// typeForeign is what they are called. Trying one again finds it as unreadable as before.
	typeForeign = "daybook.unreadable"
)

// foreign makes a letter of a message that cannot be read, with its bytes and its headers. The same message again is the
// same letter. It has a batch of its own: where there is no room for it the inbox stops, and what came before is committed,
// and acknowledged, by then.
func (d *feed) foreign(s *step, one delivery, cause error) {
	if !s.empty() {
		s.again = true
		return
	}
	s.full = true
	in := d.in
	in.state.refused.Add(1)
	err := &UnreadableError{Message: one.msg.UUID, Err: cause}
	in.state.complain(in.now(), err)
	headers, _ := eventstore.EncodeHeaders(one.msg.Metadata) // texts, which can always be encoded
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(one.msg.UUID), headers, one.msg.Payload} {
		_ = binary.Write(sum, binary.BigEndian, uint64(len(part))) // a hash has no error to give
		sum.Write(part)
	}
	digest := sum.Sum(nil)
	e := eventstore.RecordedEvent{
		EventData: eventstore.EventData{
			ID: uuid.NewSHA1(uuid.Nil, digest), Type: typeForeign, Data: one.msg.Payload, Metadata: eventstore.Metadata{Headers: one.msg.Metadata},
		},
		Position:     eventstore.PositionAt(int64(binary.BigEndian.Uint64(digest) >> 2)), // its place among letters, and none in any log
		PartitionKey: fmt.Sprintf("%x", digest[:16]), RecordedAt: in.now(),
	}
	s.batch.Held = append(s.batch.Held, consumer.HeldMessage{Kind: consumer.Refused, Event: e, Topic: foreignTopic, Err: err})
	in.cfg.Observer.ObserveFailure(eventstore.FailureObservation{
		Consumer: in.ref.Name, Version: in.ref.Version, Topic: in.cfg.Topic, Kind: eventstore.Permanent, Attempt: 1, Parked: true, Err: err,
	})
}

// classify judges what the handler returned, or what stands in its place.
func (c Config) classify(err error) eventstore.FailureKind {
	var unreadable *UnreadableError
	switch {
	case errors.As(err, &unreadable):
		return eventstore.Permanent
	case c.Classify != nil:
		return c.Classify(err)
	}
	return eventstore.Transient
}
