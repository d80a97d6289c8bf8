package projection

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
)

// part is one column of a key or a value.
type part struct {
	wire
	name  string // as written in the tag or derived from the field
	path  []int  // of the field; nil when the value itself is the column
	field string // for errors
	null  bool   // a pointer
}

// partsOf lists the columns of t: a scalar is one column called scalar, a struct a column per field.
func partsOf(t reflect.Type, scalar, path string, key bool) ([]part, error) {
	var parts []part
	var err error
	if isScalar(t) {
		var p part
		p, err = partFor(t, scalar, "", path, nil)
		parts = []part{p}
	} else {
		parts, err = structParts(t, path, nil)
	}
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, p := range parts {
		switch {
		case key && (p.null || !p.key):
			return nil, fmt.Errorf("%s: %s cannot be part of a key: use text, an integer, a bool, a time or a UUID", p.field, p.sql)
		case names[p.name] != "":
			return nil, fmt.Errorf("%s and %s are both column %q: give one another db tag", names[p.name], p.field, p.name)
		case len(p.name) > 63 || p.name == "" || checkText(p.name) != nil:
			return nil, fmt.Errorf("%s: column name %q: want 1 to 63 bytes of text", p.field, p.name)
		}
		names[p.name] = p.field
	}
	if key && len(parts) == 0 {
		return nil, fmt.Errorf("%s: a key needs at least one field", path)
	}
	return parts, nil
}

func structParts(t reflect.Type, path string, at []int) ([]part, error) {
	var parts []part
	var faults []error
	for f := range t.Fields() {
		here := path + "." + f.Name
		index := append(append([]int{}, at...), f.Index...)
		tag, tagged := f.Tag.Lookup("db")
		name, option, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && !tagged && f.Type.Kind() == reflect.Struct && !isScalar(f.Type):
			inner, err := structParts(f.Type, here, index)
			parts, faults = append(parts, inner...), append(faults, err)
			continue
		case !f.IsExported():
			faults = append(faults, fmt.Errorf("%s: the field is unexported and would be lost: export it", here))
			continue
		case name == "-":
			faults = append(faults, fmt.Errorf("%s: db:\"-\" would lose the field between batches: remove the field, or store it", here))
			continue
		case name == "":
			name = snake(f.Name)
		}
		p, err := partFor(f.Type, name, option, here, index)
		parts, faults = append(parts, p), append(faults, err)
	}
	return parts, errors.Join(faults...)
}

func partFor(t reflect.Type, name, option, path string, index []int) (part, error) {
	null := t.Kind() == reflect.Pointer
	if null {
		t = t.Elem()
	}
	w, err := wireFor(t, option, path)
	return part{wire: w, name: name, path: index, field: path, null: null}, err
}

func (p *part) quoted() string { return pgx.Identifier{p.name}.Sanitize() }

// declaration is the column in CREATE TABLE. Keys compare by bytes, so that their order is the same in every database.
func (p *part) declaration(key bool) string {
	switch {
	case key && p.text:
		return p.quoted() + ` text COLLATE "C" NOT NULL`
	case p.null:
		return p.quoted() + " " + p.sql
	}
	return p.quoted() + " " + p.sql + " NOT NULL"
}

// selected is the column of table alias in a SELECT, as the type that travels.
func (p *part) selected(alias string) string {
	if p.name == "" || p.wire.name == p.sql || p.sql == "boolean" {
		return alias + "." + p.quoted()
	}
	return alias + "." + p.quoted() + "::" + p.wire.name
}

// cast makes an expression of the type that travels one of the column's type.
func (p *part) cast(expr string) string {
	if p.wire.name == p.sql || p.sql == "boolean" {
		return expr
	}
	return expr + "::" + p.sql
}

// in is the part's field in v; for a nil pointer ok is false.
func (p *part) in(v reflect.Value) (field reflect.Value, ok bool) {
	if p.path != nil {
		v = v.FieldByIndex(p.path)
	}
	if !p.null {
		return v, true
	}
	if v.IsNil() {
		return v, false
	}
	return v.Elem(), true
}

func (p *part) collect(v reflect.Value, into columnData) error {
	field, ok := p.in(v)
	if !ok {
		into.addNull()
		return nil
	}
	return p.named(into.add(field))
}

func (p *part) settleIn(v reflect.Value) error {
	if p.settle == nil {
		return nil
	}
	field, ok := p.in(v)
	if !ok {
		return nil
	}
	if p.null { // what the pointer points to may be shared with an event
		fresh := reflect.New(field.Type())
		fresh.Elem().Set(field)
		whole := v
		if p.path != nil {
			whole = v.FieldByIndex(p.path)
		}
		whole.Set(fresh)
		field = fresh.Elem()
	}
	return p.named(p.settle(field))
}

func (p *part) restore(v reflect.Value, c cell) error {
	if p.path != nil {
		v = v.FieldByIndex(p.path)
	}
	if c.isNull() {
		if !p.null {
			return p.named(errors.New("the column is NULL"))
		}
		v.SetZero()
		return nil
	}
	if p.null {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	return p.named(c.store(v))
}

func (p *part) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("projection: column %q: %w", p.name, err)
}

// snake turns a Go name into a column name: AccountID is account_id, HTTPStatus http_status.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 {
			before := runes[i-1]
			follows := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if before != '_' && (!unicode.IsUpper(before) || follows) {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
