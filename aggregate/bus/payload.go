package bus

import (
	"fmt"
	"reflect"

	"github.com/daybook-go/daybook/eventstore"
)

// checkPayload refuses payloads of which the codec would carry only a part. The codecs of eventstore look at the whole
// type before they encode a value, so a nil pointer brings up every fault; a field that a tag keeps out is none to them,
// as it may be in an event. A codec of the user's own answers for itself.
func checkPayload[C any](codec eventstore.Codec) error {
	d := dropping{tag: "msgpack", own: []string{"EncodeMsgpack", "MarshalMsgpack", "MarshalBinary", "MarshalText"}}
	switch codec {
	case eventstore.Msgpack:
	case eventstore.JSON:
		d.tag, d.own = "json", []string{"MarshalJSON", "MarshalText"}
	default:
		return nil
	}
	if _, err := codec.Marshal(new(*C)); err != nil {
		return err
	}
	d.seen = map[reflect.Type]bool{}
	t := reflect.TypeFor[C]()
	if path := d.find(t, t.Name()); path != "" {
		return fmt.Errorf("field %s: its tag `%s:\"-\"` keeps it from being stored, sent and compared when a key comes again: %s",
			path, d.tag, d.remedy())
	}
	return nil
}

// dropping looks for fields that a codec leaves out. Types that marshal themselves are believed.
type dropping struct {
	tag  string
	own  []string // the methods by which a type marshals itself
	seen map[reflect.Type]bool
}

func (d dropping) remedy() string {
	if d.tag == "json" {
		return "give it a name in the tag, or leave EncodedAs away (bodies of HTTP are JSON all the same)"
	}
	return "give it a name in the tag, or take it out of the command"
}

// find returns the first field that is left out, or "".
func (d dropping) find(t reflect.Type, path string) string {
	if d.seen[t] || d.marshalsItself(t) {
		return ""
	}
	d.seen[t] = true
	switch t.Kind() {
	case reflect.Pointer:
		return d.find(t.Elem(), path)
	case reflect.Slice, reflect.Array:
		return d.find(t.Elem(), path+"[]")
	case reflect.Map:
		if found := d.find(t.Key(), path+"[]"); found != "" {
			return found
		}
		return d.find(t.Elem(), path+"[]")
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			here := path + "." + field.Name
			if field.Tag.Get(d.tag) == "-" {
				if field.IsExported() || field.Anonymous && promotes(field.Type) {
					return here
				}
				continue // nobody else can set it
			}
			if found := d.find(field.Type, here); found != "" {
				return found
			}
		}
	}
	return ""
}

// promotes reports whether an embedded type gives the struct around it exported fields.
func promotes(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for _, field := range reflect.VisibleFields(t) {
		if field.IsExported() {
			return true
		}
	}
	return false
}

func (d dropping) marshalsItself(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return false
	}
	for _, name := range d.own {
		if _, found := reflect.PointerTo(t).MethodByName(name); found {
			return true
		}
	}
	return false
}
