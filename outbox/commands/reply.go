package commands

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// ReplyType is the wire name of the messages that tell how a command ended.
const ReplyType = "daybook.command.reply"

// Reply is the payload of the message on Command.ReplyTo that tells how a command ended; [DecodeReply] reads it. The
// message's CausationID is the command's id, its key the command's target, its id that of [ReplyID]: it is published at
// least once, and is always the same.
type Reply struct {
	// State is one of the ends: done, refused, expired, failed.
	State bus.OperationState
	// Code and Reason say why it was refused or failed; see [CodeUnknownType] and its neighbours.
	Code, Reason string
	// Result is what the handler returned, encoded as ContentType says.
	Result      []byte
	ContentType string
	// Stream is the text of the stream that the command was about, Version its version afterwards, Token the text of what a
	// reader waits for to see the command's events.
	Stream  string
	Version eventstore.Version
	Token   string
}

// ReplyID is the id of the message that tells how a command ended.
func ReplyID(command uuid.UUID) uuid.UUID { return uuid.NewSHA1(command, []byte("reply")) }

// DecodeReply reads a message on a topic of replies, as a consumer gets it. The command's id is the message's
// CausationID.
func DecodeReply(e eventstore.RecordedEvent) (command uuid.UUID, r Reply, err error) {
	if e.Type != ReplyType {
		return command, r, fmt.Errorf("commands: decode reply: %q is none: let only dispatchers publish on the topic", e.Type)
	}
	if command, err = uuid.Parse(e.Metadata.CausationID); err != nil {
		return command, r, fmt.Errorf("commands: decode reply %s: its cause is no id of a command: %w", e.ID, err)
	}
	if err := eventstore.Msgpack.Unmarshal(e.Data, &r); err != nil {
		return command, r, fmt.Errorf("commands: decode reply %s: %w", e.ID, err)
	}
	return command, r, nil
}

// replyTo makes the message that tells the end of a command.
func replyTo(e *entry) (outbox.Message, error) {
	v, c := e.verdict, e.command
	stream := ""
	if !v.stream.IsZero() {
		stream = v.stream.String()
	}
	data, err := eventstore.Msgpack.Marshal(Reply{
		State: v.state, Code: v.code, Reason: v.reason, Result: v.result, ContentType: v.contentType, Stream: stream, Version: v.version,
		Token: tokenText(v.token),
	})
	if err != nil {
		return outbox.Message{}, fmt.Errorf("commands: encode the reply to %s: %w", c.ID, err)
	}
	key := c.Target
	if key == "" {
		key = c.ID.String()
	}
	return outbox.Message{
		Topic: c.ReplyTo, Key: key, ID: ReplyID(c.ID), Type: ReplyType, ContentType: eventstore.Msgpack.ContentType(), Data: data,
		Metadata: eventstore.Metadata{
			Tenant: c.Metadata.Tenant, Actor: c.Metadata.Actor, CorrelationID: correlation(c), CausationID: c.ID.String(),
		},
	}, nil
}

func correlation(c bus.Command) string {
	if c.Metadata.CorrelationID == "" {
		return c.ID.String()
	}
	return c.Metadata.CorrelationID
}

func tokenText(t eventstore.Token) string {
	if t.IsZero() {
		return ""
	}
	return t.String()
}
