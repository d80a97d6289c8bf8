package commands

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// A command comes out of the outbox as it went in.
func TestCommandsTravelWhole(t *testing.T) {
	t.Parallel()
	text := rapid.StringOfN(rapid.RuneFrom([]rune("aé% /\"\n\t\u2028-")), 1, 20, 200)
	rapid.Check(t, func(t *rapid.T) {
		maybe := func(name string) string {
			if rapid.Bool().Draw(t, "with "+name) {
				return text.Draw(t, name)
			}
			return ""
		}
		c := bus.Command{
			ID: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")), Type: text.Draw(t, "type"),
			Data: rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "data"), ContentType: text.Draw(t, "content type"),
			Key: maybe("key"), Scope: maybe("scope"), Target: maybe("target"),
			Class: rapid.SampledFrom([]admission.Class{admission.Normal, admission.Critical, admission.Bulk, admission.Operator}).Draw(t, "class"),
			Metadata: eventstore.Metadata{
				Tenant: maybe("tenant"), Actor: maybe("actor"), CorrelationID: maybe("correlation"), CausationID: maybe("causation"),
				Headers: map[string]string{"traceparent": "x", text.Draw(t, "header"): maybe("value")},
			},
		}
		if c.ID == uuid.Nil {
			c.ID[0] = 1
		}
		if rapid.Bool().Draw(t, "with undoes") {
			c.Undoes = uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "undoes"))
		}
		if rapid.Bool().Draw(t, "with reply") {
			c.ReplyTo = "replies é"
		}
		if rapid.Bool().Draw(t, "with deadline") {
			c.Deadline = time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
		}
		if rapid.Bool().Draw(t, "with expected") {
			e := rapid.SampledFrom([]eventstore.ExpectedVersion{
				eventstore.NoStream, eventstore.StreamExists, eventstore.AnyVersion, eventstore.Exactly(7), eventstore.Exactly(1 << 60),
			}).Draw(t, "expected")
			c.Expected = &e
		}
		m, err := message(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := command(eventstore.RecordedEvent{
			EventData: eventstore.EventData{
				ID: m.ID, Type: m.Type, ContentType: m.ContentType, Data: m.Data, Metadata: m.Metadata,
			},
			PartitionKey: m.Key,
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got, cmpopts.IgnoreUnexported(bus.Command{}), cmp.Comparer(func(x, y eventstore.ExpectedVersion) bool { return x == y })); diff != "" {
			t.Fatal(diff)
		}
	})
}

// What somebody else wrote on the topic is not taken for a command.
func TestBrokenCommands(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{headerExpected: "-1", headerDeadline: "tomorrow", headerClass: "first", headerReplyTo: Topic, headerUndoes: "it"} {
		c, err := command(eventstore.RecordedEvent{EventData: eventstore.EventData{Metadata: eventstore.Metadata{Headers: map[string]string{name: header}}}})
		if err == nil || c.ReplyTo != "" {
			t.Errorf("%s %q was read as %+v", name, header, c)
		}
	}
	if _, err := command(eventstore.RecordedEvent{Version: 1, Stream: eventstore.NewStreamID("a", "b")}); err == nil {
		t.Error("an event was read as a command")
	}
}

// A command that got its sender only when it was sent has the scope that the bus would have given it: nobody shares it.
func TestScopesOfSendersDiffer(t *testing.T) {
	t.Parallel()
	b := bus.New(bus.Config{})
	bus.Handle(b, addType, func(context.Context, add) (bus.Reply, error) { return bus.Reply{}, nil })
	ids := map[uuid.UUID]string{}
	for _, m := range []eventstore.Metadata{
		{}, {Tenant: "a/b", Actor: "c"}, {Tenant: "a", Actor: "b/c"}, {Tenant: "ä"}, {Actor: "ä"}, {Tenant: strings.Repeat("x", 300)},
	} {
		ctx := eventstore.WithMetadata(t.Context(), m)
		prepared, err := b.Prepare(ctx, add{"a", 1}, bus.WithKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		bare, err := b.Encode(add{"a", 1}, bus.WithKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		sent, err := named(ctx, bare)
		if err != nil || sent.Scope != prepared.Scope {
			t.Errorf("%.20v: scope %.80q, %v; the bus says %.80q", m, sent.Scope, err, prepared.Scope)
		}
		if _, err := message(sent); err != nil {
			t.Errorf("%.20v cannot be sent: %v", m, err)
		}
		if before, taken := ids[sent.ID]; taken {
			t.Errorf("%q and %q are one", before, sent.Scope)
		}
		ids[sent.ID] = sent.Scope
	}
}
