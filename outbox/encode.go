package outbox

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// encoder makes the published form of one store's messages. It is safe for concurrent use. Encoding the same message
// again gives the same bytes, id and headers.
type encoder struct {
	epoch     uuid.UUID
	epochText string
	source    string
}

// newEncoder returns the encoder of the store in a schema, at an epoch.
func newEncoder(epoch uuid.UUID, schema string) *encoder {
	text := epoch.String()
	return &encoder{epoch: epoch, epochText: text, source: escape("urn:daybook:" + text + "/" + url.PathEscape(schema))}
}

// encode gives the published form of m, whose predecessor on its topic and partition is at previous. The payload is
// shared with m.
func (e *encoder) encode(m eventstore.OutboxMessage, previous eventstore.Position) *message.Message {
	h := make(message.Metadata, 20+len(m.Metadata.Headers))
	id := m.ID.String()
	set := func(name, value string) {
		if value != "" {
			h[name] = escape(value)
		}
	}
	h[HeaderKind] = string(KindMessage)
	if m.IsEvent() {
		h[HeaderKind] = string(KindEvent)
		set(HeaderSubject, m.Stream.String())
		h[HeaderStreamVersion] = strconv.FormatInt(int64(m.Version), 10)
	}
	e.chain(h, m.Topic, m.Partition, m.Position, previous)
	h[HeaderID] = id
	h[HeaderTime] = m.RecordedAt.UTC().Format(timeLayout)
	set(HeaderType, m.Type)
	set(HeaderDataContentType, m.ContentType)
	set(HeaderPartitionKey, m.PartitionKey)
	if plain(m.ContentType) {
		h[HeaderContentType] = m.ContentType
	}
	if m.SchemaVersion != 0 {
		h[HeaderSchemaVersion] = strconv.Itoa(m.SchemaVersion)
	}
	if m.Flags != 0 {
		h[HeaderFlags] = strconv.FormatInt(int64(m.Flags), 10)
	}
	set(HeaderTenant, m.Metadata.Tenant)
	set(HeaderCorrelationID, m.Metadata.CorrelationID)
	set(HeaderCausationID, m.Metadata.CausationID)
	set(HeaderActor, m.Metadata.Actor)
	for name, value := range m.Metadata.Headers {
		if bare(name, value) {
			h[name] = value
		} else {
			h[HeaderPrefix+escapeName(name)] = escape(value) // also when it is empty: it was given
		}
	}
	msg := message.NewMessage(id, m.Data)
	msg.Metadata = h
	return msg
}

// encodeRedriven gives the published form of m as it comes later than in its place: the same, and a word of that.
func (e *encoder) encodeRedriven(m eventstore.OutboxMessage, previous eventstore.Position) *message.Message {
	msg := e.encode(m, previous)
	msg.Metadata[HeaderRedriven] = redriven
	return msg
}

// encodeSkip gives the marker that stands in the place of m. Its id is made of the rest, so that sending it again sends
// the same.
func (e *encoder) encodeSkip(m eventstore.OutboxMessage, previous eventstore.Position) *message.Message {
	return e.marker(m, previous, "skip")
}

// encodeDiscarded gives the marker that says: m, in whose place a marker stands, never comes.
func (e *encoder) encodeDiscarded(m eventstore.OutboxMessage, previous eventstore.Position) *message.Message {
	msg := e.marker(m, previous, "discarded")
	msg.Metadata[HeaderRedriven] = redriven
	return msg
}

func (e *encoder) marker(m eventstore.OutboxMessage, previous eventstore.Position, what string) *message.Message {
	h := make(message.Metadata, 12)
	h[HeaderKind] = string(KindSkip)
	e.chain(h, m.Topic, m.Partition, m.Position, previous)
	id := e.id(h, m.Topic, what)
	h[HeaderID] = id
	h[HeaderType] = skipType
	h[HeaderPartitionKey] = escape(sequenceOf(m))
	msg := message.NewMessage(id, nil)
	msg.Metadata = h
	return msg
}

// sequenceOf is what must be kept in one order with m.
func sequenceOf(m eventstore.OutboxMessage) string {
	if m.PartitionKey == "" && m.IsEvent() {
		return m.Stream.String()
	}
	return m.PartitionKey
}

// encodeHead gives the message that says: on this topic and partition nothing lies between previous, the last message,
// and position. Its id is made of the rest, so that sending it again sends the same.
func (e *encoder) encodeHead(topic string, partition int, position, previous eventstore.Position) *message.Message {
	h := make(message.Metadata, 10)
	h[HeaderKind] = string(KindHead)
	e.chain(h, topic, partition, position, previous)
	id := e.id(h, topic)
	h[HeaderID] = id
	h[HeaderType] = headType
	msg := message.NewMessage(id, nil)
	msg.Metadata = h
	return msg
}

// id of what is no message.
func (e *encoder) id(h message.Metadata, topic string, what ...string) string {
	name := strings.Join(append([]string{topic, h[HeaderPartition], h[HeaderPosition]}, what...), "\x00")
	return uuid.NewSHA1(e.epoch, []byte(name)).String()
}

// chain sets what every message has.
func (e *encoder) chain(h message.Metadata, topic string, partition int, position, previous eventstore.Position) {
	h[HeaderSpecVersion] = specVersion
	h[HeaderSource] = e.source
	h[HeaderEpoch] = e.epochText
	h[HeaderTopic] = escape(topic)
	h[HeaderPartition] = strconv.Itoa(partition)
	h[HeaderPosition] = position.String()
	h[HeaderPrevious] = previous.String()
}
