package commands

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// Topic is the topic of the outbox that commands travel on.
const Topic = "commands"

// What a command says beside its payload travels in headers of the message. They are the package's own: a command that
// comes with one of them among its metadata is refused, so that nobody can put words into its mouth.
const (
	headerPrefix   = "daybook-command-"
	headerKey      = headerPrefix + "key"
	headerScope    = headerPrefix + "scope"
	headerExpected = headerPrefix + "expected"
	headerDeadline = headerPrefix + "deadline"
	headerClass    = headerPrefix + "class"
	headerReplyTo  = headerPrefix + "reply-to"
	headerUndoes   = headerPrefix + "undoes"
	headerSaga     = headerPrefix + "saga" // of whom; the dispatcher asks before it carries the command out
)

const (
	expectExists = "exists"
	expectAny    = "any"
)

// named is the command with the metadata of ctx, its scope, and the id that it is known by for ever.
func named(ctx context.Context, c bus.Command) (bus.Command, error) {
	c.Metadata = c.Metadata.Merge(eventstore.MetadataFrom(ctx))
	c.Scope = scopeOf(c)
	if c.Key != "" && c.Key != c.ID.String() {
		c.ID = OperationID(c.Scope, c.Key)
	}
	if c.ID == uuid.Nil {
		id, err := uuid.NewV7()
		if err != nil {
			return c, fmt.Errorf("make an id: %w", err)
		}
		c.ID = id
	}
	return c, nil
}

// message is a named command as the outbox stores it. A command without a target is kept in order with nobody: its id is
// its ordering key.
func message(c bus.Command) (outbox.Message, error) {
	if err := check(c); err != nil {
		return outbox.Message{}, err
	}
	headers := make(map[string]string, len(c.Metadata.Headers)+6)
	for name, value := range c.Metadata.Headers {
		headers[name] = value
	}
	set := func(name, value string) {
		if value != "" {
			headers[name] = value
		}
	}
	set(headerKey, c.Key)
	set(headerScope, c.Scope)
	set(headerReplyTo, c.ReplyTo)
	if c.Expected != nil {
		headers[headerExpected] = expectedText(*c.Expected)
	}
	if c.Undoes != uuid.Nil {
		headers[headerUndoes] = c.Undoes.String()
	}
	if !c.Deadline.IsZero() {
		headers[headerDeadline] = c.Deadline.UTC().Format(time.RFC3339Nano)
	}
	if c.Class != admission.Normal {
		headers[headerClass] = c.Class.String()
	}
	metadata := c.Metadata
	metadata.Headers = headers
	m := outbox.Message{
		Topic: Topic, Key: c.Target, ID: c.ID, Type: c.Type, ContentType: c.ContentType, Data: c.Data, Metadata: metadata,
	}
	if m.Key == "" {
		m.Key = c.ID.String()
	}
	return m, nil
}

// check refuses what could not be carried out later, while somebody can still be told. What is left is checked by the
// outbox.
func check(c bus.Command) error {
	key := c.Key
	if key == "" {
		key = c.ID.String()
	}
	if err := (eventstore.Claim{Scope: c.Scope, Key: key}).Validate(); err != nil {
		return err
	}
	if c.Payload != nil && len(c.Data) == 0 {
		return &eventstore.InvalidError{
			Field: "Command.Data", Reason: "is empty, although there is a payload", Remedy: "make the command with Bus.Prepare, which encodes it",
		}
	}
	if c.ReplyTo != "" {
		if err := (eventstore.Route{Topic: c.ReplyTo}).Validate(); err != nil {
			return fmt.Errorf("ReplyTo: %w", err)
		}
	}
	if c.ReplyTo == Topic {
		return &eventstore.InvalidError{
			Field: "Command.ReplyTo", Value: c.ReplyTo, Reason: "is the topic of commands", Remedy: "name a topic for replies",
		}
	}
	if year := c.Deadline.UTC().Year(); year < 1 || year > 9999 {
		return &eventstore.InvalidError{
			Field: "Command.Deadline", Value: c.Deadline.String(), Reason: "has a year beyond 9999", Remedy: "leave out a deadline that never comes",
		}
	}
	for name := range c.Metadata.Headers {
		if strings.HasPrefix(name, headerPrefix) {
			return &eventstore.InvalidError{
				Field: "Command.Metadata.Headers", Value: name, Reason: "is a name of this package's own", Remedy: "choose another name",
			}
		}
	}
	if _, ok := className(c.Class.String()); !ok {
		return &eventstore.InvalidError{
			Field: "Command.Class", Value: c.Class.String(), Reason: "is not known", Remedy: "use a class of package admission",
		}
	}
	return nil
}

func expectedText(e eventstore.ExpectedVersion) string {
	switch v, exact := e.Exact(); {
	case exact:
		return strconv.FormatInt(int64(v), 10)
	case e == eventstore.StreamExists:
		return expectExists
	}
	return expectAny
}

func className(text string) (admission.Class, bool) {
	for _, class := range [...]admission.Class{admission.Normal, admission.Critical, admission.Bulk, admission.Operator} {
		if class.String() == text {
			return class, true
		}
	}
	return 0, false
}

// command reads what [message] made. Even with an error the command has its id, type and where to reply to, as far as
// they can be read, so that its end can be told.
func command(e eventstore.RecordedEvent) (bus.Command, error) {
	c := bus.Command{
		ID: e.ID, Type: e.Type, Data: e.Data, ContentType: e.ContentType, Target: e.PartitionKey, Metadata: e.Metadata,
	}
	if c.Target == c.ID.String() {
		c.Target = ""
	}
	own := e.Metadata.Headers
	c.Metadata.Headers = make(map[string]string, len(own))
	for name, value := range own {
		if !strings.HasPrefix(name, headerPrefix) {
			c.Metadata.Headers[name] = value
		}
	}
	c.Key, c.Scope, c.ReplyTo = own[headerKey], own[headerScope], own[headerReplyTo]
	var fault error
	refuse := func(name, reason string) {
		if fault == nil {
			fault = &eventstore.InvalidError{
				Field: "header " + name, Value: own[name], Reason: reason, Remedy: "send commands with this package",
			}
		}
	}
	if text := own[headerExpected]; text != "" {
		expected := eventstore.AnyVersion
		switch v, err := strconv.ParseInt(text, 10, 64); {
		case err == nil && v >= 0:
			expected = eventstore.Exactly(eventstore.Version(v))
		case text == expectExists:
			expected = eventstore.StreamExists
		case text != expectAny:
			refuse(headerExpected, "is no version")
		}
		c.Expected = &expected
	}
	if text := own[headerUndoes]; text != "" {
		id, err := uuid.Parse(text)
		if err != nil {
			refuse(headerUndoes, "is no id")
		}
		c.Undoes = id
	}
	if text := own[headerDeadline]; text != "" {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			refuse(headerDeadline, "is no time")
		}
		c.Deadline = at
	}
	if text := own[headerClass]; text != "" {
		class, ok := className(text)
		if !ok {
			refuse(headerClass, "is no class")
		}
		c.Class = class
	}
	if c.ReplyTo != "" && (eventstore.Route{Topic: c.ReplyTo}).Validate() != nil || c.ReplyTo == Topic {
		refuse(headerReplyTo, "is no topic for replies")
		c.ReplyTo = ""
	}
	if e.Version > 0 {
		fault = &eventstore.InvalidError{
			Field: "topic", Value: Topic, Reason: "carries an event of stream " + e.Stream.String(), Remedy: "take the route to this topic away",
		}
	}
	return c, fault
}
