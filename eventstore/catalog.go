package eventstore

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Catalog knows a set of event types: it turns events into what is stored and back. A package of domain code has one,
// in a package variable; programs that read several join them with [Join].
//
// A Catalog is immutable and safe for concurrent use.
type Catalog struct {
	byName map[string]*registration
	byType map[reflect.Type]*registration
}

// NewCatalog makes a catalog of types.
//
// It panics if a type cannot be stored without loss (see [Msgpack] for the rules), if a name is taken or malformed, if
// a Go type has two names, or if there are no types. The text lists every fault with its field and remedy. Since
// catalogs are package variables, a mistake stops every program and test before main.
func NewCatalog(types ...AnyEventType) *Catalog {
	made := &Catalog{byName: map[string]*registration{}, byType: map[reflect.Type]*registration{}}
	var faults []error
	for i, t := range types {
		if t == nil {
			faults = append(faults, fmt.Errorf("argument %d is nil: pass the result of TypeOf", i+1))
			continue
		}
		r := t.register()
		if err := errors.Join(r.validate(), made.add(&r)); err != nil {
			faults = append(faults, err)
		}
	}
	made.mustBeWhole("NewCatalog", faults, "pass at least one TypeOf")
	return made
}

// Join makes a catalog of everything in catalogs. One type may be in several of them. It panics if two of them give
// one name to different Go types, different names to one Go type, or different codecs to one type.
func Join(catalogs ...*Catalog) *Catalog {
	joined := &Catalog{byName: map[string]*registration{}, byType: map[reflect.Type]*registration{}}
	var faults []error
	for i, c := range catalogs {
		if c == nil {
			faults = append(faults, fmt.Errorf("argument %d is nil: pass the result of NewCatalog", i+1))
			continue
		}
		for _, name := range c.Types() {
			r := c.byName[name]
			if same, ok := joined.byName[name]; ok && same.goType == r.goType && same.codec.ContentType() == r.codec.ContentType() {
				continue
			}
			if err := joined.add(r); err != nil {
				faults = append(faults, err)
			}
		}
	}
	joined.mustBeWhole("Join", faults, "pass at least one catalog")
	return joined
}

func (c *Catalog) mustBeWhole(operation string, faults []error, remedy string) {
	if len(faults) == 0 && len(c.byName) == 0 {
		faults = append(faults, fmt.Errorf("there are no event types: %s", remedy))
	}
	if len(faults) > 0 {
		panic(fmt.Sprintf("eventstore: %s: %v", operation, errors.Join(faults...)))
	}
}

func (c *Catalog) add(r *registration) error {
	if other, ok := c.byName[r.name]; ok {
		return fmt.Errorf("event type %q is registered twice, for %s (%s) and %s (%s): give each event a name and codec of its own",
			r.name, other.goType, contentType(other.codec), r.goType, contentType(r.codec))
	}
	if other, ok := c.byType[r.goType]; ok {
		return fmt.Errorf("%s has two names, %q and %q: keep the one that is stored already", r.goType, other.name, r.name)
	}
	c.byName[r.name], c.byType[r.goType] = r, r
	return nil
}

func contentType(codec Codec) string {
	if codec == nil {
		return "no codec"
	}
	return codec.ContentType()
}

// Types returns the wire names, sorted. The slice belongs to the caller.
func (c *Catalog) Types() []string { return slices.Sorted(maps.Keys(c.byName)) }

// Contains reports whether the catalog knows the wire name.
func (c *Catalog) Contains(name string) bool {
	_, ok := c.byName[name]
	return ok
}

// TypeName returns the wire name of the Go type t.
func (c *Catalog) TypeName(t reflect.Type) (string, bool) {
	r, ok := c.byType[t]
	if !ok {
		return "", false
	}
	return r.name, true
}

// GoType returns the Go type of a wire name.
func (c *Catalog) GoType(name string) (reflect.Type, bool) {
	r, ok := c.byName[name]
	if !ok {
		return nil, false
	}
	return r.goType, true
}

// CheckImplements returns nil if every Go type of the catalog implements iface, else an error that names each type
// that does not, with the remedy. Values implement it, not pointers: events are values.
func (c *Catalog) CheckImplements(iface reflect.Type) error {
	if iface == nil || iface.Kind() != reflect.Interface {
		return &InvalidError{Field: "event interface", Value: fmt.Sprint(iface), Reason: "is not an interface type", Remedy: "pass reflect.TypeFor of the interface"}
	}
	var faults []error
	for _, name := range c.Types() {
		t := c.byName[name].goType
		switch {
		case t.Implements(iface):
		case reflect.PointerTo(t).Implements(iface):
			faults = append(faults, fmt.Errorf("event type %q (%s) implements %s with a pointer receiver: declare the method on the value, func (%s)", name, t, iface, t.Name()))
		default:
			faults = append(faults, fmt.Errorf("event type %q (%s) does not implement %s: add its methods, or leave the type out of this catalog", name, t, iface))
		}
	}
	return errors.Join(faults...)
}
