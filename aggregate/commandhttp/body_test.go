package commandhttp

import (
	"errors"
	"testing"

	"github.com/google/uuid"
)

// Whoever sends a value of another type is told in the words of JSON what to write.
func TestValuesOfAnotherType(t *testing.T) {
	t.Parallel()
	type body struct {
		Int    int
		Small  int8
		Uint   uint16
		Float  float64
		Text   string
		Yes    bool
		List   []int
		Bytes  []byte
		Object map[string]int
		ID     uuid.UUID
		Inner  struct{ N int }
	}
	for text, want := range map[string]string{
		`{"Int":"a"}`:        "Int: a string stands where none can: write an integer of at most 64 bits",
		`{"Int":1.5}`:        "Int: the number 1.5 does not fit: write an integer of at most 64 bits",
		`{"Small":300}`:      "Small: the number 300 does not fit: write an integer of at most 8 bits",
		`{"Uint":-1}`:        "Uint: the number -1 does not fit: write an integer of at most 16 bits, 0 or more",
		`{"Float":[]}`:       "Float: an array stands where none can: write a number",
		`{"Text":{}}`:        "Text: an object stands where none can: write a string",
		`{"Yes":1}`:          "Yes: a number stands where none can: write a boolean",
		`{"List":true}`:      "List: a boolean stands where none can: write an array",
		`{"Bytes":1}`:        "Bytes: a number stands where none can: write a string in base64",
		`{"Object":[]}`:      "Object: an array stands where none can: write an object",
		`{"ID":1}`:           "ID: a number stands where none can: write a string",
		`{"Inner":{"N":""}}`: "Inner.N: a string stands where none can: write an integer of at most 64 bits",
		`[]`:                 ": an array stands where none can: write an object",
	} {
		_, err := DecodeJSON[body]([]byte(text))
		var p *Problem
		if !errors.As(err, &p) || p.Field+": "+p.Detail+": "+p.Remedy != want {
			t.Errorf("%s: %+v, want %q", text, err, want)
		}
	}
}
