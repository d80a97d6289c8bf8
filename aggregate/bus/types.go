package bus

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/daybook-go/daybook/eventstore"
)

const maxTypeName = 128

// CommandType ties a Go type to the name under which its commands are sent. Make it with [TypeOf] and keep it in a
// package variable. It is immutable and safe for concurrent use.
type CommandType[C any] struct {
	name   string
	config typeConfig
}

// Name returns the wire name.
func (t CommandType[C]) Name() string { return t.name }

// TypeOption sets what most command types leave out; see [EncodedAs], [Target] and [WithoutKey].
type TypeOption func(*typeConfig)

type typeConfig struct {
	codec      eventstore.Codec
	target     func(payload any) string
	targetType reflect.Type // of the payload that target takes
	withoutKey bool
	noTarget   bool // Target was given nil
}

// EncodedAs sends commands of the type in the form of codec instead of [eventstore.Msgpack]. Data in the form of
// [eventstore.Msgpack] and [eventstore.JSON] is read all the same.
func EncodedAs(codec eventstore.Codec) TypeOption { return func(c *typeConfig) { c.codec = codec } }

// Target gives the ordering key of a command that travels through the outbox: commands with one key are carried out in
// the order in which they were sent. Usually the text of the stream that the command is about, which is what
// [HandleAggregate] takes without this option.
func Target[C any](key func(C) string) TypeOption {
	return func(c *typeConfig) {
		c.targetType, c.noTarget = reflect.TypeFor[C](), key == nil
		c.target = func(payload any) string { return key(payload.(C)) }
	}
}

// WithoutKey lets commands of the type pass [Idempotent] without a key: their handlers have effects that no key covers,
// and which a repeat may have again.
func WithoutKey() TypeOption { return func(c *typeConfig) { c.withoutKey = true } }

// TypeOf gives the struct type C a wire name such as "account.withdraw". Commands are stored and sent under the name, so
// it must not change when the Go type is renamed or moved.
//
// TypeOf runs while package variables are set up, so that a mistake stops every program and test before main. It
// panics, naming the remedy, when the name is malformed, when C is not a named struct, when the codec cannot carry every
// part of C (see [eventstore.Msgpack] for the rules), and when Target was given a function of another type.
//
// An exported field with the codec's tag "-", in C or in what it holds, is a part that would be lost: not stored, not sent,
// and not compared when a key comes again. Tags of other codecs do not matter, such as json:"-" for what a body of HTTP
// must not set, without EncodedAs. An unexported field may have the tag, and types that marshal themselves are believed.
func TypeOf[C any](name string, opts ...TypeOption) CommandType[C] {
	goType := reflect.TypeFor[C]()
	config := typeConfig{codec: eventstore.Msgpack}
	for _, opt := range opts {
		opt(&config)
	}
	refuse := func(format string, args ...any) {
		panic(fmt.Sprintf("bus: command type %q (%s): ", name, goType) + fmt.Sprintf(format, args...))
	}
	if fault := checkTypeName(name); fault != "" {
		refuse("the name %s: use a text like \"account.withdraw\"", fault)
	}
	switch {
	case goType.Kind() == reflect.Pointer:
		refuse("the Go type is a pointer: name the struct itself")
	case goType.Kind() != reflect.Struct || goType.Name() == "":
		refuse("the Go type is not a named struct: declare one for the command")
	case config.codec == nil || config.codec.ContentType() == "":
		refuse("the codec is nil or has no content type: leave out EncodedAs, or pass eventstore.Msgpack or eventstore.JSON")
	case config.noTarget:
		refuse("Target has no function: pass one, or leave the option out")
	case config.targetType != nil && config.targetType != goType:
		refuse("Target takes a %s: pass a function of %s", config.targetType, goType)
	}
	if err := checkPayload[C](config.codec); err != nil {
		refuse("%v", err)
	}
	return CommandType[C]{name: name, config: config}
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

// route is a command type as a bus keeps it.
type route struct {
	name   string
	goType reflect.Type
	codec  eventstore.Codec
	routing
	withoutKey bool
	decode     func(codec eventstore.Codec, data []byte) (any, error)
	validate   func(payload any) error
	handle     Handler
}

func newRoute[C any](t CommandType[C], by routing, handle Handler) *route {
	r := &route{
		name: t.name, goType: reflect.TypeFor[C](), codec: t.config.codec, routing: by, withoutKey: t.config.withoutKey,
		handle: handle,
		decode: func(codec eventstore.Codec, data []byte) (any, error) {
			var payload C
			err := codec.Unmarshal(data, &payload)
			return payload, err
		},
		validate: func(payload any) error {
			if v, ok := payload.(validator); ok {
				return v.Validate()
			}
			command := payload.(C)
			if v, ok := any(&command).(validator); ok {
				return v.Validate()
			}
			return nil
		},
	}
	if t.config.target != nil {
		r.target = t.config.target
		if r.says == nil {
			r.says = r.target
		}
	}
	return r
}

type validator interface{ Validate() error }

// codecFor returns the codec that reads a content type, parameters of which do not matter, and false when there is none.
func (r *route) codecFor(contentType string) (eventstore.Codec, bool) {
	contentType, _, _ = strings.Cut(contentType, ";")
	contentType = strings.ToLower(strings.TrimSpace(contentType))
	if contentType == "" {
		return r.codec, true
	}
	for _, codec := range [...]eventstore.Codec{r.codec, eventstore.Msgpack, eventstore.JSON} {
		if strings.ToLower(codec.ContentType()) == contentType {
			return codec, true
		}
	}
	return nil, false
}
