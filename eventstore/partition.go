package eventstore

import "hash/fnv"

// DefaultPartitions is the number of partitions of a store that was installed without saying another number.
const DefaultPartitions = 64

// PartitionOf returns the partition of a partition key in a store of n partitions: FNV-1a (64 bit, offset basis
// 0xcbf29ce484222325, prime 0x100000001b3; Fowler, Noll and Vo, draft-eastlake-fnv) of the key's bytes, modulo n. It
// is part of the stored format and never changes; docs/format.md has test vectors, and PostgreSQL has the same
// function as partition_of.
func PartitionOf(key string, n int) int {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int(h.Sum64() % uint64(n))
}
