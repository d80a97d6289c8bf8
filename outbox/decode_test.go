package outbox

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
)

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const absent = "\x00"
	good := newEncoder(testEpoch, "daybook").encode(ordinary(), at(1200))
	for _, c := range []struct{ header, value, reason string }{
		{HeaderSpecVersion, absent, "is missing"},
		{HeaderSpecVersion, "2.0", "is not the version"},
		{HeaderKind, absent, "is missing"},
		{HeaderKind, "marker", "is not known here"},
		{HeaderEpoch, absent, "is missing"},
		{HeaderEpoch, "7", "is not a UUID"},
		{HeaderEpoch, "{" + testID.String() + "}", "is not a UUID"},
		{HeaderTopic, absent, "is missing"},
		{HeaderTopic, "100%", "percent sign"},
		{HeaderTopic, "%G1", "percent sign"},
		{HeaderTopic, "%1", "percent sign"},
		{HeaderTopic, "%FF", "UTF-8"},
		{HeaderPartition, absent, "is missing"},
		{HeaderPartition, "-1", "is not a number from 0"},
		{HeaderPartition, "4294967296", "is not a number from 0"},
		{HeaderPosition, absent, "is missing"},
		{HeaderPosition, "0", "is not a number from 1"},
		{HeaderPosition, "1e3", "is not a number from 1"},
		{HeaderPosition, "+1234", "is not a number from 1"},
		{HeaderPosition, "01234", "is not a number from 1"},
		{HeaderPosition, "99999999999999999999", "is not a number from 1"},
		{HeaderPrevious, absent, "is missing"},
		{HeaderPrevious, "1234", "is not before the position"},
		{HeaderSubject, absent, "is missing"},
		{HeaderSubject, "account", "is not a stream"},
		{HeaderStreamVersion, absent, "is missing"},
		{HeaderStreamVersion, "0", "is not a number from 1"},
		{HeaderID, absent, "is missing"},
		{HeaderID, "x", "is not a UUID"},
		{HeaderType, absent, "is missing"},
		{HeaderTime, absent, "is missing"},
		{HeaderTime, "yesterday", "is not a time"},
		{HeaderSchemaVersion, "two", "is not a number from 1"},
		{HeaderRedriven, "true", "is not 1"},
		{HeaderFlags, "-0", "is not a number from"},
		{HeaderFlags, "2147483648", "is not a number from"},
		{HeaderTenant, "a%00b", "zero bytes"},
		{HeaderPrefix + "a%", "1", "percent sign"},
		{HeaderPrefix + "a", "%%", "percent sign"},
		{HeaderPrefix + "%52egion", "1", "written in two ways"},
	} {
		bad := message.NewMessage("the-uuid", nil)
		bad.Metadata = maps.Clone(good.Metadata)
		if bad.Metadata[c.header] = c.value; c.value == absent {
			delete(bad.Metadata, c.header)
		}
		_, err := decode(bad)
		var he *HeaderError
		if !errors.As(err, &he) || !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s %q: %v", c.header, c.value, err)
			continue
		}
		// Which of two headers of one name is found twice is chance.
		if he.Header != c.header && c.reason != "written in two ways" || !strings.Contains(he.Reason, c.reason) || he.Remedy == "" || he.Message != "the-uuid" {
			t.Errorf("%s %q: %v", c.header, c.value, err)
		}
	}
}

func TestHeaderErrorText(t *testing.T) {
	t.Parallel()
	msg := message.NewMessage("u-1", nil)
	_, err := decode(msg)
	const want = `outbox: decode message "u-1": header ce_specversion "" is missing: ` +
		`only messages of an outbox.Relay can be read here: give other publishers a topic of their own`
	if err == nil || err.Error() != want {
		t.Errorf("error is\n%v\nwant\n%s", err, want)
	}
	long := (&HeaderError{Header: "h", Value: strings.Repeat("x", 1000)}).Error()
	if len(long) > 200 {
		t.Errorf("a long value makes a text of %d bytes", len(long))
	}
}

