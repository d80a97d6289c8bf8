package projection

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// View is a read model with a row per key, made by pure folds: the rows of a batch are loaded, folded in memory and
// written back together with the place in the log.
//
// K is a string, an integer, a bool, a time.Time, a uuid.UUID or another type with MarshalText and UnmarshalText, kept
// in the column "key"; or a struct of such fields, a column each. S is a struct, a column per field, or one value in
// the column "value". Column names are the db tags, else the field names in snake case. Columns are:
//
//	string                            text (valid UTF-8 without zero bytes)
//	bool                              boolean
//	integers                          bigint
//	float32, float64                  double precision
//	time.Time                         timestamptz: UTC, microseconds
//	[]byte                            bytea
//	uuid.UUID                         uuid
//	a type named …Decimal             numeric, exact, by MarshalText and UnmarshalText
//	another type with MarshalText     text
//	other structs, slices, maps       jsonb
//	a pointer                         the same, NULL for nil
//
// The options `db:"balance,numeric"` and `db:"lines,jsonb"` choose by hand. After each event a fold's result becomes
// what the table would give back, so rows do not depend on how the log was cut into batches.
//
// A View is immutable, and its methods are safe for concurrent use.
type View[K comparable, S any] struct {
	// Name is the consumer's name, and the name of an SQL view on the version installed last.
	Name string
	// Version is part of the table's name, "balances_v1". Raise it whenever the folds or the columns change: the new
	// version gets a table of its own and starts at the beginning of the log.
	Version int
	// Events names the event types of the folds.
	Events *eventstore.Catalog
	Folds  []Fold[K, S]
	// Gone, if set, says after each event whether the row is to be deleted. A later event begins with the zero S.
	Gone func(S) bool
	// Inline: the view is applied by the append's own transaction, through [Inline], and not by a [Runner].
	Inline bool
	// Schema holds the view's tables. Two stores of one database need one each. Default "readmodels".
	Schema string
	// StoreSchema is the schema of the event store. Default "daybook".
	StoreSchema string
}

// ConsumerRef implements [Named].
func (v View[K, S]) ConsumerRef() consumer.Ref { return refFor(v.StoreSchema, v.Name, v.Version) }

func (v View[K, S]) table() (*table, error) {
	if reflect.TypeFor[S]().Kind() == reflect.Pointer {
		return nil, fmt.Errorf("state %s: is a pointer: use the value type", reflect.TypeFor[S]())
	}
	return newTable(cmp.Or(v.Schema, defaultSchema), v.Name, v.Version, reflect.TypeFor[K](), reflect.TypeFor[S]())
}

func (v View[K, S]) define() (*definition, error) {
	c, err := v.compile()
	if err != nil {
		return nil, err
	}
	return &definition{
		ref: v.ConsumerRef(), inline: v.Inline, types: c.names, fingerprint: c.table.fingerprint, applier: c, table: c.table,
		locks: func(events []eventstore.RecordedEvent) (locker, error) { return c.plan(events) },
	}, nil
}

// compiled is a checked View with everything that its batches need.
type compiled[K comparable, S any] struct {
	view  View[K, S]
	table *table
	names []string
	folds map[reflect.Type][]Fold[K, S]
}

func (v View[K, S]) compile() (*compiled[K, S], error) {
	c := &compiled[K, S]{view: v, folds: map[reflect.Type][]Fold[K, S]{}}
	faults := []error{checkName(v.Name, v.Version)}
	var types []reflect.Type
	for i, f := range v.Folds {
		if f.visit == nil {
			faults = append(faults, fmt.Errorf("field Folds[%d]: is zero: make it with On or OnEach", i))
			continue
		}
		if _, ok := c.folds[f.event]; !ok {
			types = append(types, f.event)
		}
		c.folds[f.event] = append(c.folds[f.event], f)
	}
	var err error
	c.names, err = wireNames(v.Events, types, "Folds")
	faults = append(faults, err)
	c.table, err = v.table()
	return c, errors.Join(append(faults, err)...)
}
