package eventstore_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// lossyText writes whatever text it holds.
type lossyText struct{ Text string }

func (l lossyText) MarshalText() ([]byte, error)  { return []byte(l.Text), nil }
func (l *lossyText) UnmarshalText(b []byte) error { l.Text = string(b); return nil }

// R-SU08: what JSON would alter is refused before it is stored, naming the field; what it keeps comes back identical.
func TestJSONTexts(t *testing.T) {
	type line struct{ Note string }
	type event struct {
		Text  string
		Lines []line
		By    map[string]string
		Maybe *note
		Own   lossyText
	}
	good := event{Text: "a"}
	for _, text := range []string{"a\x00b", `\u0000`, "\ufffd", `\ufffd`, `\\ufffd`, `\ud800`, "<&>\u2028", "\U0001F600"} {
		n := note(text)
		want := event{text, []line{{text}}, map[string]string{text: text}, &n, lossyText{text}}
		if got := roundTrip(t, eventstore.JSON, want); !reflect.DeepEqual(got, want) {
			t.Errorf("%q became %q", text, got.Text)
		}
	}
	for _, bad := range []string{"\xff\xfe", "a\xc3", "\xed\xa0\x80"} {
		n := note(bad)
		for field, change := range map[string]func(*event){
			"field Text":          func(e *event) { e.Text = bad },
			"field Lines[1].Note": func(e *event) { e.Lines = []line{{"a"}, {bad}} },
			"field By[value]":     func(e *event) { e.By = map[string]string{"a": bad} },
			"field By[key]":       func(e *event) { e.By = map[string]string{bad: "a"} },
			"field Maybe":         func(e *event) { e.Maybe = &n },
			"marshals itself":     func(e *event) { e.Own.Text = bad },
		} {
			e := good
			change(&e)
			data, err := eventstore.JSON.Marshal(e)
			if err == nil {
				t.Errorf("%s: %q was stored as %s", field, bad, data)
				continue
			}
			wantText(t, err.Error(), field, "UTF-8", "Msgpack")
		}
	}
}

func TestJSONStoredTexts(t *testing.T) {
	type event struct{ N string }
	for _, test := range []struct{ stored, want, fault string }{
		{`{"N":"\ud83d\ude00"}`, "\U0001F600", ""},
		{`{"N":"\uD83D\uDE00\ud83d\ude00"}`, "\U0001F600\U0001F600", ""},
		{`{"N":"\\ud800"}`, `\ud800`, ""},
		{`{"N":"\\\\ud800"}`, `\\ud800`, ""},
		{`{"N":"\u0000"}`, "\x00", ""},
		{`{"N":"\ufffd"}`, "\ufffd", ""},
		{`{"N":"\ud800"}`, "", "surrogate"},
		{`{"N":"\\\ud800"}`, "", "surrogate"},
		{`{"N":"\udc00"}`, "", "surrogate"},
		{`{"N":"\ud800\ud800\udc00"}`, "", "surrogate"},
		{`{"N":"\ud800x"}`, "", "surrogate"},
		{`{"N":"\ud83d\ude00\ude00"}`, "", "surrogate"},
		{"{\"N\":\"\xff\"}", "", "UTF-8"},
	} {
		var e event
		err := eventstore.JSON.Unmarshal([]byte(test.stored), &e)
		switch {
		case test.fault == "" && (err != nil || e.N != test.want):
			t.Errorf("%s: got %q, %v", test.stored, e.N, err)
		case test.fault != "" && err == nil:
			t.Errorf("%s was read as %q", test.stored, e.N)
		case test.fault != "":
			wantText(t, err.Error(), test.fault)
		}
	}
}

