package projection

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
)

var (
	timeType            = reflect.TypeFor[time.Time]()
	uuidType            = reflect.TypeFor[uuid.UUID]()
	textMarshalerType   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonMarshalerType   = reflect.TypeFor[json.Marshaler]()
)

// The driver counts microseconds in 64 bits and would wrap around beyond, without an error.
const minYear, maxYear = -4712, 294_000

// isScalar reports whether a type is one column although it is a struct or an array.
func isScalar(t reflect.Type) bool {
	return t == timeType || t == uuidType || hasText(t) || t.Kind() != reflect.Struct
}

func hasText(t reflect.Type) bool {
	return t.Implements(textMarshalerType) && reflect.PointerTo(t).Implements(textUnmarshalerType)
}

// wireFor chooses by the option of the db tag, then by type. path names the field in errors.
func wireFor(t reflect.Type, option, path string) (wire, error) {
	switch option {
	case "":
	case "numeric":
		if !hasText(t) {
			return wire{}, fmt.Errorf("%s: numeric needs a type with MarshalText and UnmarshalText, not %s", path, t)
		}
		return numericWire(), nil
	case "jsonb":
		return jsonWire(t, path)
	default:
		return wire{}, fmt.Errorf("%s: option %q is unknown: want numeric or jsonb", path, option)
	}
	switch {
	case t == timeType:
		return timeWire(), nil
	case t == uuidType:
		return uuidWire(), nil
	case hasText(t) && strings.HasSuffix(t.Name(), "Decimal"):
		return numericWire(), nil
	case hasText(t):
		return marshaledWire("text", true), nil
	}
	switch t.Kind() {
	case reflect.String:
		return stringWire(), nil
	case reflect.Bool:
		w := wireOf("bool", "boolean", func(v reflect.Value) (bool, error) { return v.Bool(), nil },
			func(b bool, v reflect.Value) error { v.SetBool(b); return nil })
		w.key = true
		return w, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return intWire(), nil
	case reflect.Float32, reflect.Float64:
		return wireOf("double precision", "double precision", func(v reflect.Value) (float64, error) { return v.Float(), nil },
			func(f float64, v reflect.Value) error { v.SetFloat(f); return nil }), nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return bytesWire(), nil
		}
		return jsonWire(t, path)
	case reflect.Struct, reflect.Map, reflect.Array:
		return jsonWire(t, path)
	}
	return wire{}, fmt.Errorf("%s: %s cannot be stored in a column: use a concrete type, or give it MarshalText and UnmarshalText", path, t)
}

func stringWire() wire {
	w := wireOf("text", "text", func(v reflect.Value) (string, error) { return v.String(), checkText(v.String()) },
		func(s string, v reflect.Value) error { v.SetString(s); return nil })
	w.settle = func(v reflect.Value) error { return checkText(v.String()) }
	w.key, w.text = true, true
	return w
}

func intWire() wire {
	encode := func(v reflect.Value) (int64, error) {
		if v.CanInt() {
			return v.Int(), nil
		}
		if v.Uint() > math.MaxInt64 {
			return 0, fmt.Errorf("%d is greater than bigint holds: use a decimal", v.Uint())
		}
		return int64(v.Uint()), nil
	}
	w := wireOf("bigint", "bigint", encode, func(n int64, v reflect.Value) error {
		switch {
		case v.CanInt() && !v.OverflowInt(n):
			v.SetInt(n)
		case v.CanUint() && n >= 0 && !v.OverflowUint(uint64(n)):
			v.SetUint(uint64(n))
		default:
			return fmt.Errorf("%d does not fit %s", n, v.Type())
		}
		return nil
	})
	w.settle = func(v reflect.Value) error { _, err := encode(v); return err }
	w.key = true
	return w
}

func bytesWire() wire {
	w := wireOf("bytea", "bytea",
		func(v reflect.Value) ([]byte, error) { return append([]byte{}, v.Bytes()...), nil }, // never nil: that would be NULL
		func(b []byte, v reflect.Value) error { v.SetBytes(b); return nil })
	w.settle = func(v reflect.Value) error {
		if v.IsNil() {
			v.SetBytes([]byte{})
		}
		return nil
	}
	return w
}

