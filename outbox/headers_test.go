package outbox

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
)

var (
	testEpoch = uuid.MustParse("0f8b9a52-6d5a-4c0e-9b3e-0d6f2b1c7a11")
	testID    = uuid.MustParse("0193f2a4-7c1e-7b60-8a7d-3f1d5f0e9c42")
)

func at(n int64) eventstore.Position { return eventstore.PositionAt(n) }

// ordinary is an event as most are.
func ordinary() eventstore.OutboxMessage {
	return eventstore.OutboxMessage{
		Topic: "ledger",
		RecordedEvent: eventstore.RecordedEvent{
			EventData: eventstore.EventData{
				ID: testID, Type: "account.deposited", SchemaVersion: 2, ContentType: "application/json",
				Data: []byte(`{"amount":"12.50","currency":"EUR"}`),
				Metadata: eventstore.Metadata{
					Tenant: "acme", CorrelationID: "request-17", CausationID: "command-4", Actor: "ada",
					Headers: map[string]string{
						eventstore.HeaderTraceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Region": "Köln 50%",
					},
				},
			},
			Stream: eventstore.NewStreamID("account", "42"), Version: 7, Position: at(1234), Partition: 17, PartitionKey: "account-42",
			RecordedAt: time.Date(2026, 3, 4, 5, 6, 7, 89_000, time.UTC),
		},
	}
}

// The published form is read by programs that are not ours. It does not change.
func TestEncodeKnownForm(t *testing.T) {
	t.Parallel()
	msg := newEncoder(testEpoch, "day book").encode(ordinary(), at(1200))
	want := message.Metadata{
		"ce_specversion": "1.0", "ce_id": "0193f2a4-7c1e-7b60-8a7d-3f1d5f0e9c42",
		"ce_source": "urn:daybook:0f8b9a52-6d5a-4c0e-9b3e-0d6f2b1c7a11/day%2520book",
		"ce_type":   "account.deposited", "ce_time": "2026-03-04T05:06:07.000089Z", "ce_subject": "account-42",
		"ce_datacontenttype": "application/json", "content-type": "application/json", "ce_partitionkey": "account-42",
		"ce_kind": "event", "ce_epoch": "0f8b9a52-6d5a-4c0e-9b3e-0d6f2b1c7a11", "ce_topic": "ledger", "ce_partition": "17",
		"ce_position": "1234", "ce_previous": "1200", "ce_streamversion": "7", "ce_schemaversion": "2",
		"ce_tenant": "acme", "ce_correlationid": "request-17", "ce_causationid": "command-4", "ce_actor": "ada",
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "header_Region": "K%C3%B6ln%2050%25",
	}
	compare(t, msg.Metadata, want)
	if msg.UUID != testID.String() || string(msg.Payload) != `{"amount":"12.50","currency":"EUR"}` {
		t.Errorf("id %s, payload %s", msg.UUID, msg.Payload)
	}
}

func TestEncodeMessageOfItsOwn(t *testing.T) {
	t.Parallel()
	m := eventstore.OutboxMessage{Topic: "commands", RecordedEvent: eventstore.RecordedEvent{
		EventData: eventstore.EventData{ID: testID, Type: "mail.send", SchemaVersion: 1, Flags: -3}, Position: at(9), PartitionKey: "ada",
		RecordedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600)),
	}}
	compare(t, newEncoder(testEpoch, "daybook").encode(m, at(0)).Metadata, message.Metadata{
		"ce_specversion": "1.0", "ce_id": testID.String(), "ce_source": "urn:daybook:" + testEpoch.String() + "/daybook",
		"ce_type": "mail.send", "ce_time": "2026-03-04T04:06:07.000000Z", "ce_partitionkey": "ada", "ce_kind": "message",
		"ce_epoch": testEpoch.String(), "ce_topic": "commands", "ce_partition": "0", "ce_position": "9", "ce_previous": "0",
		"ce_schemaversion": "1", "ce_flags": "-3",
	})
}

func TestEncodeHead(t *testing.T) {
	t.Parallel()
	e := newEncoder(testEpoch, "daybook")
	head := e.encodeHead("ledger", 3, at(90), at(70))
	compare(t, head.Metadata, message.Metadata{
		"ce_specversion": "1.0", "ce_id": head.UUID, "ce_source": "urn:daybook:" + testEpoch.String() + "/daybook",
		"ce_type": "daybook.head", "ce_kind": "head", "ce_epoch": testEpoch.String(), "ce_topic": "ledger", "ce_partition": "3",
		"ce_position": "90", "ce_previous": "70",
	})
	if id, err := uuid.Parse(head.UUID); err != nil || id.Version() != 5 || len(head.Payload) != 0 {
		t.Errorf("id %s (%v), payload %q", head.UUID, err, head.Payload)
	}
	if again := e.encodeHead("ledger", 3, at(90), at(70)); !again.Equals(head) {
		t.Error("a head that is sent again is another one")
	}
	ids := map[string]bool{head.UUID: true}
	for _, other := range []*message.Message{
		e.encodeHead("ledgers", 3, at(90), at(70)), e.encodeHead("ledger", 4, at(90), at(70)), e.encodeHead("ledger", 3, at(91), at(70)),
		newEncoder(testID, "daybook").encodeHead("ledger", 3, at(90), at(70)),
	} {
		ids[other.UUID] = true
	}
	if len(ids) != 5 {
		t.Errorf("%d ids for 5 heads", len(ids))
	}
	got, err := decode(head)
	if err != nil || got.kind != KindHead || got.topic != "ledger" || got.partition != 3 || got.position != at(90) || got.previous != at(70) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

// compare names each header that differs.
func compare(t *testing.T, got, want message.Metadata) {
	t.Helper()
	all := maps.Clone(got)
	maps.Copy(all, want)
	for name := range all {
		g, inGot := got[name]
		w, inWant := want[name]
		if g != w || inGot != inWant {
			t.Errorf("header %s is %q (%v), want %q (%v)", name, g, inGot, w, inWant)
		}
	}
}

// hostile is text that brokers and header rules like to change.
func hostile(most int) *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.Just(""), rapid.Just(" "), rapid.Just("\r\nX-Evil: 1"), rapid.Just("😀é\u2028"), rapid.Just("%"), rapid.Just("%41%"),
		rapid.Just(`"quoted", a=b; c`), rapid.Just("\x01\x7f\t"), rapid.Just(" trimmed? "), rapid.Just(strings.Repeat("ö%", most/3)),
		rapid.StringN(0, 40, most),
	).Filter(func(s string) bool { return !strings.Contains(s, "\x00") && len(s) <= most })
}