func TestJSONNumbers(t *testing.T) {
	type inner struct{ N int8 }
	type event struct {
		ID    int64
		U     uint8
		F     float64
		Inner []inner
	}
	for _, test := range []struct{ stored, fault string }{
		{`{"ID":9223372036854775808}`, "field ID: a stored number does not fit int64"},
		{`{"ID":1.5}`, "field ID"},
		{`{"ID":"5"}`, "field ID: a stored string does not fit int64"},
		{`{"U":256}`, "field U: a stored number does not fit uint8"},
		{`{"U":-1}`, "field U"},
		{`{"Inner":[{"N":1},{"N":300}]}`, "N: a stored number does not fit int8"},
		{`{"F":1e999}`, "field F"},
	} {
		var e event
		err := eventstore.JSON.Unmarshal([]byte(test.stored), &e)
		if err == nil {
			t.Errorf("%s was read as %+v", test.stored, e)
			continue
		}
		wantText(t, err.Error(), test.fault)
		if strings.Contains(err.Error(), "300") || strings.Contains(err.Error(), "9223372036854775808") {
			t.Errorf("the payload is in the text: %v", err)
		}
	}
	var e event
	if err := eventstore.JSON.Unmarshal([]byte(`{"F":10,"ID":null}`), &e); err != nil || e.F != 10 {
		t.Errorf("got %+v, %v", e, err)
	}
	for _, f := range []float64{math.NaN(), math.Inf(1)} {
		_, err := eventstore.JSON.Marshal(event{F: f})
		if err == nil {
			t.Fatalf("%v was stored", f)
		}
		wantText(t, err.Error(), "field F", "finite")
	}
	if got := roundTrip(t, eventstore.JSON, event{F: math.Copysign(0, -1)}); !math.Signbit(got.F) {
		t.Error("-0 became 0")
	}
}

// Zones whose offset has seconds, as local mean times do, would be written with their minutes only.
func TestJSONRefusesTimesThatItWouldMove(t *testing.T) {
	type event struct{ Seen []time.Time }
	old := time.Date(1890, 1, 1, 0, 0, 0, 0, time.FixedZone("LMT", 8*3600+5*60+43))
	_, err := eventstore.JSON.Marshal(event{[]time.Time{{}, old}})
	if err == nil {
		t.Fatal("was stored")
	}
	wantText(t, err.Error(), "field Seen[1]", "UTC()")
	for _, codec := range codecs {
		if got := roundTrip(t, codec, event{[]time.Time{old.UTC()}}); !got.Seen[0].Equal(old) {
			t.Errorf("%s moved it to %s", codec.ContentType(), got.Seen[0])
		}
	}
	if got := roundTrip(t, eventstore.Msgpack, event{[]time.Time{old}}); !got.Seen[0].Equal(old) {
		t.Errorf("msgpack moved it to %s", got.Seen[0])
	}
	if _, err := eventstore.JSON.Marshal(event{[]time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}); err == nil {
		t.Error("the year 10000 was stored")
	}
}

// The stored form lasts for ever: a change here is a change of the format.
func TestJSONGoldenBytes(t *testing.T) {
	type golden struct {
		Owner string `json:"owner"`
		Cents int64
		By    map[string]int64
		At    time.Time
		Raw   []byte
		None  []int64
		Empty []int64
		Maybe *int64
		Rate  float64
	}
	v := golden{
		Owner: "a<b>\x00\"", Cents: 1546130668394913822, By: map[string]int64{"b": 2, "a": 1},
		At: time.Date(2021, 6, 3, 0, 0, 0, 1000, time.UTC), Raw: []byte{1, 2}, Empty: []int64{}, Rate: 0.5,
	}
	const want = `{"owner":"a<b>\u0000\"","Cents":1546130668394913822,"By":{"a":1,"b":2},"At":"2021-06-03T00:00:00.000001Z","Raw":"AQI=","None":null,"Empty":[],"Maybe":null,"Rate":0.5}`
	data, err := eventstore.JSON.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != want {
		t.Errorf("\n got %s\nwant %s", data, want)
	}
	var back golden
	if err := eventstore.JSON.Unmarshal([]byte(want), &back); err != nil {
		t.Fatal(err)
	}
	compare(t, back, v)
}

func TestJSONHostileBytes(t *testing.T) {
	type node struct{ N []node }
	for _, data := range []string{
		strings.Repeat(`{"N":[`, 1_000_000), strings.Repeat(`[`, 1_000_000), `{"N":`, ``, ` `, `{}x`, `{"N":"`, `{"N":"\u12`, `\`, `{"N":"\`,
	} {
		var n node
		if err := eventstore.JSON.Unmarshal([]byte(data), &n); err == nil {
			t.Errorf("%.20q was read", data)
		}
	}
}