func timeWire() wire {
	settled := func(v reflect.Value) (time.Time, error) {
		t := v.Interface().(time.Time).UTC().Truncate(time.Microsecond)
		if year := t.Year(); year < minYear || year > maxYear {
			return t, fmt.Errorf("the year %d lies outside %d to %d, which timestamptz can hold", year, minYear, maxYear)
		}
		return t, nil
	}
	w := wireOf("timestamptz", "timestamptz", settled,
		func(t time.Time, v reflect.Value) error { v.Set(reflect.ValueOf(t.UTC())); return nil })
	w.settle = func(v reflect.Value) error {
		t, err := settled(v)
		v.Set(reflect.ValueOf(t))
		return err
	}
	w.key = true
	return w
}

func uuidWire() wire {
	w := wireOf("text", "uuid", func(v reflect.Value) (string, error) { return v.Interface().(uuid.UUID).String(), nil },
		func(s string, v reflect.Value) error {
			id, err := uuid.Parse(s)
			v.Set(reflect.ValueOf(id))
			return err
		})
	w.key = true
	return w
}

func numericWire() wire { return marshaledWire("numeric", false) }

func marshaledWire(sql string, key bool) wire {
	encode := func(v reflect.Value) (string, error) {
		b, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return "", err
		}
		return string(b), checkText(string(b))
	}
	decode := func(s string, v reflect.Value) error {
		return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
	}
	w := wireOf("text", sql, encode, decode)
	w.settle = func(v reflect.Value) error {
		s, err := encode(v)
		if err != nil {
			return err
		}
		return decode(s, v)
	}
	w.key, w.text = key, key
	return w
}

// jsonWire settles by way of the bytes, so that a fold never sees more than the table will give back.
func jsonWire(t reflect.Type, path string) (wire, error) {
	if err := checkJSON(t, path, map[reflect.Type]bool{}); err != nil {
		return wire{}, err
	}
	encode := func(v reflect.Value) (string, error) {
		b, err := json.Marshal(v.Interface())
		if err != nil {
			return "", err
		}
		if hasZeroEscape(b) {
			return "", errors.New("a text in it contains a zero byte, which jsonb cannot store: remove it in the fold")
		}
		return string(b), nil
	}
	decode := func(s string, v reflect.Value) error {
		fresh := reflect.New(t)
		if err := json.Unmarshal([]byte(s), fresh.Interface()); err != nil {
			return err
		}
		v.Set(fresh.Elem())
		return nil
	}
	w := wireOf("text", "jsonb", encode, decode)
	w.settle = func(v reflect.Value) error {
		s, err := encode(v)
		if err != nil {
			return err
		}
		return decode(s, v)
	}
	return w, nil
}

// checkJSON refuses what encoding/json would drop without a word, or could not read back.
func checkJSON(t reflect.Type, path string, seen map[reflect.Type]bool) error {
	if seen[t] || hasText(t) || t.Implements(jsonMarshalerType) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return checkJSON(t.Elem(), path, seen)
	case reflect.Map:
		return errors.Join(checkJSON(t.Key(), path+" key", seen), checkJSON(t.Elem(), path, seen))
	case reflect.Struct:
		for f := range t.Fields() {
			if !f.IsExported() {
				return fmt.Errorf("%s.%s: the field is unexported and would be lost: export it, or give %s MarshalJSON", path, f.Name, t)
			}
			if err := checkJSON(f.Type, path+"."+f.Name, seen); err != nil {
				return err
			}
		}
	case reflect.Interface, reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("%s: %s cannot be read back from jsonb: use a concrete type", path, t)
	}
	return nil
}

// hasZeroEscape finds \u0000 whose backslash is not itself escaped.
func hasZeroEscape(b []byte) bool {
	for i := 0; i+6 <= len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if string(b[i:i+6]) == `\u0000` {
			return true
		}
		i++
	}
	return false
}
