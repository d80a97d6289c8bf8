package eventstore_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// one is {"N": value} for a field N.
func one(value ...byte) []byte { return append([]byte{0x81, 0xa1, 'N'}, value...) }

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// R-SU06: any width of number is read if its value fits, and refused with the field's name if it does not.
func TestMsgpackNumberWidths(t *testing.T) {
	type i64 struct{ N int64 }
	type i8 struct{ N int8 }
	type u64 struct{ N uint64 }
	type u8 struct{ N uint8 }
	type f64 struct{ N float64 }
	type f32 struct{ N float32 }
	type text struct{ N string }
	type flag struct{ N bool }
	type key struct{ N map[int8]int8 }
	type list struct{ N []struct{ M *uint16 } }
	type when struct{ N time.Time }
	for _, test := range []struct {
		name, hex string
		want      any
		fault     string
	}{
		{"fixint for float", "0a", f64{10}, ""},
		{"negative fixint for float", "ff", f64{-1}, ""},
		{"float32 for float64", "ca3fc00000", f64{1.5}, ""},
		{"uint64 for int64", "cf000000000000000a", i64{10}, ""},
		{"uint64 above MaxInt64 for int64", "cf8000000000000000", i64{}, "field N: a stored integer does not fit int64"},
		{"MaxUint64 for int64", "cfffffffffffffffff", i64{}, "field N"},
		{"MaxInt64 as uint64", "cf7fffffffffffffff", i64{math.MaxInt64}, ""},
		{"MinInt64", "d38000000000000000", i64{math.MinInt64}, ""},
		{"int64 for int8", "d3ffffffffffffff80", i8{-128}, ""},
		{"300 for int8", "cd012c", i8{}, "field N: a stored integer does not fit int8"},
		{"-129 for int8", "d1ff7f", i8{}, "field N"},
		{"128 for int8", "cc80", i8{}, "field N"},
		{"256 for uint8", "cd0100", u8{}, "field N: a stored integer does not fit uint8"},
		{"-1 for uint8", "ff", u8{}, "field N"},
		{"-1 for uint64", "d3ffffffffffffffff", u64{}, "field N: a stored integer does not fit uint64"},
		{"positive int64 for uint64", "d30000000000000005", u64{5}, ""},
		{"MaxUint64", "cfffffffffffffffff", u64{math.MaxUint64}, ""},
		{"int8 for uint64", "d005", u64{5}, ""},
		{"int32 for int64", "d2fffffffe", i64{-2}, ""},
		{"uint32 for int64", "ceffffffff", i64{math.MaxUint32}, ""},
		{"inexact integer for float64", "cf0020000000000001", f64{}, "field N: a stored integer is not exact as float64"},
		{"exact integer for float64", "cf0020000000000000", f64{1 << 53}, ""},
		{"MaxUint64 for float64", "cfffffffffffffffff", f64{}, "not exact"},
		{"negative inexact integer for float64", "d3ffdfffffffffffff", f64{}, "not exact"},
		{"2^24 for float32", "ce01000000", f32{1 << 24}, ""},
		{"2^24+1 for float32", "ce01000001", f32{}, "not exact as float32"},
		{"float64 for float32", "cb3ff8000000000000", f32{}, "field N: a stored float of 64 bits does not fit float32"},
		{"float for int64", "ca3f800000", i64{}, "field N: a stored float does not fit int64"},
		{"text for int64", "a131", i64{}, "field N: a stored text does not fit int64"},
		{"int for text", "01", text{}, "field N: a stored integer does not fit string"},
		{"int for bool", "01", flag{}, "field N: a stored integer does not fit bool"},
		{"bytes for text", "c40161", text{"a"}, ""},
		{"nil for int64", "c0", i64{}, ""},
		{"nil for text", "c0", text{}, ""},
		{"nil for bool", "c0", flag{}, ""},
		{"nil for float", "c0", f64{}, ""},
		{"nil for time", "c0", when{}, ""},
		{"key", "81 cc80 01", key{}, "field N[key]: a stored integer does not fit int8"},
		{"map value", "81 01 cc80", key{}, "field N[value]: a stored integer does not fit int8"},
		{"nested", "92 81a14dcdffff 81a14dce00010000", list{}, "field N[1].M: a stored integer does not fit uint16"},
		{"array for map", "9101", key{}, "field N: a stored array does not fit map[int8]int8"},
		{"text for time", "a161", when{}, "field N: a stored text does not fit time.Time"},
		{"another extension for time", "d60500000000", when{}, "field N: a stored extension does not fit"},
		{"time with too many nanoseconds", "d7ffffffffff00000000", when{}, "field N"},
	} {
		t.Run(test.name, func(t *testing.T) {
			target := reflect.New(reflect.TypeOf(test.want))
			err := eventstore.Msgpack.Unmarshal(one(unhex(t, test.hex)...), target.Interface())
			switch {
			case test.fault == "" && err != nil:
				t.Error(err)
			case test.fault == "" && !reflect.DeepEqual(target.Elem().Interface(), test.want):
				t.Errorf("got %+v, want %+v", target.Elem().Interface(), test.want)
			case test.fault != "" && err == nil:
				t.Errorf("was read as %+v", target.Elem().Interface())
			case test.fault != "":
				wantText(t, err.Error(), test.fault)
			}
		})
	}
}