// A message that carries traces of another program: what tracing added replaces nothing that was recorded with it.
func TestDecodeTraces(t *testing.T) {
	t.Parallel()
	m := ordinary()
	m.Metadata.Headers = map[string]string{eventstore.HeaderTracestate: "a=1, b=x%2Cy", eventstore.HeaderTraceparent: "bad\nvalue"}
	msg := newEncoder(testEpoch, "daybook").encode(m, at(3))
	if got := msg.Metadata["tracestate"]; got != "a=1, b=x%2Cy" {
		t.Errorf("tracestate is published as %q, which no tracer reads", got)
	}
	msg.Metadata["traceparent"] = "00-added-on-the-way-01"
	got, err := decode(msg)
	if err != nil || !maps.Equal(got.event.Metadata.Headers, m.Metadata.Headers) {
		t.Errorf("headers %q, %v", got.event.Metadata.Headers, err)
	}
}

func TestPartitionKey(t *testing.T) {
	t.Parallel()
	msg := newEncoder(testEpoch, "daybook").encode(ordinary(), at(1200))
	if key, err := PartitionKey("ledger", msg); key != "17" || err != nil {
		t.Errorf("key %q, %v", key, err)
	}
	head := newEncoder(testEpoch, "daybook").encodeHead("ledger", 17, at(1300), at(1234))
	if key, err := PartitionKey("ledger", head); key != "17" || err != nil {
		t.Errorf("key %q, %v: a head follows its messages", key, err)
	}
	var he *HeaderError
	if _, err := PartitionKey("ledger", message.NewMessage("x", nil)); !errors.As(err, &he) || he.Header != HeaderPartition {
		t.Errorf("a message of nobody: %v", err)
	}
}

func TestPercent(t *testing.T) {
	t.Parallel()
	for plain, want := range map[string]string{
		"": "", "abc~!": "abc~!", " ": "%20", `"`: "%22", "%": "%25", "\x7f": "%7F", "€": "%E2%82%AC", "a\nb": "a%0Ab", "ü": "%C3%BC",
	} {
		if got := escape(plain); got != want {
			t.Errorf("escape(%q) = %q, want %q", plain, got, want)
		}
		if got, ok := unescape(want); got != plain || !ok {
			t.Errorf("unescape(%q) = %q, %v", want, got, ok)
		}
	}
	if got, ok := unescape("%c3%bc%41+"); got != "üA+" || !ok {
		t.Errorf("lower case digits, and letters that need none: %q, %v", got, ok)
	}
	if got := escapeName("a:b c(d)é"); got != "a%3Ab%20c%28d%29%C3%A9" {
		t.Errorf("name %q", got)
	}
}

// Whatever a broker delivers: decode answers or says what is wrong, and what it answers can be published again.
func FuzzDecode(f *testing.F) {
	e := newEncoder(testEpoch, "daybook")
	for _, msg := range []*message.Message{e.encode(ordinary(), at(1200)), e.encodeHead("ledger", 1, at(2), at(1)), e.encodeSkip(ordinary(), at(1200))} {
		var lines []string
		for name, value := range msg.Metadata {
			lines = append(lines, name+"\t"+value)
		}
		f.Add(strings.Join(lines, "\n"), []byte(msg.Payload))
	}
	f.Add("ce_kind\tevent\nheader_%\t%", []byte(nil))
	f.Fuzz(func(t *testing.T, headers string, payload []byte) {
		msg := message.NewMessage("fuzz", payload)
		for line := range strings.SplitSeq(headers, "\n") {
			name, value, _ := strings.Cut(line, "\t")
			msg.Metadata[name] = value
		}
		got, err := decode(msg)
		if err != nil {
			var he *HeaderError
			if !errors.As(err, &he) || he.Remedy == "" {
				t.Fatalf("error %v", err)
			}
			return
		}
		if !got.kind.IsMessage() {
			return
		}
		published := e.encode(eventstore.OutboxMessage{RecordedEvent: got.event, Topic: got.topic}, got.previous)
		again, err := decode(published)
		if err != nil {
			t.Fatal(err)
		}
		again.epoch = got.epoch
		if second := e.encode(eventstore.OutboxMessage{RecordedEvent: again.event, Topic: again.topic}, again.previous); !second.Equals(published) {
			t.Fatalf("decoded %+v, then %+v", got, again)
		}
	})
}