func drawMessage(t *rapid.T) eventstore.OutboxMessage {
	text := hostile(1 << 10)
	some := func(name string, most int) string {
		return hostile(most).Filter(func(s string) bool { return s != "" }).Draw(t, name)
	}
	m := eventstore.OutboxMessage{Topic: some("topic", 200)}
	copy(m.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	m.Type = some("type", 128)
	m.SchemaVersion = rapid.IntRange(0, 1<<30).Draw(t, "schema version")
	m.ContentType = hostile(128).Draw(t, "content type")
	m.Data = rapid.SliceOf(rapid.Byte()).Draw(t, "data")
	m.Flags = eventstore.Flags(rapid.Int32().Draw(t, "flags"))
	m.Metadata = eventstore.Metadata{
		Tenant: text.Draw(t, "tenant"), CorrelationID: text.Draw(t, "correlation"), CausationID: text.Draw(t, "causation"), Actor: text.Draw(t, "actor"),
	}
	names := rapid.OneOf(rapid.SampledFrom([]string{
		"traceparent", "tracestate", "Traceparent", "ce_id", "content-type", "header_", "a:b", "A", "a", "%41", "", " ", "Ä\n",
	}), hostile(1<<10))
	if headers := rapid.MapOfN(names, hostile(8<<10), 0, 6).Draw(t, "headers"); len(headers) > 0 {
		m.Metadata.Headers = headers
	}
	m.Position = at(rapid.Int64Range(1, 1<<62).Draw(t, "position"))
	m.Partition = rapid.IntRange(0, 4095).Draw(t, "partition")
	m.PartitionKey = hostile(512).Draw(t, "key")
	m.RecordedAt = time.UnixMicro(rapid.Int64Range(-1<<50, 1<<55).Draw(t, "time")).UTC()
	if rapid.Bool().Draw(t, "event") {
		category := strings.ReplaceAll(some("category", 100), "-", "_")
		m.Stream = eventstore.NewStreamID(category, some("stream", 400))
		m.Version = eventstore.Version(rapid.Int64Range(1, 1<<62).Draw(t, "version"))
	}
	return m
}

// What is decoded is what was encoded, whatever is in it; and encoding that again gives the same message.
func TestEncodeDecodeIsTheIdentity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		previous := at(rapid.Int64Range(0, m.Position.Ordinal()-1).Draw(t, "previous"))
		e := newEncoder(testEpoch, "daybook")
		msg := e.encode(m, previous)
		for name, value := range msg.Metadata {
			if strings.ContainsFunc(name, func(r rune) bool { return r >= 128 || notToken(byte(r)) && r != '%' }) {
				t.Fatalf("header name %q", name)
			}
			raw := name == HeaderContentType || name == eventstore.HeaderTraceparent || name == eventstore.HeaderTracestate
			if strings.ContainsFunc(value, func(r rune) bool { return r > '~' || r < ' ' || r == ' ' && !raw }) || strings.TrimSpace(value) != value {
				t.Fatalf("header %s: %q", name, value)
			}
		}
		got, err := decode(msg)
		if err != nil {
			t.Fatal(err)
		}
		wantKind := KindMessage
		if m.IsEvent() {
			wantKind = KindEvent
		}
		want := received{
			kind: wantKind, epoch: testEpoch, topic: m.Topic, partition: m.Partition, position: m.Position, previous: previous, event: m.RecordedEvent,
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("decoded\n%#v\nwant\n%#v", got, want)
		}
		again := e.encode(eventstore.OutboxMessage{RecordedEvent: got.event, Topic: got.topic}, got.previous)
		if !again.Equals(msg) {
			t.Fatalf("published again it is\n%v\nwant\n%v", again.Metadata, msg.Metadata)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	e, m := newEncoder(testEpoch, "daybook"), ordinary()
	b.ReportAllocs()
	for b.Loop() {
		e.encode(m, at(1200))
	}
}

func BenchmarkDecode(b *testing.B) {
	msg := newEncoder(testEpoch, "daybook").encode(ordinary(), at(1200))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(msg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeHead(b *testing.B) {
	e := newEncoder(testEpoch, "daybook")
	b.ReportAllocs()
	for b.Loop() {
		e.encodeHead("ledger", 17, at(1234), at(1200))
	}
}
