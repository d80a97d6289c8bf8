package eventstore

import (
	"math"
	"strconv"
)

// AllPartitions asks for the messages of every partition; see [OutboxQuery].
const AllPartitions = -1

// OutboxMessage is what a store has to publish on a topic: an event as it stands in the log, or a message of its own,
// such as a command or what [Route.Map] made of an event.
type OutboxMessage struct {
	// RecordedEvent is the event. For a message of its own Stream is zero and Version 0, and PartitionKey is its key.
	RecordedEvent
	// Topic is where it is published. One event may be a message on several topics, at one position.
	Topic string
}

// IsEvent reports whether the message is an event of the log.
func (m OutboxMessage) IsEvent() bool { return m.Version > 0 }

// OutboxQuery selects messages of the outbox. The zero Partition is partition 0: ask for [AllPartitions] by name.
type OutboxQuery struct {
	// Topic selects one topic; empty selects every topic.
	Topic string
	// Partition selects one partition, or [AllPartitions].
	Partition int
	// LastPartition, when it is beyond Partition, makes that the first of a range of partitions, and is its last. It may lie
	// beyond the last partition that the store has.
	LastPartition int
	// PartitionKey selects the messages of one key; empty selects every key. With it Topic and Partition are needed, the
	// partition of the key.
	PartitionKey string
	// After is the position beyond which messages are wanted.
	After Position
	// UpTo bounds what is wanted; zero stands for the safe head, which bounds it in any case.
	UpTo Position
	// Limit is the greatest number of messages, from 1. Messages at the position of the last one, on other topics, come
	// in addition, so that a page never ends between them.
	Limit int
}

// Validate reports what keeps the query from being answered. The error is an [*InvalidError].
func (q OutboxQuery) Validate() error {
	if q.Topic != "" {
		if err := checkTopic("OutboxQuery.Topic", q.Topic); err != nil {
			return err
		}
	}
	switch {
	case q.Partition < AllPartitions:
		return &InvalidError{
			Field: "OutboxQuery.Partition", Value: strconv.Itoa(q.Partition), Reason: "is negative", Remedy: "use AllPartitions, or a partition from 0",
		}
	case q.LastPartition != 0 && (q.Partition == AllPartitions || q.LastPartition < q.Partition || q.LastPartition > math.MaxInt32):
		return &InvalidError{
			Field: "OutboxQuery.LastPartition", Value: strconv.Itoa(q.LastPartition), Reason: "ends no range that begins at Partition",
			Remedy: "give a Partition from 0 and a LastPartition from there on, or leave LastPartition at 0",
		}
	case q.PartitionKey != "" && q.LastPartition > max(q.Partition, 0):
		return &InvalidError{
			Field: "OutboxQuery.PartitionKey", Value: q.PartitionKey, Reason: "is in one partition, not in a range", Remedy: "leave LastPartition at 0",
		}
	case q.PartitionKey != "" && (q.Topic == "" || q.Partition == AllPartitions):
		return &InvalidError{
			Field: "OutboxQuery.PartitionKey", Value: q.PartitionKey, Reason: "needs a topic and a partition", Remedy: "give Topic and the Partition of the key",
		}
	case q.Limit < 1:
		return &InvalidError{
			Field: "OutboxQuery.Limit", Value: strconv.Itoa(q.Limit), Reason: "is below 1", Remedy: "ask for at least one message",
		}
	}
	return nil
}

// OutboxPage is a piece of the outbox.
type OutboxPage struct {
	// Messages are those that the query selects, by position, then topic.
	Messages []OutboxMessage
	// Through is the position up to which the page is complete: what the query selects at or below it, and above its
	// After, is in Messages, unless it was cleaned. It is never before After.
	Through Position
	// Cleaned is how far messages may be gone, because they were sent and passed by every subscriber that was following.
	// A reader that asked for messages at or below it may have missed some. It was read after the messages: whoever
	// misses one also sees why.
	Cleaned Position
}
