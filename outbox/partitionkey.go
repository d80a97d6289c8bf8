package outbox

import "github.com/ThreeDotsLabs/watermill/message"

// PartitionKey returns what a broker must keep in one order: the partition of the store that the message belongs to.
// Give it to the broker's Watermill marshaler where that asks how to make a partition key, a message group or the like.
//
// It is the partition and not the stream, because messages of one partition form the chain in which a consumer sees
// that nothing is missing; the chain must arrive at one consumer. A broker's partitions may be fewer than the store's,
// never finer. The topic plays no part.
//
// The error is a [*HeaderError]: the message is not one of a relay's. PartitionKey is safe for concurrent use.
func PartitionKey(_ string, msg *message.Message) (string, error) {
	d := decoder{msg: msg}
	d.number(HeaderPartition, 0, 1<<31-1)
	return msg.Metadata[HeaderPartition], d.err
}
