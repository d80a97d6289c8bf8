package outbox

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// received is a message as a broker delivered it.
type received struct {
	kind               Kind
	epoch              uuid.UUID
	topic              string
	partition          int
	position, previous eventstore.Position
	redriven           bool
	// event is what was published: an event as it stands in the log, or a message of its own, without a stream. Of a head
	// it has partition and position, of a skip marker the partition key too.
	event eventstore.RecordedEvent
}

// needs is the position up to which everything must have taken effect before this can. Consumers with the store read what
// stands behind a marker: to them it is a hole that ends with its own position. So is what is redriven, if it tells them
// anything new: then its marker has not come either.
func (r *received) needs() eventstore.Position {
	if r.kind == KindSkip || r.redriven {
		return r.position
	}
	return r.previous
}

// HeaderError says which header of a message keeps it from being read. It matches [eventstore.ErrInvalid].
type HeaderError struct {
	// Message is the message's UUID, as the broker gave it.
	Message string
	// Header and Value are the header as it came; Value is shortened and quoted in the text.
	Header, Value  string
	Reason, Remedy string
}

// Error names the message, the header, its value, the reason and the remedy.
func (e *HeaderError) Error() string {
	value := e.Value
	if len(value) > 80 {
		value = value[:80] + "…"
	}
	return fmt.Sprintf("outbox: decode message %q: header %s %q %s: %s", e.Message, e.Header, value, e.Reason, e.Remedy)
}

// Is matches [eventstore.ErrInvalid].
func (e *HeaderError) Is(target error) bool { return target == eventstore.ErrInvalid }

const (
	foreign = "only messages of an outbox.Relay can be read here: give other publishers a topic of their own"
	changed = "let nothing between the relay and here change the headers that begin with ce_ and " + HeaderPrefix
)

// Decode reads a message as a broker delivered it, for consumers that cannot read the outbox. Check the epoch, and whether
// Topic is the one that was followed, before believing what it says. The payload is shared. The error is a [*HeaderError]. It
// is safe for concurrent use.
func Decode(msg *message.Message) (Received, error) {
	r, err := decode(msg)
	if err != nil {
		return Received{}, err
	}
	return r.public(), nil
}

func (r *received) public() Received {
	return Received{
		OutboxMessage: eventstore.OutboxMessage{RecordedEvent: r.event, Topic: r.topic},
		Kind:          r.kind, Epoch: r.epoch, Previous: r.previous, Redriven: r.redriven,
	}
}

// decode reads the published form. What encode was given comes back exactly, with the payload shared. The error is a
// [*HeaderError].
func decode(msg *message.Message) (received, error) {
	d := decoder{msg: msg}
	if v := d.required(HeaderSpecVersion); v != specVersion {
		d.refuse(HeaderSpecVersion, "is not the version of CloudEvents that is known here, "+specVersion, "deploy the release of the relay here too")
	}
	r := received{
		kind: Kind(d.required(HeaderKind)), epoch: d.uuid(HeaderEpoch), topic: d.required(HeaderTopic),
		partition: int(d.number(HeaderPartition, 0, 1<<31-1)),
		position:  eventstore.PositionAt(d.number(HeaderPosition, 1, 1<<63-1)),
		previous:  eventstore.PositionAt(d.number(HeaderPrevious, 0, 1<<63-1)),
	}
	if d.err == nil && !r.previous.Before(r.position) {
		d.refuse(HeaderPrevious, "is not before the position, "+r.position.String(), changed)
	}
	if value := d.msg.Metadata[HeaderRedriven]; value != "" {
		if r.redriven = value == redriven; !r.redriven || r.kind == KindHead {
			d.refuse(HeaderRedriven, "is not 1, or on a head, which never has it", changed)
		}
	}
	e := &r.event
	e.Partition, e.Position = r.partition, r.position
	switch r.kind {
	case KindHead:
		return r, d.err
	case KindSkip:
		e.PartitionKey = d.required(HeaderPartitionKey)
		return r, d.err
	case KindEvent:
		e.Stream = d.stream(HeaderSubject)
		e.Version = eventstore.Version(d.number(HeaderStreamVersion, 1, 1<<63-1))
	case KindMessage:
	default:
		d.refuse(HeaderKind, "is not known here", "deploy the release of the relay here too")
	}
	e.ID = d.uuid(HeaderID)
	e.RecordedAt = d.time(HeaderTime)
	e.Type = d.required(HeaderType)
	e.ContentType = d.text(HeaderDataContentType)
	e.PartitionKey = d.text(HeaderPartitionKey)
	e.SchemaVersion = int(d.optional(HeaderSchemaVersion, 1, 1<<31-1))
	e.Flags = eventstore.Flags(d.optional(HeaderFlags, -1<<31, 1<<31-1))
	e.Metadata = eventstore.Metadata{
		Tenant: d.text(HeaderTenant), CorrelationID: d.text(HeaderCorrelationID),
		CausationID: d.text(HeaderCausationID), Actor: d.text(HeaderActor), Headers: d.headers(),
	}
	e.Data = msg.Payload
	return r, d.err
}

