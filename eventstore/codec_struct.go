package eventstore

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// fieldTag is what a codec's tag says about one field.
type fieldTag struct {
	name    string
	skip    bool
	omit    bool
	apart   bool // an embedded struct is stored as a field of its own
	aliases []string
}

func (b *planBuilder) planStruct(p *plan, path string) {
	p.shape = shapeStruct
	byName := map[string]int{}
	b.structFields(p, byName, p.typ, nil, path)
	p.byName = byName
}

// structFields adds the stored fields of struct t, which lies at index in the struct of p.
func (b *planBuilder) structFields(p *plan, byName map[string]int, t reflect.Type, index []int, path string) {
	for i := range t.NumField() {
		f := t.Field(i)
		here := path + "." + f.Name
		if f.Name == "_" {
			continue
		}
		tag, ok := b.tag(f, here)
		if !ok || tag.skip {
			continue
		}
		place := append(append([]int(nil), index...), i)
		if f.Anonymous && !tag.apart {
			if b.embedded(p, byName, f, tag, place, here) {
				continue
			}
		}
		if !f.IsExported() {
			b.refuse(here, "is unexported, so its value would be lost", "export it, or tag it `"+b.tagName()+":\"-\"`")
			continue
		}
		made := fieldPlan{name: tag.name, goName: f.Name, index: place, omit: tag.omit}
		if made.name == "" {
			made.name = f.Name
		}
		made.header = appendText(nil, made.name)
		made.plan = b.plan(f.Type, here)
		for _, name := range append([]string{made.name}, tag.aliases...) {
			if other, taken := byName[name]; taken && other < len(p.fields) {
				b.refuse(here, fmt.Sprintf("is stored as %q, like field %s", name, p.fields[other].goName), "give one of them another name by a tag")
			}
			byName[name] = len(p.fields)
		}
		p.fields = append(p.fields, made)
	}
}

// embedded plans an embedded field and reports whether that is done; otherwise it is stored like a named field.
func (b *planBuilder) embedded(p *plan, byName map[string]int, f reflect.StructField, tag fieldTag, place []int, here string) bool {
	t := f.Type
	pointer := t.Kind() == reflect.Pointer
	if pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	if t == timeType || b.marshalsItself(t) {
		if b.dialect == dialectJSON {
			b.refuse(here, fmt.Sprintf("embeds %s, whose marshalling encoding/json passes over here", t), "give it a field name")
			return true
		}
		return false
	}
	if pointer {
		remedy := "tag it `msgpack:\",noinline\"`"
		if b.dialect == dialectJSON {
			remedy = "tag it `json:\"" + f.Name + "\"`"
		}
		b.refuse(here, "embeds a pointer, of which nil and a struct of zeros would be stored alike", remedy)
		return true
	}
	if tag.name != "" {
		b.refuse(here, "embeds a struct under a name", "tag it `msgpack:\""+tag.name+",noinline\"` to store it as a field of its own, or drop the name")
		return true
	}
	b.structFields(p, byName, t, place, here)
	return true
}

func (b *planBuilder) marshalsItself(t reflect.Type) bool {
	pairs := msgpackPairs
	if b.dialect == dialectJSON {
		pairs = jsonPairs
	}
	for _, pair := range pairs {
		if implements(t, pair.write) || implements(t, pair.read) {
			return true
		}
	}
	return false
}

func (b *planBuilder) tagName() string {
	if b.dialect == dialectJSON {
		return "json"
	}
	return "msgpack"
}

// tag reads the codec's tag of f. It reports false when the field is not to be planned.
func (b *planBuilder) tag(f reflect.StructField, path string) (fieldTag, bool) {
	text := f.Tag.Get(b.tagName())
	if text == "-" {
		return fieldTag{skip: true}, true
	}
	name, rest, _ := strings.Cut(text, ",")
	tag := fieldTag{name: name}
	if b.dialect == dialectJSON {
		// An embedded struct with a name is a field of its own in encoding/json.
		tag.apart = name != ""
		if !validJSONName(name) {
			b.refuse(path, fmt.Sprintf("has the tag name %q, which encoding/json ignores", name), "use letters, digits and plain punctuation")
			return tag, false
		}
		for option := range strings.SplitSeq(rest, ",") {
			tag.omit = tag.omit || option == "omitempty" || option == "omitzero"
		}
		return tag, true
	}
	if strings.ContainsAny(name, ":'\\()") {
		b.refuse(path, fmt.Sprintf("has the tag %q", text), "write a plain name first, then options, as in `msgpack:\"name,omitempty\"`")
		return tag, false
	}
	if f.Name == "_msgpack" {
		b.refuse(path, "asks for options of the whole struct", "set them on each field; structs are always stored with the names of their fields")
		return tag, false
	}
	for option := range strings.SplitSeq(rest, ",") {
		option = strings.TrimSpace(option)
		alias, isAlias := strings.CutPrefix(option, "alias:")
		switch {
		case option == "", option == "inline":
		case option == "omitempty":
			tag.omit = true
		case option == "noinline":
			tag.apart = true
		case isAlias && alias != "":
			tag.aliases = append(tag.aliases, alias)
		default:
			b.refuse(path, fmt.Sprintf("has the tag option %q", option), "use omitempty, noinline or alias:name")
			return tag, false
		}
	}
	return tag, true
}

// validJSONName reports whether encoding/json accepts name in a tag; otherwise it would silently use another one.
func validJSONName(name string) bool {
	for _, c := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return true
}
