package saga

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// maxKey bounds the keys of instances, which are in the names of timers and in indexes.
const maxKey = 400

func keyFault(key string) string {
	switch {
	case key == "":
		return "is empty"
	case len(key) > maxKey:
		return fmt.Sprintf("has %d bytes, more than %d", len(key), maxKey)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return "is not text that the database stores"
	}
	return ""
}

// checks collects the faults of a definition.
type checks struct {
	saga    string
	version int
	catalog *eventstore.Catalog
	faults  []error
	sends   []sends
}

func (c *checks) fault(step, remedy, reason string, args ...any) {
	c.faults = append(c.faults, &DefinitionError{
		Saga: c.saga, Version: c.version, Step: step, Reason: fmt.Sprintf(reason, args...), Remedy: remedy,
	})
}

func (c *checks) joined() error { return errors.Join(c.faults...) }

// named checks what all definitions have: a name, a version and a catalog.
func (c *checks) named() {
	switch {
	case !nameForm.MatchString(c.saga):
		c.fault("", "use 1 to 40 of a-z, 0-9 and dashes, a letter first", "field Name: %q is no name", c.saga)
	case strings.HasSuffix(c.saga, "-replies"):
		c.fault("", "use another ending", "field Name: %q ends in \"-replies\", which names the replies of another saga", c.saga)
	}
	if c.version < 1 || c.version > 1_000_000 {
		c.fault("", "number definitions from 1", "field Version: %d", c.version)
	}
	if c.catalog == nil {
		c.fault("", "set the catalog that names the event types", "field Events is nil")
	}
}

// event checks that an event type is in the catalog.
func (c *checks) event(step, field string, t reflect.Type) bool {
	if t == nil {
		c.fault(step, "make it with the functions of package saga", "field %s has a zero value in it", field)
		return false
	}
	if c.catalog == nil {
		return false
	}
	if _, ok := c.catalog.TypeName(t); !ok {
		c.fault(step, "add it to the catalog with eventstore.TypeOf", "field %s: event type %s is not in Events", field, t)
		return false
	}
	return true
}

func (c *checks) keyed(step, field string, t reflect.Type, key *keyed) {
	if key != nil && key.of == nil {
		c.fault(step, "give KeyOf a function", "field %s: nothing says which instance %s concerns", field, t)
	}
}

func checkStart[S any](c *checks, start Start[S]) {
	if len(start.on) == 0 {
		c.fault("", "set it to StartOn or StartOnKey", "field Start: nothing begins the saga")
	}
	seen := map[reflect.Type]bool{}
	for _, on := range start.on {
		if !c.event("", "Start", on.event) {
			continue
		}
		if on.begin == nil {
			c.fault("", "pass a function that makes the state", "field Start: %s has no function", on.event)
		}
		c.keyed("", "Start", on.event, on.key)
		if seen[on.event] {
			c.fault("", "keep one", "field Start: %s begins it twice", on.event)
		}
		seen[on.event] = true
	}
}

// checkState refuses a state of which only a part would be stored.
func checkState[S any](c *checks) {
	t := reflect.TypeFor[S]()
	if t.Kind() != reflect.Struct {
		c.fault("", "declare a struct", "the state %s is no struct", t)
		return
	}
	// The codec looks at the whole type before it encodes a value, and a nil pointer is none that could go wrong.
	if _, err := eventstore.Msgpack.Marshal(new(*S)); err != nil {
		c.fault("", "change the field, or keep what it stands for", "the state %s cannot be stored: %v", t, err)
		return
	}
	if path := unstored(t, t.Name(), map[reflect.Type]bool{}); path != "" {
		c.fault("", "give it a name in the tag, or take it out of the state", "the state would lose field %s, whose tag is `msgpack:\"-\"`", path)
	}
}

// unstored finds an exported field that its tag keeps from being stored. Types that marshal themselves are believed.
func unstored(t reflect.Type, path string, seen map[reflect.Type]bool) string {
	if seen[t] {
		return ""
	}
	seen[t] = true
	for _, own := range [...]string{"EncodeMsgpack", "MarshalMsgpack", "MarshalBinary", "MarshalText"} {
		if _, found := reflect.PointerTo(t).MethodByName(own); found && t.Kind() != reflect.Pointer {
			return ""
		}
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return unstored(t.Elem(), path, seen)
	case reflect.Map:
		if found := unstored(t.Key(), path, seen); found != "" {
			return found
		}
		return unstored(t.Elem(), path, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			here := path + "." + f.Name
			if f.Tag.Get("msgpack") == "-" {
				if f.IsExported() {
					return here
				}
				continue
			}
			if found := unstored(f.Type, here, seen); found != "" {
				return found
			}
		}
	}
	return ""
}

func checkCommand[S any](c *checks, step, field string, command Command[S]) {
	if !command.isSet() {
		return
	}
	if command.make == nil {
		c.fault(step, "give Send a function", "field %s: Send has no function", field)
	}
	c.sends = append(c.sends, sends{step, field, command.payload})
	if t := command.payload; t.Kind() != reflect.Struct || t.Name() == "" {
		c.fault(step, "declare a struct for the command", "field %s: %s is no named struct", field, t)
	}
}

func checkRetry(c *checks, step, field string, r Retry) {
	if err := r.policy().Validate(); err != nil {
		c.fault(step, "correct it", "field %s: %s", field, strings.ReplaceAll(err.Error(), "Policy.", ""))
	}
	if r.Forever && r.Attempts != 0 {
		c.fault(step, "leave one of them out", "field %s has both Attempts and Forever", field)
	}
}

func checkDuration(c *checks, step, field string, d time.Duration) {
	if d < 0 {
		c.fault(step, "use a positive time, or leave it out", "field %s: %v is negative", field, d)
	}
}

// reserved are the names of the last commands among the steps.
func reserved(name string) bool {
	return name == string(flow.Completed) || name == string(flow.Compensated)
}
