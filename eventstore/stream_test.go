package eventstore_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

func TestStreamIDText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 510)
	tests := []struct {
		name, text string
		want       eventstore.StreamID
		field      string // of the error; empty when the text is good
	}{
		{"plain", "account-42", eventstore.NewStreamID("account", "42"), ""},
		{"dashes in the id", "account-4-2--", eventstore.NewStreamID("account", "4-2--"), ""},
		{"letters beyond ASCII", "Konto-Ä🜚", eventstore.NewStreamID("Konto", "Ä🜚"), ""},
		{"blanks are kept", " a - b ", eventstore.NewStreamID(" a ", " b "), ""},
		{"harmless escape", `a-\u0000`, eventstore.NewStreamID("a", `\u0000`), ""},
		{"512 bytes", "a-" + long, eventstore.NewStreamID("a", long), ""},
		{"513 bytes", "a-x" + long, eventstore.StreamID{}, "stream id"},
		{"512 letters of two bytes", "a-" + strings.Repeat("ä", 512), eventstore.StreamID{}, "stream id"},
		{"empty", "", eventstore.StreamID{}, "stream id"},
		{"no dash", "account", eventstore.StreamID{}, "stream id"},
		{"no category", "-42", eventstore.StreamID{}, "stream category"},
		{"no id", "account-", eventstore.StreamID{}, "stream id"},
		{"only a dash", "-", eventstore.StreamID{}, "stream category"},
		{"zero byte in the id", "a-b\x00c", eventstore.StreamID{}, "stream id"},
		{"zero byte in the category", "a\x00-b", eventstore.StreamID{}, "stream id"},
		{"invalid UTF-8", "a-\xff", eventstore.StreamID{}, "stream id"},
		{"surrogate half", "a-\xed\xa0\x80", eventstore.StreamID{}, "stream id"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := eventstore.ParseStreamID(tt.text)
			if tt.field != "" {
				wantInvalid(t, err, tt.field)
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("ParseStreamID(%q) = %#v, %v; want %#v", tt.text, got, err, tt.want)
			}
			if got.String() != tt.text {
				t.Errorf("String() = %q, want %q", got.String(), tt.text)
			}
		})
	}
}

func TestStreamIDValidate(t *testing.T) {
	t.Parallel()
	wantInvalid(t, eventstore.NewStreamID("two-words", "1").Validate(), "stream category")
	wantInvalid(t, eventstore.StreamID{}.Validate(), "stream category")
	if err := eventstore.NewStreamID("a", "-").Validate(); err != nil {
		t.Errorf("an id may be a dash: %v", err)
	}
	if !(eventstore.StreamID{}).IsZero() || eventstore.NewStreamID("a", "").IsZero() {
		t.Error("IsZero is true of the zero value only")
	}
	err := eventstore.NewStreamID("a", strings.Repeat("y", 5000)).Validate()
	if text := err.Error(); len(text) > 400 {
		t.Errorf("the error repeats the whole value: %d bytes", len(text))
	}
}

func TestStreamIDIsJSONKey(t *testing.T) {
	t.Parallel()
	in := map[eventstore.StreamID]int{eventstore.NewStreamID("a", "1-x"): 7}
	text, err := json.Marshal(in)
	if err != nil || string(text) != `{"a-1-x":7}` {
		t.Fatalf("Marshal = %s, %v", text, err)
	}
	var out map[eventstore.StreamID]int
	if err := json.Unmarshal(text, &out); err != nil || out[eventstore.NewStreamID("a", "1-x")] != 7 {
		t.Fatalf("Unmarshal = %v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"nodash":1}`), &out); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("Unmarshal of a bad key: %v, want ErrInvalid", err)
	}
}

func FuzzParseStreamID(f *testing.F) {
	for _, s := range []string{"account-42", "-", "a-", "", "a-b-c", "a-\x00", "a-\xff", "ä-\u00e4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := eventstore.ParseStreamID(text)
		if err != nil {
			if !errors.Is(err, eventstore.ErrInvalid) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if id.String() != text || id.Validate() != nil || strings.Contains(id.Category, "-") {
			t.Fatalf("%q became %#v", text, id)
		}
	})
}

func TestExpectedVersion(t *testing.T) {
	t.Parallel()
	var zero eventstore.ExpectedVersion
	if zero != eventstore.NoStream || eventstore.Exactly(0) != eventstore.NoStream {
		t.Error("the zero value and Exactly(0) must be NoStream")
	}
	tests := []struct {
		expected eventstore.ExpectedVersion
		holds    [3]bool // at versions 0, 1 and 2
		exact    eventstore.Version
		isExact  bool
		text     string
	}{
		{eventstore.NoStream, [3]bool{true, false, false}, 0, true, "no stream"},
		{eventstore.Exactly(1), [3]bool{false, true, false}, 1, true, "version 1"},
		{eventstore.Exactly(2), [3]bool{false, false, true}, 2, true, "version 2"},
		{eventstore.StreamExists, [3]bool{false, true, true}, 0, false, "stream exists"},
		{eventstore.AnyVersion, [3]bool{true, true, true}, 0, false, "any version"},
	}
	for _, tt := range tests {
		for actual, want := range tt.holds {
			if got := tt.expected.Holds(eventstore.Version(actual)); got != want {
				t.Errorf("%s holds at %d: %v, want %v", tt.expected, actual, got, want)
			}
		}
		if v, ok := tt.expected.Exact(); v != tt.exact || ok != tt.isExact {
			t.Errorf("%s: Exact() = %d, %v; want %d, %v", tt.expected, v, ok, tt.exact, tt.isExact)
		}
		if tt.expected.String() != tt.text {
			t.Errorf("String() = %q, want %q", tt.expected, tt.text)
		}
	}
}

// wantInvalid checks that err names a field, says why and what to do.
func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var invalid *eventstore.InvalidError
	if !errors.As(err, &invalid) || !errors.Is(err, eventstore.ErrInvalid) {
		t.Fatalf("error is %v, want an InvalidError of %q", err, field)
	}
	if invalid.Field != field {
		t.Errorf("the error names field %q, want %q (%v)", invalid.Field, field, err)
	}
	if invalid.Reason == "" || invalid.Remedy == "" {
		t.Errorf("the error lacks a reason or a remedy: %#v", invalid)
	}
	if eventstore.IsRetryable(err) {
		t.Errorf("bad input must not be retried: %v", err)
	}
}
