package snapshot_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/daybook-go/daybook/snapshot"
)

type leaf struct{ At time.Time }

type tree struct {
	Children []*tree
	Leaf     map[string]leaf
}

// marked has a field that no codec reads.
type marked struct {
	A int `msgpack:"a"`
	b int
}

func TestFingerprintFollowsTheShape(t *testing.T) {
	t.Parallel()
	of := func(v any) string {
		return snapshot.Fingerprint(reflect.TypeOf(v), "application/msgpack", 0)
	}
	base := of(struct{ A int }{})
	if base != of(struct{ A int }{}) || len(base) != 32 {
		t.Errorf("fingerprint %q is not stable", base)
	}
	different := map[string]string{
		"base": base,
		"name": of(struct{ B int }{}),
		"type": of(struct{ A int64 }{}),
		"tag": of(struct {
			A int `msgpack:"b"`
		}{}),
		"more":         of(struct{ A, B int }{}),
		"order":        of(struct{ B, A int }{}),
		"pointer":      of(struct{ A *int }{}),
		"slice":        of(struct{ A []int }{}),
		"array":        of(struct{ A [2]int }{}),
		"map key":      of(struct{ A map[int]int }{}),
		"map value":    of(struct{ A map[int]string }{}),
		"time":         of(struct{ A time.Time }{}),
		"recursive":    of(tree{}),
		"nested":       of(leaf{}),
		"inside":       of(struct{ L struct{ A int } }{}),
		"inside other": of(struct{ L struct{ A uint } }{}),
		"codec":        snapshot.Fingerprint(reflect.TypeOf(struct{ A int }{}), "application/json", 0),
		"revision":     snapshot.Fingerprint(reflect.TypeOf(struct{ A int }{}), "application/msgpack", 1),
	}
	seen := map[string]string{}
	for name, fingerprint := range different {
		if other, taken := seen[fingerprint]; taken {
			t.Errorf("%s and %s have the same fingerprint", name, other)
		}
		seen[fingerprint] = name
	}
	if with, without := of(marked{b: 1}), of(func() any {
		type marked struct {
			A int `msgpack:"a"`
		}
		return marked{}
	}()); with != without {
		t.Error("a field that is not stored changed the fingerprint")
	}
}

// A change in a type that is reached in several ways must show wherever it is.
func TestFingerprintReachesNamedTypes(t *testing.T) {
	t.Parallel()
	of := func(v any) string { return snapshot.Fingerprint(reflect.TypeOf(v), "", 0) }
	before := func() string {
		type item struct{ N int }
		type state struct{ Items map[string][]*item }
		return of(state{})
	}()
	after := func() string {
		type item struct{ N, Price int }
		type state struct{ Items map[string][]*item }
		return of(state{})
	}()
	if before == after {
		t.Error("a new field of an inner type does not show")
	}
}
