package outbox

import (
	"os"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

func TestEncodeMarkers(t *testing.T) {
	t.Parallel()
	e := newEncoder(testEpoch, "daybook")
	m := ordinary()
	skip := e.encodeSkip(m, at(1200))
	want := message.Metadata{
		"ce_specversion": "1.0", "ce_id": skip.UUID, "ce_source": "urn:daybook:" + testEpoch.String() + "/daybook",
		"ce_type": "daybook.skip", "ce_kind": "skip", "ce_epoch": testEpoch.String(), "ce_topic": "ledger", "ce_partition": "17",
		"ce_position": "1234", "ce_previous": "1200", "ce_partitionkey": "account-42",
	}
	compare(t, skip.Metadata, want)
	if again := e.encodeSkip(m, at(1200)); !again.Equals(skip) {
		t.Error("a marker that is sent again is another one")
	}
	gone := e.encodeDiscarded(m, at(1200))
	want["ce_id"], want["ce_redriven"] = gone.UUID, "1"
	compare(t, gone.Metadata, want)
	other := m
	other.Position = at(1235)
	ids := map[string]bool{}
	for _, msg := range []*message.Message{
		skip, gone, e.encodeHead("ledger", 17, at(1234), at(1200)), e.encode(m, at(1200)), e.encodeSkip(other, at(1200)),
		newEncoder(testID, "daybook").encodeSkip(m, at(1200)),
	} {
		ids[msg.UUID] = true
		if id, err := uuid.Parse(msg.UUID); err != nil || msg.Metadata[HeaderKind] == string(KindSkip) && (id.Version() != 5 || len(msg.Payload) != 0) {
			t.Errorf("id %s (%v), payload %q", msg.UUID, err, msg.Payload)
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d ids for 6 messages", len(ids))
	}
	for _, msg := range []*message.Message{skip, gone} {
		got, err := Decode(msg)
		if err != nil || got.Kind != KindSkip || got.Topic != "ledger" || got.Partition != 17 || got.Position != at(1234) || got.Previous != at(1200) ||
			got.PartitionKey != "account-42" || got.Redriven != (msg == gone) || got.Epoch != testEpoch {
			t.Errorf("decoded %+v, %v", got, err)
		}
	}
}

// A message that is redriven is the same in everything but the one header.
func TestEncodeRedriven(t *testing.T) {
	t.Parallel()
	e := newEncoder(testEpoch, "daybook")
	plain, again := e.encode(ordinary(), at(1200)), e.encodeRedriven(ordinary(), at(1200))
	if again.UUID != plain.UUID || string(again.Payload) != string(plain.Payload) {
		t.Errorf("id %s, payload %s", again.UUID, again.Payload)
	}
	plain.Metadata[HeaderRedriven] = "1"
	compare(t, again.Metadata, plain.Metadata)
	got, err := Decode(again)
	if err != nil || !got.Redriven || got.Kind != KindEvent || got.ID != testID || got.Stream != ordinary().Stream {
		t.Errorf("decoded %+v, %v", got, err)
	}
	head := e.encodeHead("ledger", 1, at(2), at(1))
	head.Metadata[HeaderRedriven] = "1"
	if _, err := Decode(head); err == nil {
		t.Error("a redriven head is decoded")
	}
	bare := e.encodeSkip(ordinary(), at(1200))
	delete(bare.Metadata, HeaderPartitionKey)
	if _, err := Decode(bare); err == nil {
		t.Error("a marker of no key is decoded")
	}
}

// The key of a stream without one of its own is the stream, in a marker too.
func TestMarkerOfAStreamWithoutKey(t *testing.T) {
	t.Parallel()
	m := ordinary()
	m.PartitionKey = ""
	if key := newEncoder(testEpoch, "daybook").encodeSkip(m, at(1200)).Metadata[HeaderPartitionKey]; key != "account-42" {
		t.Errorf("the key is %q", key)
	}
}

// The page on the stored format shows a marker as it is published.
func TestFormatPageShowsAMarker(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Markers")
	_, block, _ := strings.Cut(section, "```text\n")
	block, _, found := strings.Cut(block, "\n```")
	if !found {
		t.Fatal("docs/format.md shows no marker")
	}
	shown := message.Metadata{}
	for line := range strings.SplitSeq(block, "\n") {
		name, value, _ := strings.Cut(line, " ")
		shown[name] = strings.TrimSpace(value)
	}
	m := ordinary()
	m.Partition = eventstore.PartitionOf(m.PartitionKey, 64)
	compare(t, newEncoder(testEpoch, "day book").encodeSkip(m, at(1200)).Metadata, shown)
}
