package outbox

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
)

// The page on the stored format shows a message as it is published.
func TestFormatPageShowsAMessage(t *testing.T) {
	t.Parallel()
	block := formatBlock(t)
	headers, payload, found := strings.Cut(block, "\n\n")
	if !found {
		t.Fatal("the block has no payload")
	}
	shown := message.Metadata{}
	for _, line := range strings.Split(headers, "\n") {
		name, value, _ := strings.Cut(line, " ")
		shown[name] = strings.TrimSpace(value)
	}
	m := ordinary()
	m.Partition = eventstore.PartitionOf(m.PartitionKey, 64)
	msg := newEncoder(testEpoch, "day book").encode(m, at(1200))
	compare(t, msg.Metadata, shown)
	if string(msg.Payload) != strings.TrimSpace(payload) || msg.UUID != shown[HeaderID] {
		t.Errorf("the payload of %s is %s, the page says %s", msg.UUID, msg.Payload, payload)
	}
}

// Its table names every header that a message can have, and no other.
func TestFormatPageNamesTheHeaders(t *testing.T) {
	t.Parallel()
	page := formatPage(t)
	_, table, _ := strings.Cut(page, "| header | value | in |")
	table, _, _ = strings.Cut(table, "\n\n")
	var named []string
	for _, row := range strings.Split(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 2 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			named = append(named, m[1])
		}
	}
	known := []string{
		HeaderSpecVersion, HeaderID, HeaderSource, HeaderType, HeaderTime, HeaderSubject, HeaderDataContentType, HeaderPartitionKey,
		HeaderKind, HeaderEpoch, HeaderTopic, HeaderPartition, HeaderPosition, HeaderPrevious, HeaderStreamVersion, HeaderSchemaVersion,
		HeaderTenant, HeaderCorrelationID, HeaderCausationID, HeaderActor, HeaderFlags, HeaderRedriven, HeaderContentType,
		eventstore.HeaderTraceparent, eventstore.HeaderTracestate, HeaderPrefix + "<name>",
	}
	slices.Sort(named)
	slices.Sort(known)
	if !slices.Equal(named, known) {
		t.Errorf("the page names\n%v\nand there are\n%v", named, known)
	}
}

func formatPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// formatBlock is the block that begins with the first header.
func formatBlock(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(formatPage(t), "```text\n"+HeaderSpecVersion)
	block, _, closed := strings.Cut(rest, "\n```")
	if !found || !closed {
		t.Fatal("docs/format.md shows no message")
	}
	return HeaderSpecVersion + block
}
