package projection

import (
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"
)

// wire is how values of one Go type travel to PostgreSQL and back. Numerics, documents and UUIDs travel as text and
// are cast in SQL, which is exact and needs no types registered with the driver.
type wire struct {
	sql  string // the column's type
	name string // the type that travels: the element of the array parameter, and what is selected

	newColumn func(n int) columnData
	newCell   func() cell
	// settle makes a value what the table would give back, and refuses what it would refuse; nil when nothing changes.
	settle func(v reflect.Value) error
	// key: the type may be part of a key, because Go and PostgreSQL agree on which values are equal.
	key bool
	// text: the column is text, which has a collation.
	text bool
}

// columnData collects one column's values for unnest.
type columnData interface {
	add(v reflect.Value) error
	addNull()
	values() any
}

// cell receives one column of one row.
type cell interface {
	target() any
	store(v reflect.Value) error
	isNull() bool
}

func wireOf[T any](name, sql string, encode func(reflect.Value) (T, error), decode func(T, reflect.Value) error) wire {
	return wire{
		name: name, sql: sql,
		newColumn: func(n int) columnData { return &column[T]{encode: encode, all: make([]T, 0, n)} },
		newCell:   func() cell { return &scanned[T]{decode: decode} },
	}
}

type column[T any] struct {
	encode func(reflect.Value) (T, error)
	all    []T
	nulls  map[int]bool
}

func (c *column[T]) add(v reflect.Value) error {
	t, err := c.encode(v)
	if err == nil {
		c.all = append(c.all, t)
	}
	return err
}

func (c *column[T]) addNull() {
	if c.nulls == nil {
		c.nulls = map[int]bool{}
	}
	c.nulls[len(c.all)] = true
	var zero T
	c.all = append(c.all, zero)
}

func (c *column[T]) values() any {
	if c.nulls == nil {
		return c.all
	}
	pointers := make([]*T, len(c.all))
	for i := range c.all {
		if !c.nulls[i] {
			pointers[i] = &c.all[i]
		}
	}
	return pointers
}

type scanned[T any] struct {
	decode func(T, reflect.Value) error
	value  *T
}

func (s *scanned[T]) target() any                 { return &s.value }
func (s *scanned[T]) isNull() bool                { return s.value == nil }
func (s *scanned[T]) store(v reflect.Value) error { return s.decode(*s.value, v) }

// checkText refuses what PostgreSQL's text cannot hold.
func checkText(s string) error {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return errors.New("the text contains a zero byte, which PostgreSQL cannot store: remove it in the fold, or use []byte")
	case !utf8.ValidString(s):
		return errors.New("the text is not valid UTF-8: convert it in the fold, or use []byte")
	}
	return nil
}
