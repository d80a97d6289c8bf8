package eventstore_test

import (
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/govalues/decimal"

	"github.com/daybook-go/daybook/eventstore"
)

var codecs = []eventstore.Codec{eventstore.Msgpack, eventstore.JSON}

func eachCodec(t *testing.T, run func(*testing.T, eventstore.Codec)) {
	t.Helper()
	for _, codec := range codecs {
		t.Run(codec.ContentType(), func(t *testing.T) { run(t, codec) })
	}
}

// roundTrip stores v and reads it back.
func roundTrip[T any](t *testing.T, codec eventstore.Codec, v T) T {
	t.Helper()
	data, err := codec.Marshal(v)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	var got T
	if err := codec.Unmarshal(data, &got); err != nil {
		t.Fatalf("unmarshal: %v\n%q", err, data)
	}
	return got
}

type level uint8
type note string

type address struct {
	Street string
	Since  time.Time
}

// Everything has a field of each supported shape.
type everything struct {
	Bool     bool
	Int      int
	Int8     int8
	Int16    int16
	Int32    int32
	Int64    int64
	Uint     uint
	Uint8    uint8
	Uint16   uint16
	Uint32   uint32
	Uint64   uint64
	Float32  float32
	Float64  float64
	Text     string
	Note     note
	Level    level
	Levels   []level
	Bytes    []byte
	Hash     [4]byte
	Pair     [2]int64
	Texts    []string
	Numbers  []int64
	Matrix   [][]int32
	Counts   map[string]int64
	ByNumber map[int32]string
	ByID     map[uuid.UUID]bool
	Time     time.Time
	Duration time.Duration
	Address  address
	Homes    []address
	ByPlace  map[string]address
	Pointer  *address
	Points   map[string]*address
	Number   *int64
	When     *time.Time
	Times    []time.Time
	ID       uuid.UUID
	Amount   decimal.Decimal
	Big      big.Int
	BigP     *big.Int
	Ratio    *big.Rat
	IP       netip.Addr
	audit1
}

type audit1 struct{ Reviewed int64 }

func full() everything {
	now := time.Date(2021, 6, 3, 12, 30, 45, 123456789, time.UTC)
	number, huge := int64(-5), new(big.Int)
	huge.SetString("1234567890123456789012345678901234567890", 10)
	home := address{"Fleet Street", now}
	return everything{
		Bool: true, Int: -1, Int8: math.MinInt8, Int16: math.MinInt16, Int32: math.MinInt32, Int64: math.MinInt64,
		Uint: 1, Uint8: math.MaxUint8, Uint16: math.MaxUint16, Uint32: math.MaxUint32, Uint64: math.MaxUint64,
		Float32: 0.1, Float64: math.MaxFloat64, Text: "tÿpe\x00 \\u0000", Note: "n", Level: 200, Levels: []level{1, 255},
		Bytes: []byte{0, 255}, Hash: [4]byte{1, 2, 3, 255}, Pair: [2]int64{math.MaxInt64, -1}, Texts: []string{"", "b"},
		Numbers: []int64{0, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, 1 << 40, -32, -33, -128, -129, -32769, math.MinInt64},
		Matrix:  [][]int32{nil, {}, {1}}, Counts: map[string]int64{"": 0, "n": 9007199254740993}, ByNumber: map[int32]string{-1: "x", 7: "y"},
		ByID: map[uuid.UUID]bool{{1}: true}, Time: now, Duration: time.Hour + 1, Address: home, Homes: []address{home, {}},
		ByPlace: map[string]address{"a": home}, Pointer: &home, Points: map[string]*address{"p": &home, "q": nil}, Number: &number, When: &now,
		Times: []time.Time{now, {}}, ID: uuid.UUID{1, 2, 3}, Amount: decimal.MustParse("0.30"), Big: *huge, BigP: huge,
		Ratio: big.NewRat(1, 3), IP: netip.MustParseAddr("::1"), audit1: audit1{3},
	}
}

// compare tells more than reflect.DeepEqual and, like it, keeps nil and empty apart.
func compare(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
}

