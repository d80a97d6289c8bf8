package eventstore_test

import (
	"bytes"
	"math/big"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/govalues/decimal"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
)

// drawEverything draws a value of each shape; text bytes may be any only where the codec stores any.
func drawEverything(t *rapid.T, text *rapid.Generator[string]) everything {
	draw := func(label string) string { return text.Draw(t, label) }
	int64s := rapid.Int64()
	at := rapid.Custom(func(t *rapid.T) time.Time {
		sec := rapid.Int64Range(-62135596800, 253402300799).Draw(t, "sec")
		return time.Unix(sec, rapid.Int64Range(0, 999999999).Draw(t, "nsec")).UTC()
	})
	home := rapid.Custom(func(t *rapid.T) address { return address{text.Draw(t, "street"), at.Draw(t, "since")} })
	e := everything{
		Bool: rapid.Bool().Draw(t, "bool"), Int: rapid.Int().Draw(t, "int"), Int8: rapid.Int8().Draw(t, "int8"),
		Int16: rapid.Int16().Draw(t, "int16"), Int32: rapid.Int32().Draw(t, "int32"), Int64: int64s.Draw(t, "int64"),
		Uint: rapid.Uint().Draw(t, "uint"), Uint8: rapid.Uint8().Draw(t, "uint8"), Uint16: rapid.Uint16().Draw(t, "uint16"),
		Uint32: rapid.Uint32().Draw(t, "uint32"), Uint64: rapid.Uint64().Draw(t, "uint64"),
		Float32: rapid.Float32().Draw(t, "float32"), Float64: rapid.Float64().Draw(t, "float64"),
		Text: draw("text"), Note: note(draw("note")), Level: level(rapid.Byte().Draw(t, "level")),
		Bytes:   rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"),
		Pair:    [2]int64{int64s.Draw(t, "first"), int64s.Draw(t, "second")},
		Texts:   rapid.SliceOf(text).Draw(t, "texts"),
		Numbers: rapid.SliceOf(int64s).Draw(t, "numbers"),
		Matrix:  rapid.SliceOfN(rapid.SliceOfN(rapid.Int32(), 0, 3), 0, 3).Draw(t, "matrix"),
		Counts:  rapid.MapOf(text, int64s).Draw(t, "counts"), ByNumber: rapid.MapOf(rapid.Int32(), text).Draw(t, "by number"),
		Time: at.Draw(t, "time"), Duration: time.Duration(int64s.Draw(t, "duration")),
		Address: home.Draw(t, "address"), Homes: rapid.SliceOfN(home, 0, 3).Draw(t, "homes"),
		ByPlace: rapid.MapOfN(text, home, 0, 3).Draw(t, "by place"),
		Pointer: rapid.Ptr(home, true).Draw(t, "pointer"), Points: rapid.MapOfN(text, rapid.Ptr(home, true), 0, 3).Draw(t, "points"),
		Number: rapid.Ptr(int64s, true).Draw(t, "number"), When: rapid.Ptr(at, true).Draw(t, "when"),
		Times: rapid.SliceOfN(at, 0, 3).Draw(t, "times"),
		BigP:  big.NewInt(int64s.Draw(t, "big")),
	}
	copy(e.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	e.ByID = map[uuid.UUID]bool{e.ID: true}
	e.Amount, _ = decimal.New(int64s.Draw(t, "coefficient"), rapid.IntRange(0, 19).Draw(t, "scale"))
	e.Ratio = big.NewRat(int64s.Draw(t, "numerator"), int64(rapid.Int32Range(1, 1<<30).Draw(t, "denominator")))
	if rapid.Bool().Draw(t, "no lists") {
		e.Bytes, e.Texts, e.Numbers, e.Matrix, e.Counts, e.ByNumber, e.Homes, e.Points = nil, nil, nil, nil, nil, nil, nil, nil
	}
	return e
}

// anyBytes draws text that need not be UTF-8.
var anyBytes = rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })

func TestRoundTripProperty(t *testing.T) {
	for _, test := range []struct {
		codec eventstore.Codec
		text  *rapid.Generator[string]
	}{{eventstore.Msgpack, anyBytes}, {eventstore.JSON, rapid.String()}} {
		t.Run(test.codec.ContentType(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := drawEverything(t, test.text)
				data, err := test.codec.Marshal(want)
				if err != nil {
					t.Fatal(err)
				}
				var got everything
				if err := test.codec.Unmarshal(data, &got); err != nil {
					t.Fatalf("%v\n%q", err, data)
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("\n got %+v\nwant %+v", got, want)
				}
				if again, err := test.codec.Marshal(got); err != nil || !bytes.Equal(again, data) {
					t.Fatalf("stored again it is other bytes: %v", err)
				}
			})
		})
	}
}

func TestMsgpackAgreesWithTheLibraryProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawEverything(t, anyBytes)
		data, err := eventstore.Msgpack.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var byLibrary, byUs everything
		if err := msgpack.Unmarshal(data, &byLibrary); err != nil {
			t.Fatal(err)
		}
		theirs, err := msgpack.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		if err := eventstore.Msgpack.Unmarshal(theirs, &byUs); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(byUs, want) {
			t.Fatalf("\n got %+v\nwant %+v", byUs, want)
		}
		if again, err := eventstore.Msgpack.Marshal(byLibrary); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("the library reads other values: %v", err)
		}
	})
}

// FuzzDecode: whatever the bytes, decoding ends without a panic, and what it accepts can be stored and read again.
func FuzzDecode(f *testing.F) {
	for i, codec := range codecs {
		for _, e := range []everything{{}, full()} {
			data, err := codec.Marshal(e)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(i == 1, data)
		}
	}
	f.Add(false, []byte{0x81, 0xa7, 'N', 'u', 'm', 'b', 'e', 'r', 's', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add(false, bytes.Repeat([]byte{0x91}, 2000))
	f.Add(true, []byte(`{"Text":"\ud800","Bytes":"AA=="}`))
	f.Fuzz(func(t *testing.T, asJSON bool, data []byte) {
		codec := eventstore.Msgpack
		if asJSON {
			codec = eventstore.JSON
		}
		var first, second everything
		if codec.Unmarshal(data, &first) != nil {
			return
		}
		stored, err := codec.Marshal(first)
		if err != nil {
			return // a time of the year 10000 as JSON, for example
		}
		if err := codec.Unmarshal(stored, &second); err != nil {
			t.Fatalf("stored again it cannot be read: %v", err)
		}
		if again, err := codec.Marshal(second); err != nil || !bytes.Equal(again, stored) {
			t.Fatalf("it changes with each round: %v\n%q\n%q", err, stored, again)
		}
	})
}