// R-SU08: a payload is bytes, so every text comes back as it was.
func TestMsgpackTextsAreIdentical(t *testing.T) {
	type event struct {
		Text  string
		Texts []string
		By    map[string]string
	}
	for _, text := range []string{"a\x00b", "\xff\xfe", "\xed\xa0\x80", `\u0000`, "\u0000", "\ufffd", `\ud800`, strings.Repeat("x", 70000)} {
		want := event{text, []string{text}, map[string]string{text: text}}
		if got := roundTrip(t, eventstore.Msgpack, want); !reflect.DeepEqual(got, want) {
			t.Errorf("%.20q changed", text)
		}
	}
}

func TestMsgpackFloatsAreIdentical(t *testing.T) {
	type event struct {
		F float64
		G float32
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.SmallestNonzeroFloat64, 0.1, 3} {
		got := roundTrip(t, eventstore.Msgpack, event{f, float32(f)})
		if math.Float64bits(got.F) != math.Float64bits(f) || math.Float32bits(got.G) != math.Float32bits(float32(f)) {
			t.Errorf("%v became %v, %v", f, got.F, got.G)
		}
	}
}

// The stored form lasts for ever: a change here is a change of the format.
func TestMsgpackGoldenBytes(t *testing.T) {
	type golden struct {
		Owner string `msgpack:"owner"`
		Cents int64
		Tags  []string
		By    map[string]int64
		At    time.Time
		Raw   []byte
		Hash  [2]byte
		Rate  float64
		Half  float32
		On    bool
		Maybe *int64
		None  []int64
	}
	at := time.Date(2021, 6, 3, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		v    any
		hex  string
	}{
		{"empty struct", accountClosed{}, "80"},
		{"all kinds", golden{
			Owner: "ada", Cents: -100, Tags: []string{"x", ""}, By: map[string]int64{"b": 200, "a": 1 << 40}, At: at,
			Raw: []byte{1, 2}, Hash: [2]byte{3, 4}, Rate: 0.5, Half: 0.5, On: true,
		}, "8c a56f776e6572 a3616461 a543656e7473 d09c a454616773 92a178a0 a24279 82a161cf0000010000000000a162ccc8" +
			"a24174 d6ff60b81b80 a3526177 c4020102 a448617368 c4020304 a452617465 cb3fe0000000000000 a448616c66 ca3f000000 a24f6e c3 a54d61796265 c0 a44e6f6e65 c0"},
		{"nanoseconds", struct{ At time.Time }{at.Add(123456789)}, "81a24174 d7ff 1d6f345460b81b80"},
		{"before 1970", struct{ At time.Time }{time.Date(1969, 12, 31, 23, 59, 59, 1, time.UTC)}, "81a24174 c70cff 00000001 ffffffffffffffff"},
		{"integers", []int64{0, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, -1, -32, -33, -128, -129, -32768, -32769, -1 << 31, -1<<31 - 1},
			"dc0012 00 7f cc80 ccff cd0100 cdffff ce00010000 ceffffffff cf0000000100000000 ff e0 d0df d080 d1ff7f d18000 d2ffff7fff d280000000 d3ffffffff7fffffff"},
	} {
		t.Run(test.name, func(t *testing.T) {
			data, err := eventstore.Msgpack.Marshal(test.v)
			if err != nil {
				t.Fatal(err)
			}
			want := unhex(t, test.hex)
			if !bytes.Equal(data, want) {
				t.Errorf("\n got %x\nwant %x", data, want)
			}
			back := reflect.New(reflect.TypeOf(test.v))
			if err := eventstore.Msgpack.Unmarshal(want, back.Interface()); err != nil {
				t.Fatal(err)
			}
			compare(t, back.Elem().Interface(), test.v)
		})
	}
}