func TestEverySupportedShapeComesBack(t *testing.T) {
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		compare(t, roundTrip(t, codec, full()), full())
		compare(t, roundTrip(t, codec, everything{}), everything{})
	})
}

func TestEqualValuesAreEqualBytes(t *testing.T) {
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		type counts struct{ Counts map[string]int64 }
		make := func(reverse bool) counts {
			m := map[string]int64{}
			for i := range int64(100) {
				if reverse {
					i = 99 - i
				}
				m[string(rune('a'+i%26))+string(rune('a'+i/26))] = i
			}
			return counts{m}
		}
		first, err := codec.Marshal(make(false))
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			again, err := codec.Marshal(make(true))
			if err != nil {
				t.Fatal(err)
			}
			if string(again) != string(first) {
				t.Fatal("one value has two stored forms")
			}
		}
	})
}

// R-SU01: the instant survives, the location is UTC on every machine.
func TestTimesAreUTC(t *testing.T) {
	shanghai := time.FixedZone("CST", 8*60*60)
	saved := time.Local
	time.Local = shanghai
	t.Cleanup(func() { time.Local = saved })

	type stamp struct{ time.Time }
	type inner struct {
		At    time.Time
		Maybe *time.Time
	}
	type event struct {
		At      time.Time
		Maybe   *time.Time
		Many    []time.Time
		Array   [2]time.Time
		ByName  map[string]time.Time
		PByName map[string]*time.Time
		Inner   inner
		Inners  []inner
		ByInner map[string]inner
		Stamp   stamp
		Stamps  []stamp
		inner2
	}
	in := func(loc *time.Location) event {
		at := time.Date(2021, 6, 3, 0, 0, 0, 1000, time.UTC).In(loc)
		old := time.Date(1, 2, 3, 4, 5, 6, 999999999, time.UTC).In(loc)
		i := inner{at, &old}
		return event{
			At: at, Maybe: &at, Many: []time.Time{at, old}, Array: [2]time.Time{at, {}}, ByName: map[string]time.Time{"a": old},
			PByName: map[string]*time.Time{"a": &at, "n": nil}, Inner: i, Inners: []inner{i, {}}, ByInner: map[string]inner{"a": i},
			Stamp: stamp{at}, Stamps: []stamp{{old}}, inner2: inner2{at},
		}
	}
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		for _, loc := range []*time.Location{time.UTC, time.Local, time.FixedZone("", -3*60*60-30*60)} {
			got := roundTrip(t, codec, in(loc))
			// cmp compares times by Equal; DeepEqual demands the same location as well.
			if !reflect.DeepEqual(got, in(time.UTC)) {
				t.Errorf("from %s:\n got %+v\nwant %+v", loc, got, in(time.UTC))
			}
			if key := got.At.Format("2006-01-02"); key != "2021-06-03" {
				t.Errorf("date key is %s", key)
			}
			if got.At.Location() != time.UTC || got.Stamps[0].Location() != time.UTC {
				t.Errorf("locations are %s and %s", got.At.Location(), got.Stamps[0].Location())
			}
		}
	})
}

type inner2 struct{ Seen time.Time }

// R-SU04: nil and empty are kept apart, and nil pointers stay nil; the same for both codecs.
func TestNilAndEmpty(t *testing.T) {
	type event struct {
		Number    *int64
		When      *time.Time
		Amount    *decimal.Decimal
		Slice     []int64
		Texts     []string
		Map       map[string]int64
		SMap      map[string]string
		Bytes     []byte
		Struct    *address
		*Embedded `msgpack:",noinline" json:"Embedded"`
	}
	zero, zeroTime := int64(0), time.Time{}
	values := map[string]event{
		"nil": {},
		"empty": {
			Slice: []int64{}, Texts: []string{}, Map: map[string]int64{}, SMap: map[string]string{}, Bytes: []byte{},
			Number: &zero, When: &zeroTime, Amount: &decimal.Decimal{}, Struct: &address{}, Embedded: &Embedded{},
		},
	}
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		for name, want := range values {
			t.Run(name, func(t *testing.T) {
				if got := roundTrip(t, codec, want); !reflect.DeepEqual(got, want) {
					t.Errorf("\n got %#v\nwant %#v", got, want)
				}
			})
		}
	})
}

