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
	h[HeaderKind] = string(kindMessage)
	if m.IsEvent() {
		h[HeaderKind] = string(kindEvent)
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

// encodeHead gives the message that says: on this topic and partition nothing lies between previous, the last message,
// and position. Its id is made of the rest, so that sending it again sends the same.
func (e *encoder) encodeHead(topic string, partition int, position, previous eventstore.Position) *message.Message {
	h := make(message.Metadata, 10)
	h[HeaderKind] = string(kindHead)
	e.chain(h, topic, partition, position, previous)
	name := strings.Join([]string{topic, h[HeaderPartition], h[HeaderPosition]}, "\x00")
	id := uuid.NewSHA1(e.epoch, []byte(name)).String()
	h[HeaderID] = id
	h[HeaderType] = headType
	msg := message.NewMessage(id, nil)
	msg.Metadata = h
	return msg
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