// decoder reads headers until one cannot be read.
type decoder struct {
	msg *message.Message
	err error
}

func (d *decoder) refuse(header, reason, remedy string) {
	if d.err == nil {
		d.err = &HeaderError{Message: d.msg.UUID, Header: header, Value: d.msg.Metadata[header], Reason: reason, Remedy: remedy}
	}
}

func (d *decoder) text(header string) string { return d.unescape(header, d.msg.Metadata[header]) }

func (d *decoder) unescape(header, value string) string {
	text, ok := unescape(value)
	switch {
	case !ok:
		d.refuse(header, "has a percent sign without two hexadecimal digits", changed)
	case !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0:
		d.refuse(header, "is not UTF-8 text without zero bytes", changed)
	}
	return text
}

func (d *decoder) required(header string) string {
	text := d.text(header)
	if text == "" {
		d.refuse(header, "is missing", foreign)
	}
	return text
}

// number reads a header in the form in which encode writes it, and no other.
func (d *decoder) number(header string, least, most int64) int64 {
	value := d.msg.Metadata[header]
	if value == "" {
		d.refuse(header, "is missing", foreign)
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most || value[0] == '+' || len(value) > 1 && (value[0] == '0' || value[:2] == "-0") {
		d.refuse(header, fmt.Sprintf("is not a number from %d to %d", least, most), changed)
		return 0
	}
	return n
}

// optional is number for a header that may be left out, which stands for 0.
func (d *decoder) optional(header string, least, most int64) int64 {
	if d.msg.Metadata[header] == "" {
		return 0
	}
	return d.number(header, least, most)
}

func (d *decoder) uuid(header string) uuid.UUID {
	value := d.required(header)
	id, err := uuid.Parse(value)
	if (err != nil || len(value) != len("00000000-0000-0000-0000-000000000000")) && d.err == nil {
		d.refuse(header, "is not a UUID", changed)
	}
	return id
}

func (d *decoder) time(header string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, d.required(header))
	if err != nil {
		d.refuse(header, "is not a time as RFC 3339 writes it", changed)
	}
	return at.UTC()
}

func (d *decoder) stream(header string) eventstore.StreamID {
	s, err := eventstore.ParseStreamID(d.required(header))
	if err != nil {
		d.refuse(header, "is not a stream: "+err.Error(), changed)
	}
	return s
}

// headers returns those that the event carries, nil when it carries none.
func (d *decoder) headers() map[string]string {
	var headers map[string]string
	add := func(name, value string) {
		if headers == nil {
			headers = make(map[string]string, 4)
		}
		headers[name] = value
	}
	for header, value := range d.msg.Metadata {
		name, ok := strings.CutPrefix(header, HeaderPrefix)
		if !ok {
			continue
		}
		name = d.unescape(header, name)
		if _, twice := headers[name]; twice {
			d.refuse(header, "is there twice, written in two ways", changed)
		}
		add(name, d.unescape(header, value))
	}
	for _, name := range [...]string{eventstore.HeaderTraceparent, eventstore.HeaderTracestate} {
		if value := d.msg.Metadata[name]; bare(name, value) {
			if _, recorded := headers[name]; !recorded {
				add(name, value)
			}
		}
	}
	return headers
}