type Embedded struct{ Number int64 }

func TestOmitEmpty(t *testing.T) {
	type event struct {
		Slice  []int64  `msgpack:",omitempty" json:",omitempty"`
		Number int64    `msgpack:",omitempty" json:",omitempty"`
		Maybe  *int64   `msgpack:",omitempty" json:",omitempty"`
		Time   *address `msgpack:"t,omitempty" json:"t,omitempty"`
	}
	zero := int64(0)
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		data, err := codec.Marshal(event{Slice: []int64{}})
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 2 {
			t.Errorf("empty fields were stored: %q", data)
		}
		if got := roundTrip(t, codec, event{Maybe: &zero}); got.Maybe == nil || *got.Maybe != 0 {
			t.Error("a pointer to zero is not empty")
		}
	})
}

// R-SU03: decimals and big numbers come back exactly, whichever methods they marshal with.
func TestExactNumbers(t *testing.T) {
	type event struct {
		Sum    decimal.Decimal
		Maybe  *decimal.Decimal
		Big    big.Int
		Rat    big.Rat
		ByName map[string]decimal.Decimal
	}
	sum, err := decimal.MustParse("0.1").Add(decimal.MustParse("0.2"))
	if err != nil {
		t.Fatal(err)
	}
	scaled := decimal.MustParse("12.500")
	want := event{Sum: sum, Maybe: &scaled, ByName: map[string]decimal.Decimal{"a": decimal.MustParse("-9999999999.999999999")}}
	const digits = "1234567890123456789012345678901234567890"
	want.Big.SetString(digits, 10)
	want.Rat.SetString(digits + "/7")
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		got := roundTrip(t, codec, want)
		if got.Sum.String() != "0.3" || got.Maybe.String() != "12.500" || got.Big.String() != digits || got.Rat.String() != digits+"/7" {
			t.Errorf("got %s, %s, %s, %s", got.Sum, got.Maybe, &got.Big, &got.Rat)
		}
		if got.ByName["a"].String() != "-9999999999.999999999" {
			t.Errorf("got %s", got.ByName["a"])
		}
	})
}

// R-SU07, and the extremes.
func TestIntegersKeepTheirDigits(t *testing.T) {
	type event struct {
		ID  int64
		UID uint64
		IDs []int64
		By  map[int64]uint64
	}
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		for _, id := range []int64{9007199254740993, 1546130668394913822, math.MaxInt64, math.MinInt64, -9007199254740993, 0} {
			want := event{id, uint64(id), []int64{id}, map[int64]uint64{id: uint64(id)}}
			if got := roundTrip(t, codec, want); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
	})
}

func TestUnknownFieldsAreIgnoredAndMissingOnesZero(t *testing.T) {
	type newer struct {
		A     string
		Extra struct{ Deep []map[string][]byte }
		More  []float64
		B     int64
	}
	type older struct {
		A       string
		B       int64
		Missing []string
	}
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		from := newer{A: "a", More: []float64{1}, B: 7}
		from.Extra.Deep = []map[string][]byte{{"x": {1}}, nil}
		data, err := codec.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		got := older{A: "old", Missing: []string{"old"}}
		if err := codec.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, older{A: "a", B: 7}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestRecursiveTypes(t *testing.T) {
	type node struct {
		Name string
		Kids []node
		By   map[string]*node
		Next *node
	}
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		want := node{"a", []node{{Name: "b", Kids: []node{}}}, map[string]*node{"c": {Name: "d"}}, &node{Name: "e"}}
		compare(t, roundTrip(t, codec, want), want)

		deep := &node{}
		for range 998 {
			deep = &node{Next: deep}
		}
		compare(t, roundTrip(t, codec, *deep), *deep)
		for range 10 {
			deep = &node{Next: deep}
		}
		if _, err := codec.Marshal(deep); err == nil {
			t.Error("a value that could not be read back was written")
		}
		cycle := &node{}
		cycle.Next = cycle
		if _, err := codec.Marshal(cycle); err == nil {
			t.Error("a cycle was written")
		}
	})
}
