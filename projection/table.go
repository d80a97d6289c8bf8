package projection

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"
)

// table is where a view's rows are, and every statement on it.
type table struct {
	schema, name string // unquoted
	keys, values []part

	quoted      string
	fingerprint string
	create      string
	load        string
	upsert      string
	remove      string
	get         string
	all         string
}

func newTable(schema, name string, version int, k, s reflect.Type) (*table, error) {
	keys, err := partsOf(k, "key", "key "+typeName(k), true)
	if err != nil {
		return nil, err
	}
	values, err := partsOf(s, "value", "state "+typeName(s), false)
	if err != nil {
		return nil, err
	}
	for _, kp := range keys {
		for _, vp := range values {
			if kp.name == vp.name {
				return nil, fmt.Errorf("%s and %s are both column %q: give one another db tag", kp.field, vp.field, kp.name)
			}
		}
	}
	t := &table{schema: schema, name: tableName(name, version), keys: keys, values: values}
	t.quoted = pgx.Identifier{schema, t.name}.Sanitize()
	t.build()
	return t, nil
}

func tableName(name string, version int) string { return fmt.Sprintf("%s_v%d", name, version) }

func typeName(t reflect.Type) string {
	if t.Name() == "" {
		return t.String()
	}
	return t.Name()
}

func (t *table) build() {
	both := append(append([]part{}, t.keys...), t.values...)
	list := func(parts []part, sep string, f func(i int, p *part) string) string {
		out := make([]string, len(parts))
		for i := range parts {
			out[i] = f(i, &parts[i])
		}
		return strings.Join(out, sep)
	}
	quoted := func(_ int, p *part) string { return p.quoted() }
	arrays := func(i int, p *part) string { return fmt.Sprintf("$%d::%s[]", i+1, p.wire.name) }
	alias := func(i int, _ *part) string { return fmt.Sprintf("c%d", i) }
	sameKey := list(t.keys, " AND ", func(i int, p *part) string { return "x." + p.quoted() + " = " + p.cast(fmt.Sprintf("u.c%d", i)) })

	t.fingerprint = list(t.keys, ", ", func(_ int, p *part) string { return p.name + " " + p.sql + " key" })
	for i := range t.values {
		t.fingerprint += ", " + t.values[i].name + " " + t.values[i].sql
		if t.values[i].null {
			t.fingerprint += " null"
		}
	}

	if t.schema != defaultSchema {
		t.fingerprint += " in schema " + t.schema
	}

	t.create = "CREATE TABLE " + t.quoted + " (" +
		list(t.keys, ", ", func(_ int, p *part) string { return p.declaration(true) })
	for i := range t.values {
		t.create += ", " + t.values[i].declaration(false)
	}
	t.create += ", PRIMARY KEY (" + list(t.keys, ", ", quoted) + ")) WITH (fillfactor = 80)"

	selected := func(a string) string {
		s := list(t.values, ", ", func(_ int, p *part) string { return p.selected(a) })
		if s == "" {
			return ""
		}
		return ", " + s
	}
	// LATERAL … LIMIT 1 is a probe of the primary key per key, whatever the statistics say.
	t.load = "SELECT u.n" + selected("x") + " FROM unnest(" + list(t.keys, ", ", arrays) + ") WITH ORDINALITY AS u(" +
		list(t.keys, ", ", alias) + ", n) CROSS JOIN LATERAL (SELECT * FROM " + t.quoted + " x WHERE " + sameKey + " LIMIT 1) x"

	t.upsert = "INSERT INTO " + t.quoted + " (" + list(both, ", ", quoted) + ") SELECT " +
		list(both, ", ", func(i int, p *part) string { return p.cast(fmt.Sprintf("u.c%d", i)) }) +
		" FROM unnest(" + list(both, ", ", arrays) + ") AS u(" + list(both, ", ", alias) + ") ORDER BY " +
		list(t.keys, ", ", alias) + " ON CONFLICT (" + list(t.keys, ", ", quoted) + ") DO "
	if len(t.values) == 0 {
		t.upsert += "NOTHING"
	} else {
		t.upsert += "UPDATE SET " + list(t.values, ", ", func(_ int, p *part) string { return p.quoted() + " = excluded." + p.quoted() })
	}

	t.remove = "DELETE FROM " + t.quoted + " AS x USING unnest(" + list(t.keys, ", ", arrays) + ") AS u(" +
		list(t.keys, ", ", alias) + ") WHERE " + sameKey

	t.get = "SELECT " + strings.TrimPrefix(selected("x")+", 1", ", ") + " FROM " + t.quoted + " x WHERE " +
		list(t.keys, " AND ", func(i int, p *part) string {
			return "x." + p.quoted() + " = " + p.cast(fmt.Sprintf("$%d::%s", i+1, p.wire.name))
		})
	t.all = "SELECT " + list(t.keys, ", ", func(_ int, p *part) string { return p.selected("x") }) + selected("x") +
		" FROM " + t.quoted + " x ORDER BY " + list(t.keys, ", ", func(_ int, p *part) string { return "x." + p.quoted() })
}

// collectAll encodes parts of each of vs as arguments of a statement. On an error index says which of vs it was.
func collectAll(parts []part, n int, at func(int) reflect.Value) (args []any, index int, err error) {
	args = make([]any, len(parts))
	for i := range parts {
		data := parts[i].newColumn(n)
		for j := range n {
			if err := parts[i].collect(at(j), data); err != nil {
				return nil, j, err
			}
		}
		args[i] = data.values()
	}
	return args, 0, nil
}

func cellsFor(parts []part) (cells []cell, targets []any) {
	for i := range parts {
		c := parts[i].newCell()
		cells, targets = append(cells, c), append(targets, c.target())
	}
	return cells, targets
}

func restoreAll(parts []part, cells []cell, v reflect.Value) error {
	for i := range parts {
		if err := parts[i].restore(v, cells[i]); err != nil {
			return err
		}
	}
	return nil
}

func settleAll(parts []part, v reflect.Value) error {
	for i := range parts {
		if err := parts[i].settleIn(v); err != nil {
			return err
		}
	}
	return nil
}
