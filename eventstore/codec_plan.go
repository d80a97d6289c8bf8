package eventstore

import (
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"time"
)

type dialect uint8

const (
	dialectMsgpack dialect = iota
	dialectJSON
)

type shape uint8

const (
	shapeBool shape = iota
	shapeInt
	shapeUint
	shapeFloat32
	shapeFloat64
	shapeString
	shapeBytes     // slice of bytes
	shapeByteArray // array of bytes
	shapeTime
	shapeOwn // marshals itself
	shapeWrap
	shapePointer
	shapeSlice
	shapeArray
	shapeMap
	shapeStruct
)

// plan says how the values of one Go type are stored. It is made once per type and codec, by reflection, and is
// read-only afterwards. Plans of recursive types refer to themselves.
type plan struct {
	typ   reflect.Type
	shape shape
	bits  int // of shapeInt and shapeUint
	key   *plan
	elem  *plan // of pointers, slices, arrays, maps; of shapeWrap the one embedded field
	own   own

	fields []fieldPlan
	byName map[string]int // wire name or alias -> index in fields

	times     bool // a time.Time can be reached
	addressed bool // a method on a pointer receiver can be reached
}

type fieldPlan struct {
	name   string // on the wire
	goName string
	index  []int
	header []byte // name as msgpack text
	omit   bool
	plan   *plan
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	bigFloatType = reflect.TypeFor[big.Float]()
)

// planBuilder walks one type and collects everything that is wrong with it.
type planBuilder struct {
	dialect dialect
	made    map[reflect.Type]*plan
	order   []*plan
	paths   map[*plan]string // where a plan was met first
	faults  []error
}

func buildPlan(t reflect.Type, d dialect) (*plan, error) {
	b := &planBuilder{dialect: d, made: map[reflect.Type]*plan{}, paths: map[*plan]string{}}
	root := b.plan(t, "")
	b.checkMapValues()
	if len(b.faults) > 0 {
		return nil, fmt.Errorf("type %s cannot be stored: %w", t, errors.Join(b.faults...))
	}
	for _, p := range b.order {
		p.times = p.reaches(func(q *plan) bool { return q.shape == shapeTime }, map[*plan]bool{})
		p.addressed = p.reaches(func(q *plan) bool {
			return q.shape == shapeOwn && q.own.addressed || q.shape == shapeByteArray
		}, map[*plan]bool{})
	}
	return root, nil
}

func (p *plan) reaches(is func(*plan) bool, seen map[*plan]bool) bool {
	if p == nil || seen[p] {
		return false
	}
	seen[p] = true
	if is(p) || p.key.reaches(is, seen) || p.elem.reaches(is, seen) {
		return true
	}
	for _, f := range p.fields {
		if f.plan.reaches(is, seen) {
			return true
		}
	}
	return false
}

func (b *planBuilder) refuse(path, reason, remedy string) {
	b.faults = append(b.faults, &fieldError{path: path, reason: reason, remedy: remedy})
}

