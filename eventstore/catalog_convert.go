package eventstore

import (
	"fmt"
	"reflect"
)

// schemaVersion is the version of every payload's shape as long as no type declares a newer one.
const schemaVersion = 1

// Encode returns event, a value of a registered Go type, as what a store appends. ID, metadata and flags are left
// zero. The event is not changed and not kept.
//
// An unknown Go type and a value that cannot be stored without loss give an [*InvalidError].
func (c *Catalog) Encode(event any) (EventData, error) {
	r, ok := c.byType[reflect.TypeOf(event)]
	if !ok {
		return EventData{}, c.unknownGoType(event)
	}
	data, err := r.codec.Marshal(event)
	if err != nil {
		return EventData{}, &InvalidError{
			Field: fmt.Sprintf("event %q", r.name), Value: r.goType.String(), Reason: "cannot be stored",
			Remedy: err.Error(),
		}
	}
	return EventData{Type: r.name, SchemaVersion: schemaVersion, ContentType: r.codec.ContentType(), Data: data}, nil
}

func (c *Catalog) unknownGoType(event any) error {
	fault := &InvalidError{
		Field: "event", Value: fmt.Sprintf("%T", event), Reason: "has a Go type that is in no catalog",
		Remedy: "add it to the catalog with TypeOf",
	}
	t := reflect.TypeOf(event)
	if t == nil {
		fault.Reason, fault.Remedy = "is nil", "pass an event"
	} else if _, known := c.byType[indirect(t)]; known {
		fault.Reason, fault.Remedy = "is a pointer to an event", "pass the event itself"
	}
	return fault
}

func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// Decode returns the payload of e as a value (not a pointer) of the Go type registered for e.Type.
//
// A name that the catalog does not know gives an [*UnknownTypeError]; bytes that are damaged or do not fit the type, a
// content type without a codec, and a schema version newer than the code give a [*DecodeError].
func (c *Catalog) Decode(e RecordedEvent) (any, error) {
	r, codec, err := c.find(&e)
	if err != nil {
		return nil, err
	}
	payload, err := r.payloads.decode(codec, e.Data)
	if err != nil {
		return nil, decodeError(&e, err)
	}
	return payload, nil
}

// DecodeAs returns e with its payload as an E: the registered Go type itself, or an interface that it implements.
// Errors are those of [Catalog.Decode]; a payload that is no E gives a [*DecodeError].
func DecodeAs[E any](c *Catalog, e RecordedEvent) (Event[E], error) {
	event := Event[E]{
		ID: e.ID, Stream: e.Stream, Version: e.Version, Position: e.Position,
		RecordedAt: e.RecordedAt, Metadata: e.Metadata,
	}
	r, codec, err := c.find(&e)
	if err != nil {
		return Event[E]{}, err
	}
	if exact, ok := r.payloads.(*payloadsOf[E]); ok {
		if err := exact.into(codec, e.Data, &event.Payload); err != nil {
			return Event[E]{}, decodeError(&e, err)
		}
		return event, nil
	}
	payload, err := r.payloads.decode(codec, e.Data)
	if err != nil {
		return Event[E]{}, decodeError(&e, err)
	}
	fits := false
	if event.Payload, fits = payload.(E); !fits {
		return Event[E]{}, decodeError(&e, fmt.Errorf("the Go type %s is no %s: register the type that the reader wants", r.goType, reflect.TypeFor[E]()))
	}
	return event, nil
}

// find returns the type and codec of e.
func (c *Catalog) find(e *RecordedEvent) (*registration, Codec, error) {
	r, ok := c.byName[e.Type]
	if !ok {
		return nil, nil, &UnknownTypeError{Type: e.Type, Stream: e.Stream, Version: e.Version, Position: e.Position}
	}
	if e.SchemaVersion > schemaVersion {
		return nil, nil, decodeError(e, fmt.Errorf("it is stored in schema version %d, newer than %d of this program: deploy the code that wrote it", e.SchemaVersion, schemaVersion))
	}
	switch e.ContentType {
	case r.codec.ContentType():
		return r, r.codec, nil
	case Msgpack.ContentType():
		return r, Msgpack, nil
	case JSON.ContentType():
		return r, JSON, nil
	}
	return nil, nil, decodeError(e, fmt.Errorf("no codec reads the content type %q: register the type with EncodedAs and the codec that wrote it", e.ContentType))
}

func decodeError(e *RecordedEvent, err error) error {
	return &DecodeError{Type: e.Type, Stream: e.Stream, Version: e.Version, Position: e.Position, Err: err}
}
