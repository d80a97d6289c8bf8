package eventstore_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
)

// The hashes are those that the authors of FNV publish for these strings.
func TestPartitionOfVectors(t *testing.T) {
	t.Parallel()
	vectors := []struct {
		key  string
		hash uint64
	}{
		{"", 0xcbf29ce484222325},
		{"a", 0xaf63dc4c8601ec8c},
		{"b", 0xaf63df4c8601f1a5},
		{"f", 0xaf63db4c8601ead9},
		{"fo", 0x08985907b541d342},
		{"foo", 0xdcb27518fed9d577},
		{"foob", 0xdd120e790c2512af},
		{"fooba", 0xcac165afa2fef40a},
		{"foobar", 0x85944171f73967e8},
	}
	for _, v := range vectors {
		for _, n := range []int{1, 2, 3, 7, 16, 64, 1000, 1 << 20} {
			if got, want := eventstore.PartitionOf(v.key, n), int(v.hash%uint64(n)); got != want {
				t.Errorf("PartitionOf(%q, %d) = %d, want %d", v.key, n, got, want)
			}
		}
	}
}

// The second source is the definition itself, in numbers without a word size.
func TestPartitionOfDefinition(t *testing.T) {
	t.Parallel()
	basis, _ := new(big.Int).SetString("14695981039346656037", 10)
	prime := big.NewInt(1099511628211)
	word := new(big.Int).Lsh(big.NewInt(1), 64)
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "key"))
		n := rapid.IntRange(1, math.MaxInt32).Draw(t, "partitions")
		h := new(big.Int).Set(basis)
		for _, b := range []byte(key) {
			h.Xor(h, big.NewInt(int64(b)))
			h.Mul(h, prime)
			h.Mod(h, word)
		}
		want := new(big.Int).Mod(h, big.NewInt(int64(n))).Int64()
		if got := eventstore.PartitionOf(key, n); int64(got) != want {
			t.Fatalf("PartitionOf(%q, %d) = %d, want %d", key, n, got, want)
		}
	})
}

func TestStreamHashVectors(t *testing.T) {
	t.Parallel()
	// FNV-1a with 32 bits of "a-b": 0x811c9dc5, then for each byte xor and times 0x01000193.
	want := uint32(0x811c9dc5)
	for _, b := range []byte("a-b") {
		want = (want ^ uint32(b)) * 0x01000193
	}
	if got := eventstore.StreamHash(eventstore.NewStreamID("a", "b")); got != want {
		t.Errorf("StreamHash = %#x, want %#x", got, want)
	}
}