// plan returns the plan of t, reached by path. It returns a plan even for a refused type, so that one run finds all
// faults.
func (b *planBuilder) plan(t reflect.Type, path string) *plan {
	if p, ok := b.made[t]; ok {
		return p
	}
	p := &plan{typ: t}
	b.made[t], b.paths[p] = p, path
	b.order = append(b.order, p)
	switch t {
	case timeType:
		p.shape = shapeTime
		return p
	case bigFloatType:
		b.refuse(path, "big.Float loses digits in its own text form", "use big.Rat, a decimal type, or text")
		return p
	}
	if b.planOwn(p, path) {
		return p
	}
	switch t.Kind() {
	case reflect.Bool:
		p.shape = shapeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.shape, p.bits = shapeInt, t.Bits()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.shape, p.bits = shapeUint, t.Bits()
	case reflect.Float32:
		p.shape = shapeFloat32
	case reflect.Float64:
		p.shape = shapeFloat64
	case reflect.String:
		p.shape = shapeString
	case reflect.Pointer:
		b.planPointer(p, path)
	case reflect.Slice:
		p.shape, p.elem = shapeSlice, b.plan(t.Elem(), path+"[]")
		if p.elem.shape == shapeUint && p.elem.bits == 8 {
			p.shape = shapeBytes
		}
	case reflect.Array:
		p.shape, p.elem = shapeArray, b.plan(t.Elem(), path+"[]")
		if b.dialect == dialectMsgpack && p.elem.shape == shapeUint && p.elem.bits == 8 {
			p.shape = shapeByteArray
		}
	case reflect.Map:
		b.planMap(p, path)
	case reflect.Struct:
		b.planStruct(p, path)
	case reflect.Interface:
		b.refuse(path, fmt.Sprintf("has the interface type %s, whose concrete type is not on the wire", t),
			"use a concrete type, or a struct with one pointer field for each alternative")
	default:
		b.refuse(path, fmt.Sprintf("has type %s, which has no stored form", t), "leave it out, or tag it \"-\"")
	}
	return p
}

func (b *planBuilder) planPointer(p *plan, path string) {
	p.shape = shapePointer
	switch elem := p.typ.Elem(); elem.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		b.refuse(path, fmt.Sprintf("has type %s, of which a pointer to nil and nil are stored alike", p.typ),
			fmt.Sprintf("use %s", elem))
	default:
		p.elem = b.plan(elem, path)
	}
}

func (b *planBuilder) planMap(p *plan, path string) {
	p.shape = shapeMap
	p.key, p.elem = b.plan(p.typ.Key(), path+"[key]"), b.plan(p.typ.Elem(), path+"[]")
	key := p.typ.Key()
	switch {
	case p.key.shape == shapeInt, p.key.shape == shapeUint:
	case p.key.shape == shapeString:
		// encoding/json writes such a key as it is but reads it through UnmarshalText.
		if b.dialect == dialectJSON && (implements(key, textMarshaler) || implements(key, textUnmarshaler)) {
			b.refuse(path, fmt.Sprintf("has map keys of type %s, which JSON writes and reads differently", key), "use plain strings as keys")
		}
	case p.key.shape == shapeOwn && !p.key.own.addressed && p.key.own.kind.isKey() && key.Kind() != reflect.Pointer:
		if b.dialect == dialectJSON && (key.Kind() == reflect.String || !p.key.own.text) {
			b.refuse(path, fmt.Sprintf("has map keys of type %s, which JSON writes and reads differently", key), "use plain strings as keys")
		}
	default:
		b.refuse(path, fmt.Sprintf("has map keys of type %s", key),
			"use strings, integers, or a type with MarshalText on its value; for times, their Unix number")
	}
}

// checkMapValues refuses methods with a pointer receiver inside map values: map values have no address, so the method
// would be passed over and the value stored empty. It runs when all plans are finished.
func (b *planBuilder) checkMapValues() {
	for _, p := range b.order {
		if p.shape != shapeMap {
			continue
		}
		if found := addressedInValue(p.elem); found != nil {
			b.refuse(b.paths[p], fmt.Sprintf("has map values that hold a %s, whose marshalling has a pointer receiver and cannot be called in a map", found.typ),
				fmt.Sprintf("use map values of type *%s", p.elem.typ))
		}
	}
}

// addressedInValue finds a type with a pointer receiver that lies in the value itself, not behind a pointer or slice.
func addressedInValue(p *plan) *plan {
	switch p.shape {
	case shapeOwn:
		if p.own.addressed {
			return p
		}
	case shapeArray, shapeWrap:
		return addressedInValue(p.elem)
	case shapeStruct:
		for _, f := range p.fields {
			if found := addressedInValue(f.plan); found != nil {
				return found
			}
		}
	}
	return nil
}
