package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
)

// Fingerprint names what a snapshot's bytes depend on: the shape of the state type (names, types and tags of its
// fields, through all types that it is made of), the content type of the codec, and the revision of [Policy]. Code that
// disagrees in any of them has another fingerprint and does not see the snapshot.
//
// Types that encode themselves (time.Time, decimals) count by their name, not by their fields. The text is 32
// hexadecimal digits.
func Fingerprint(state reflect.Type, contentType string, revision int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d\n", contentType, revision)
	describe(&b, state, map[reflect.Type]bool{})
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}

// describe writes the shape of t. Named types are spelled out once, which also ends the recursion of recursive ones.
func describe(b *strings.Builder, t reflect.Type, seen map[reflect.Type]bool) {
	b.WriteString(t.String())
	if seen[t] || encodesItself(t) {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Struct:
		b.WriteByte('{')
		for f := range fields(t) {
			fmt.Fprintf(b, "%s %q ", f.Name, f.Tag)
			describe(b, f.Type, seen)
			b.WriteByte(';')
		}
		b.WriteByte('}')
	case reflect.Map:
		b.WriteByte('[')
		describe(b, t.Key(), seen)
		b.WriteByte(']')
		describe(b, t.Elem(), seen)
	case reflect.Slice, reflect.Array, reflect.Pointer:
		b.WriteByte('*')
		describe(b, t.Elem(), seen)
	default:
		b.WriteByte(':')
		b.WriteString(t.Kind().String())
	}
}

// fields yields the fields that a codec can see: exported ones, and embedded ones for the sake of what they promote.
func fields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); (f.IsExported() || f.Anonymous) && !yield(f) {
				return
			}
		}
	}
}

func encodesItself(t reflect.Type) bool {
	if t.Name() == "" || t.Kind() == reflect.Interface {
		return false
	}
	for _, name := range [...]string{"MarshalBinary", "MarshalText", "MarshalMsgpack", "EncodeMsgpack", "MarshalJSON"} {
		if _, found := reflect.PointerTo(t).MethodByName(name); found {
			return true
		}
	}
	return false
}
