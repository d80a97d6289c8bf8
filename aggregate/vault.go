package aggregate

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/daybook-go/daybook/eventstore"
)

// vault keeps states aside so that nobody can change them: neither a caller who was given the state, nor an Evolve
// that changes maps in place. It is safe for concurrent use; it holds nothing itself.
//
// States of plain fields are kept by assignment. Others are kept encoded, if the codec is sure to bring back all of it.
type vault[S any] struct {
	plain bool
	texts bool // a plain state with strings, whose size depends on the value
	codec eventstore.Codec
}

// newVault returns an error, with a remedy, when states of the type cannot be kept.
func newVault[S any]() (*vault[S], error) {
	t := reflect.TypeFor[S]()
	if texts, plain := plainType(t); plain {
		return &vault[S]{plain: true, texts: texts}, nil
	}
	v := &vault[S]{codec: eventstore.Msgpack}
	if err := checkState[S](v.codec); err != nil {
		return nil, err
	}
	if err := (&lossy{pointers: map[reflect.Type]bool{}, inside: map[reflect.Type]int{}}).check(t, t.String()); err != nil {
		return nil, fmt.Errorf("state %w", err)
	}
	return v, nil
}

// kept is a state in a vault. It never changes and may be opened by several goroutines at once.
type kept[S any] struct {
	vault *vault[S]
	plain S
	data  []byte
}

// keep returns the state as it is now. The state remains the caller's.
func (v *vault[S]) keep(state S) (k kept[S], err error) {
	if v.plain {
		return kept[S]{vault: v, plain: state}, nil
	}
	defer recoverAs(&err, "encode the state")
	data, err := v.codec.Marshal(&state)
	return kept[S]{vault: v, data: data}, err
}

// open returns a state of the caller's own.
func (k kept[S]) open() (state S, err error) {
	if k.vault.plain {
		return k.plain, nil
	}
	defer recoverAs(&err, "decode the state")
	err = k.vault.codec.Unmarshal(k.data, &state)
	return state, err
}

// size returns the bytes of memory that the state takes, about.
func (k kept[S]) size() int {
	n := int(unsafe.Sizeof(k)) + cap(k.data)
	if k.vault.texts {
		n += textBytes(reflect.ValueOf(&k.plain).Elem())
	}
	return n
}

// recoverAs turns a panic of a marshaller of the user's into an error.
func recoverAs(err *error, doing string) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: panic: %v", doing, p)
	}
}

var timeType = reflect.TypeFor[time.Time]()

// plainType reports whether an assignment copies all of a value that could change, and whether there are strings in it.
func plainType(t reflect.Type) (texts, plain bool) {
	if t == timeType {
		return false, true // its location never changes
	}
	switch t.Kind() {
	case reflect.String:
		return true, true
	case reflect.Array:
		return plainType(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			text, ok := plainType(t.Field(i).Type)
			if !ok {
				return false, false
			}
			texts = texts || text
		}
		return texts, true
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Invalid:
		return false, false
	default:
		return false, true
	}
}

// textBytes returns the length of all strings in a plain value.
func textBytes(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Array:
		for i := range v.Len() {
			n += textBytes(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == timeType {
			return 0
		}
		for i := range v.NumField() {
			n += textBytes(v.Field(i))
		}
	}
	return n
}

// lossy looks for what would not come back as it was although the codec accepts it. Types that marshal themselves are
// believed.
type lossy struct {
	pointers map[reflect.Type]bool // seen
	inside   map[reflect.Type]int  // being looked at; how many pointers lead there
	depth    int                   // how many pointers lead here
}

func twoPlaces(path string, t reflect.Type) error {
	return fmt.Errorf("%s: a second place for a pointer to %s: two of them could be one, and would come back as two: hold values, or ids", path, t)
}

func (l *lossy) check(t reflect.Type, path string) error {
	if marshalsItself(t) {
		return nil
	}
	if depth, found := l.inside[t]; found {
		if l.depth > depth {
			return twoPlaces(path, t)
		}
		return nil
	}
	l.inside[t] = l.depth
	defer delete(l.inside, t)
	switch t.Kind() {
	case reflect.Pointer:
		if l.pointers[t] {
			return twoPlaces(path, t.Elem())
		}
		l.pointers[t] = true
		l.depth++
		defer func() { l.depth-- }()
		return l.check(t.Elem(), path)
	case reflect.Map:
		if err := l.check(t.Key(), path); err != nil {
			return err
		}
		return l.check(t.Elem(), path+"[]")
	case reflect.Slice, reflect.Array:
		return l.check(t.Elem(), path+"[]")
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("msgpack"), ",")
			switch {
			case name == "-":
				return fmt.Errorf("%s.%s: its tag keeps it from being stored: give it a name, or leave it out of the state", path, field.Name)
			case strings.Contains(options, "omitempty"):
				return fmt.Errorf("%s.%s: omitempty turns empty into nil: leave it out of the tag", path, field.Name)
			}
			if err := l.check(field.Type, path+"."+field.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func marshalsItself(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return false
	}
	for _, name := range [...]string{"EncodeMsgpack", "MarshalMsgpack", "MarshalBinary", "MarshalText"} {
		if _, found := reflect.PointerTo(t).MethodByName(name); found {
			return true
		}
	}
	return false
}
