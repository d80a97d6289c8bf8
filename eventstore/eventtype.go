package eventstore

import (
	"fmt"
	"reflect"
	"sync"
)

// EventType ties a Go type to the name under which its values are stored. Make it with [TypeOf] and keep it in a
// package variable. It is immutable and safe for concurrent use.
type EventType[E any] struct {
	name  string
	codec Codec
}

// AnyEventType is an [EventType] of any Go type. No other type implements it.
type AnyEventType interface {
	// Name returns the wire name.
	Name() string
	register() registration
}

// TypeOption changes how the values of an event type are stored; see [EncodedAs].
type TypeOption func(*typeConfig)

type typeConfig struct{ codec Codec }

// EncodedAs stores new events of the type by codec instead of [Msgpack]. Events that were stored by [Msgpack] or [JSON]
// before stay readable, as each stored event names its codec.
func EncodedAs(codec Codec) TypeOption { return func(c *typeConfig) { c.codec = codec } }

// TypeOf gives the struct type E a wire name such as "account.deposited". The name is stored with every event, so it
// must not change when the Go type is renamed or moved. What is wrong with name or type is reported by [NewCatalog].
func TypeOf[E any](name string, opts ...TypeOption) EventType[E] {
	config := typeConfig{codec: Msgpack}
	for _, opt := range opts {
		opt(&config)
	}
	return EventType[E]{name: name, codec: config.codec}
}

// Name returns the wire name.
func (t EventType[E]) Name() string { return t.name }

func (t EventType[E]) register() registration {
	return registration{name: t.name, goType: reflect.TypeFor[E](), codec: t.codec, payloads: &payloadsOf[E]{}}
}

// registration is an event type as a catalog keeps it.
type registration struct {
	name     string
	goType   reflect.Type
	codec    Codec
	payloads payloads
}

// validate returns what keeps the type from being stored.
func (r *registration) validate() error {
	named := fmt.Sprintf("event type %q (%s)", r.name, r.goType)
	if fault := checkTypeName(r.name); fault != "" {
		return fmt.Errorf("%s: the name %s: use a text like \"account.deposited\"", named, fault)
	}
	if r.goType.Kind() != reflect.Struct || r.goType.Name() == "" {
		remedy := "declare a named struct type for the event"
		if r.goType.Kind() == reflect.Pointer {
			remedy = "register the struct itself, not a pointer to it"
		}
		return fmt.Errorf("%s: the Go type is not a named struct: %s", named, remedy)
	}
	if r.codec == nil || r.codec.ContentType() == "" {
		return fmt.Errorf("%s: the codec is nil or has no content type: leave out EncodedAs, or pass Msgpack or JSON", named)
	}
	if checker, ok := r.codec.(typeChecker); ok {
		if err := checker.checkType(r.goType); err != nil {
			return fmt.Errorf("%s: %w", named, err)
		}
	}
	return nil
}

// checkTypeName returns what is wrong with a wire name, or "".
func checkTypeName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxTypeName:
		return fmt.Sprintf("has %d bytes, more than %d", len(name), maxTypeName)
	}
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (c != '.' && c != '-' && c != '_' || i == 0 || i == len(name)-1) {
			return "may have lower-case letters, digits, and '.', '-' and '_' inside"
		}
	}
	return ""
}

// payloads decodes the payloads of one Go type.
type payloads interface {
	decode(codec Codec, data []byte) (any, error)
}

type payloadsOf[E any] struct {
	// free holds values to decode into: a variable of its own would go to the heap for every event, because the codec
	// sees it as any.
	free sync.Pool
}

func (p *payloadsOf[E]) decode(codec Codec, data []byte) (any, error) {
	target := p.borrow()
	defer p.giveBack(target)
	if err := codec.Unmarshal(data, target); err != nil {
		return nil, err
	}
	return *target, nil
}

func (p *payloadsOf[E]) into(codec Codec, data []byte, payload *E) error {
	target := p.borrow()
	defer p.giveBack(target)
	err := codec.Unmarshal(data, target)
	if err == nil {
		*payload = *target
	}
	return err
}

func (p *payloadsOf[E]) borrow() *E {
	if target, ok := p.free.Get().(*E); ok {
		return target
	}
	return new(E)
}

// giveBack forgets the value first: what it refers to belongs to whoever has the event now.
func (p *payloadsOf[E]) giveBack(target *E) {
	var zero E
	*target = zero
	p.free.Put(target)
}
