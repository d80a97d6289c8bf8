package commands

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/outbox"
)

// SagaSender sends the commands of sagas through the outbox, and reads what became of them there. It satisfies
// saga.Sender. Make it with [ForSagas]; it is safe for concurrent use and has nothing to close.
type SagaSender struct {
	bus  *bus.Bus
	rows outbox.Rows
}

// ForSagas returns the sender of a saga manager. b is asked for the stored form of commands, so it must know each type that a
// saga of the manager sends before the manager is made; it may run elsewhere than the dispatcher. rows is store.Outbox(), one of its own. ForSagas
// panics when one of the two is missing.
func ForSagas(b *bus.Bus, rows outbox.Rows) *SagaSender {
	switch {
	case b == nil:
		panic("commands: for sagas: the bus is nil: pass the one that bus.New made")
	case rows == nil:
		panic("commands: for sagas: rows is nil: pass store.Outbox()")
	}
	return &SagaSender{bus: b, rows: rows}
}

// Schema is the PostgreSQL schema of the store that commands go to.
func (s *SagaSender) Schema() string { return s.rows.Schema() }

// Prepare makes the stored form of a command, addressed by [bus.To] unless to is empty. Its errors are those of
// Bus.Prepare, and an [*eventstore.InvalidError] for what the outbox would not take: a target of more than 512 bytes, or that
// is no text, or more than 64 MiB of data. A deadline of ctx is not the command's, and neither is its metadata.
func (s *SagaSender) Prepare(ctx context.Context, to string, payload any) (flow.Command, error) {
	c, err := s.bus.Prepare(context.WithoutCancel(ctx), payload, bus.To(to))
	if err != nil {
		return flow.Command{}, err
	}
	if err := storable(c); err != nil {
		return flow.Command{}, fmt.Errorf("commands: prepare %q: %w", c.Type, err)
	}
	return flow.Command{Type: c.Type, Target: c.Target, ContentType: c.ContentType, Data: c.Data}, nil
}

// Knows returns nil when the bus has a handler for payloads of a type, else an [*bus.UnknownCommandError]. A saga.Manager
// asks when it is made for all that its definitions declare to send.
func (s *SagaSender) Knows(payload reflect.Type) error { return s.bus.Knows(payload) }

// storable refuses what the outbox would refuse, before anything is written. It checks as the outbox does, which stores a
// message like an event.
func storable(c bus.Command) error {
	w := eventstore.To(eventstore.NewStreamID("outbox", "message"), eventstore.AnyVersion, eventstore.EventData{
		ID: c.ID, Type: c.Type, ContentType: c.ContentType, Data: c.Data,
	})
	w.PartitionKey = c.Target
	_, _, err := eventstore.Prepare(context.Background(), []eventstore.Write{w})
	var invalid *eventstore.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	fault := *invalid
	if fault.Field == "PartitionKey" {
		fault.Field, fault.Remedy = "Target", "address the command to a short text, for example to a hash of the long one"
	}
	fault.Field = "Command." + strings.TrimPrefix(fault.Field, "event.")
	fault.Remedy = strings.ReplaceAll(fault.Remedy, "the event", "the command")
	return &fault
}

// sagaScope is the scope of the keys of a saga's commands, which are their ids.
func sagaScope(saga string) string { return "saga:" + saga }

// sagaReplies is the topic on which the ends of a saga's commands are told. It is also the name of the consumer of that
// topic, by which the cleaning of the outbox knows it for one that no relay has to publish.
func sagaReplies(saga string) string { return "saga-" + saga + "-replies" }

// Enqueue sends commands of one saga in the transaction of the caller, who commits. meta[i] belongs to commands[i]. It takes
// one round trip for each 10,000 commands. A command is known by its id for ever: sent again it takes no second effect. How
// it ended is told on the saga's topic of replies.
//
// Errors are those of [Schema.Enqueue].
func (s *SagaSender) Enqueue(ctx context.Context, tx pgx.Tx, saga string, meta []eventstore.Metadata, commands []flow.Command) error {
	if len(meta) != len(commands) {
		return &eventstore.InvalidError{
			Field: "meta", Value: fmt.Sprint(len(meta)), Reason: fmt.Sprintf("is not as long as the %d commands", len(commands)),
			Remedy: "pass the metadata of each command",
		}
	}
	messages := make([]outbox.Message, len(commands))
	for i, c := range commands {
		m, err := message(bus.Command{
			ID: c.ID, Type: c.Type, Data: c.Data, ContentType: c.ContentType, Target: c.Target, Scope: sagaScope(saga), Undoes: c.Undoes,
			ReplyTo: sagaReplies(saga), Metadata: meta[i],
		})
		if err != nil {
			return fmt.Errorf("commands: enqueue %q of saga %q: %w", c.Type, saga, err)
		}
		m.Metadata.Headers[headerSaga] = saga
		messages[i] = m
	}
	for part := range slices.Chunk(messages, maxEnqueued) {
		if err := outbox.Schema(s.rows.Schema()).Enqueue(ctx, tx, part...); err != nil {
			return fmt.Errorf("commands: enqueue for saga %q: %w", saga, err)
		}
	}
	return nil
}

// maxEnqueued is how many messages the outbox takes at once.
const maxEnqueued = 10_000

// Replies returns where the ends of a saga's commands are read, from the beginning, and what makes a reply of a message
// there. No relay and no broker is needed; a relay that runs publishes the topic all the same.
func (s *SagaSender) Replies(saga string) (consumer.Source, func(eventstore.RecordedEvent) (flow.Reply, error), error) {
	source, err := outbox.NewDirect(s.rows, outbox.SubscriptionConfig{Topic: sagaReplies(saga), Group: "saga-" + saga})
	if err != nil {
		return nil, nil, fmt.Errorf("commands: replies of saga %q: %w", saga, err)
	}
	return source, flowReply, nil
}

func flowReply(e eventstore.RecordedEvent) (flow.Reply, error) {
	id, r, err := DecodeReply(e)
	if err != nil {
		return flow.Reply{}, err
	}
	state, ok := flowStates[r.State]
	if !ok {
		return flow.Reply{}, errors.New("commands: decode reply " + e.ID.String() + ": its state " + string(r.State) + " is no end: let only dispatchers publish on the topic")
	}
	return flow.Reply{Command: id, State: state, Code: r.Code, Reason: r.Reason, At: e.RecordedAt}, nil
}

var flowStates = map[bus.OperationState]flow.ReplyState{
	bus.OperationDone: flow.ReplyDone, bus.OperationRefused: flow.ReplyRefused, bus.OperationExpired: flow.ReplyExpired,
	bus.OperationFailed: flow.ReplyFailed,
}
