package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	defaultStoreSchema = "daybook"
	defaultSchema      = "readmodels"
)

// The kinds of rows in the store's table of consumers.
const (
	kindProjection = "projection"
	kindInline     = "inline"
)

// Named is what a [Waiter] can wait for: a [View] or a [Projection].
type Named interface {
	// ConsumerRef says under which name, version and store the projection keeps its place. The struct has the fields
	// Store (the schema of the store), Name and Version.
	ConsumerRef() consumer.Ref
}

// Definition is what can be installed and run: a [View] or a [Projection].
type Definition interface {
	Named
	define() (*definition, error)
}

// definition is a checked View or Projection without its type parameters.
type definition struct {
	ref         consumer.Ref
	inline      bool
	types       []string // wire names, sorted
	fingerprint string
	applier     consumer.Applier
	table       *table // nil for handlers
	setup       func(context.Context, pgx.Tx) error
	locks       func([]eventstore.RecordedEvent) (locker, error)
}

// locker is a plan that knows which rows it will fold.
type locker interface {
	consumer.Plan
	lockKeys() []int64
}

func (d *definition) kind() string {
	if d.inline {
		return kindInline
	}
	return kindProjection
}

func (d *definition) String() string { return fmt.Sprintf("%q version %d", d.ref.Name, d.ref.Version) }

var (
	nameForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
	// A view's own name must not look like the table of another.
	tableForm = regexp.MustCompile(`_v[0-9]+$`)
)

func checkName(name string, version int) error {
	var faults []error
	if !nameForm.MatchString(name) || tableForm.MatchString(name) {
		faults = append(faults, fmt.Errorf("field Name: %q: want 1 to 48 of a-z, 0-9 and _, a letter first, not ending like \"_v1\"", name))
	}
	if version < 1 || version > 1_000_000 {
		faults = append(faults, fmt.Errorf("field Version: %d: must be at least 1", version))
	}
	return errors.Join(faults...)
}

// wireNames looks up the types that are handled; types is not empty.
func wireNames(catalog *eventstore.Catalog, types []reflect.Type, field string) (names []string, err error) {
	if catalog == nil {
		return nil, errors.New("field Events: is nil: set the catalog that names the event types")
	}
	if len(types) == 0 {
		return nil, fmt.Errorf("field %s: is empty: nothing would ever happen", field)
	}
	var faults []error
	for _, t := range types {
		name, ok := catalog.TypeName(t)
		if !ok {
			faults = append(faults, fmt.Errorf("field %s: event type %s is not in Events: add it to the catalog with eventstore.TypeOf", field, t))
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), errors.Join(faults...)
}

// define checks definitions and their names against each other.
func define(all []Definition) ([]*definition, error) {
	var faults []error
	var defined []*definition
	seen := map[consumer.Ref]bool{}
	for i, p := range all {
		if p == nil {
			faults = append(faults, fmt.Errorf("projection: argument %d is nil: pass a View or a Projection", i+1))
			continue
		}
		d, err := p.define()
		if err != nil {
			ref := p.ConsumerRef()
			faults = append(faults, fmt.Errorf("projection: define %q version %d: %w", ref.Name, ref.Version, err))
			continue
		}
		if seen[d.ref] {
			faults = append(faults, fmt.Errorf("projection: define %s: the name is taken by another one here: give each its own", d))
			continue
		}
		if len(defined) > 0 && defined[0].ref.Store != d.ref.Store {
			faults = append(faults, fmt.Errorf("projection: define %s: StoreSchema %q differs from %q of %s: one call is about one store",
				d, d.ref.Store, defined[0].ref.Store, defined[0]))
			continue
		}
		seen[d.ref] = true
		defined = append(defined, d)
	}
	return defined, errors.Join(faults...)
}

func refFor(store, name string, version int) consumer.Ref {
	return consumer.Ref{Store: cmp.Or(store, defaultStoreSchema), Name: name, Version: version}
}