// Other MessagePack libraries read what is stored, and the other way round.
func TestMsgpackAgreesWithTheLibrary(t *testing.T) {
	want := full()
	data, err := eventstore.Msgpack.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var byLibrary everything
	if err := msgpack.Unmarshal(data, &byLibrary); err != nil {
		t.Fatal(err)
	}
	compare(t, byLibrary, want)

	for _, compact := range []bool{true, false} {
		var out bytes.Buffer
		enc := msgpack.NewEncoder(&out)
		enc.UseCompactInts(compact)
		if err := enc.Encode(&want); err != nil {
			t.Fatal(err)
		}
		var byUs everything
		if err := eventstore.Msgpack.Unmarshal(out.Bytes(), &byUs); err != nil {
			t.Fatal(err)
		}
		compare(t, byUs, want)
	}
}

func TestMsgpackLargeCollections(t *testing.T) {
	type event struct {
		Many  []int64
		Keys  map[int64]string
		Bytes []byte
		Rows  []struct{ Block [64]int64 }
	}
	want := event{Many: make([]int64, 70000), Keys: map[int64]string{}, Bytes: make([]byte, 70000), Rows: make([]struct{ Block [64]int64 }, 1000)}
	for i := range want.Many {
		want.Many[i], want.Keys[int64(i)] = int64(i), "v"
	}
	want.Rows[999].Block[63] = 7
	if got := roundTrip(t, eventstore.Msgpack, want); !reflect.DeepEqual(got, want) {
		t.Error("a large value changed")
	}
}

// Hostile bytes get an error, without much memory or stack.
func TestMsgpackHostileBytes(t *testing.T) {
	type node struct{ N *node }
	type row struct{ Block [512]int64 }
	deepField := bytes.Repeat([]byte{0x81, 0xa1, 'N'}, 1_000_000)
	for _, test := range []struct {
		name   string
		target any
		data   []byte
	}{
		{"slice of 2^32-1", &struct{ N []row }{}, one(0xdd, 0xff, 0xff, 0xff, 0xff)},
		{"texts of 2^32-1", &struct{ N []string }{}, one(0xdd, 0xff, 0xff, 0xff, 0xff)},
		{"map of 2^32-1", &struct{ N map[int64]row }{}, one(0xdf, 0xff, 0xff, 0xff, 0xff)},
		{"struct of 2^32-1", &struct{ N row }{}, one(0xdf, 0xff, 0xff, 0xff, 0xff)},
		{"text of 2^32-1", &struct{ N string }{}, one(0xdb, 0xff, 0xff, 0xff, 0xff)},
		{"bytes of 2^32-1", &struct{ N []byte }{}, one(0xc6, 0xff, 0xff, 0xff, 0xff)},
		{"extension of 2^32-1", &struct{ N time.Time }{}, one(0xc9, 0xff, 0xff, 0xff, 0xff)},
		{"slice with its bytes claimed by garbage", &struct{ N []row }{}, append(one(0xdd, 0, 0x0f, 0, 0), bytes.Repeat([]byte{0xc1}, 1<<20)...)},
		{"unknown field of arrays", &struct{ A int }{}, one(bytes.Repeat([]byte{0x91}, 1_000_000)...)},
		{"recursive type", &node{}, deepField},
		{"own type of arrays", &struct{ N cents }{}, one(bytes.Repeat([]byte{0x91}, 1_000_000)...)},
		{"unused code", &struct{ N int64 }{}, one(0xc1)},
		{"unused code in an unknown field", &struct{ A int64 }{}, one(0xc1)},
		{"name that is no text", &struct{ N int64 }{}, []byte{0x81, 0x01, 0x01}},
		{"long array", &struct{ N [2]int64 }{}, one(0x93, 1, 2, 3)},
		{"long byte array", &struct{ N [2]byte }{}, one(0xc4, 3, 1, 2, 3)},
		{"array for a struct", &struct{ N int64 }{}, []byte{0x91, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := eventstore.Msgpack.Unmarshal(test.data, test.target)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("was read")
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the text has %d bytes", len(err.Error()))
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 4<<20 {
				t.Errorf("%d bytes of input cost %d bytes of memory", len(test.data), spent)
			}
		})
	}
	// Every beginning of a good value is refused.
	data, err := eventstore.Msgpack.Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		var e everything
		if err := eventstore.Msgpack.Unmarshal(data[:i], &e); err == nil {
			t.Fatalf("the first %d of %d bytes were read", i, len(data))
		}
	}
}
