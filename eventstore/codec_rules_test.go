package eventstore_test

//lint:file-ignore U1000 the rules look at fields by reflection; nothing else uses them

import (
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/uuid"
	"github.com/govalues/decimal"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/daybook-go/daybook/eventstore"
)

type doer interface{ Do() }

type writeOnly struct{ n int }

func (writeOnly) MarshalText() ([]byte, error) { return []byte("x"), nil }

type readOnly struct{ n int }

func (*readOnly) UnmarshalText([]byte) error { return nil }

type opaque struct{ cents int64 }

type promotedTime struct {
	time.Time
	Note string
}

type EmbeddedTime struct {
	time.Time
	decimal.Decimal
}

type textKey string

func (k textKey) MarshalText() ([]byte, error) { return []byte("k:" + k), nil }
func (k *textKey) UnmarshalText(b []byte) error {
	*k = textKey(strings.TrimPrefix(string(b), "k:"))
	return nil
}

type hidden struct{ Number int64 }
type unexportedNumber int64

// refused types, by the rule that they break. Field is the path that the text must name.
type (
	refusedAny        struct{ Payload any }
	refusedInterface  struct{ Inner struct{ Command doer } }
	refusedMapAny     struct{ Extra map[string]any }
	refusedSliceAny   struct{ List [][]any }
	refusedError      struct{ Cause error }
	refusedChan       struct{ C chan int }
	refusedFunc       struct{ F func() }
	refusedComplex    struct{ Z complex128 }
	refusedUintptr    struct{ P uintptr }
	refusedUnsafe     struct{ P unsafe.Pointer }
	refusedOpaque     struct{ Amount opaque }
	refusedUnexported struct {
		Owner string
		cents int64
	}
	refusedOnlyWrite  struct{ W writeOnly }
	refusedOnlyRead   struct{ R []readOnly }
	refusedPromoted   struct{ At promotedTime }
	refusedPtrPtr     struct{ P **int64 }
	refusedPtrSlice   struct{ P *[]int64 }
	refusedPtrMap     struct{ P *map[string]int64 }
	refusedFloatKey   struct{ M map[float64]int64 }
	refusedTimeKey    struct{ M map[time.Time]int64 }
	refusedStructKey  struct{ M map[hidden]int64 }
	refusedPointerKey struct{ M map[*int64]int64 }
	refusedBoolKey    struct{ M map[bool]int64 }
	refusedMapValue   struct{ M map[string]big.Int }
	refusedMapValueIn struct {
		M map[string]struct{ Big [1]big.Int }
	}
	refusedBigFloat struct{ F *big.Float }
	refusedSameName struct {
		A int64 `msgpack:"B" json:"B"`
		B int64
	}
	refusedShadow struct {
		hidden
		Number int64
	}
	refusedEmbeddedPtr    struct{ *Embedded }
	refusedEmbeddedNumber struct{ unexportedNumber }
	refusedDeep           struct {
		Lines []struct {
			By map[string]struct{ Cause *refusedChan }
		}
	}
)

func TestRefusedTypes(t *testing.T) {
	for _, test := range []struct {
		goType reflect.Type
		make   func(eventstore.Codec)
		parts  []string
	}{
		refused[refusedAny]("field Payload", "interface type interface {}", "concrete type"),
		refused[refusedInterface]("field Inner.Command", "eventstore_test.doer"),
		refused[refusedMapAny]("field Extra[]", "interface"),
		refused[refusedSliceAny]("field List[][]", "interface"),
		refused[refusedError]("field Cause", "interface type error"),
		refused[refusedChan]("field C", "chan int"),
		refused[refusedFunc]("field F", "func()"),
		refused[refusedComplex]("field Z", "complex128"),
		refused[refusedUintptr]("field P", "uintptr"),
		refused[refusedUnsafe]("field P", "unsafe.Pointer"),
		refused[refusedOpaque]("field Amount.cents", "unexported", "export it"),
		refused[refusedUnexported]("field cents", "unexported", `:"-"`),
		refused[refusedOnlyWrite]("field W", "MarshalText but without UnmarshalText"),
		refused[refusedOnlyRead]("field R[]", "UnmarshalText but without MarshalText"),
		refused[refusedPromoted]("field At", "embedded type", "field name"),
		refused[refusedPtrPtr]("field P", "use *int64"),
		refused[refusedPtrSlice]("field P", "use []int64"),
		refused[refusedPtrMap]("field P", "use map[string]int64"),
		refused[refusedFloatKey]("field M", "keys of type float64"),
		refused[refusedTimeKey]("field M", "keys of type time.Time", "Unix"),
		refused[refusedStructKey]("field M", "hidden"),
		refused[refusedPointerKey]("field M", "*int64"),
		refused[refusedBoolKey]("field M", "keys of type bool"),
		refused[refusedMapValue]("field M", "big.Int", "use map values of type *big.Int"),
		refused[refusedMapValueIn]("field M", "big.Int"),
		refused[refusedBigFloat]("field F", "big.Float", "big.Rat"),
		refused[refusedSameName]("field B", `stored as "B"`, "like field A"),
		refused[refusedShadow]("field Number", `stored as "Number"`),
		refused[refusedEmbeddedPtr]("field Embedded", "embeds a pointer", "tag it"),
		refused[refusedEmbeddedNumber]("field unexportedNumber", "unexported"),
		refused[refusedDeep]("field Lines[].By[].Cause.C", "chan int"),
	} {
		for _, codec := range codecs {
			t.Run(test.goType.Name()+"/"+codec.ContentType(), func(t *testing.T) {
				text := panicText(t, func() { test.make(codec) })
				wantText(t, text, append(test.parts, test.goType.String(), `"refused.type"`)...)
			})
		}
	}
}

func refused[E any](parts ...string) struct {
	goType reflect.Type
	make   func(eventstore.Codec)
	parts  []string
} {
	return struct {
		goType reflect.Type
		make   func(eventstore.Codec)
		parts  []string
	}{reflect.TypeFor[E](), func(codec eventstore.Codec) {
		eventstore.NewCatalog(eventstore.TypeOf[E]("refused.type", eventstore.EncodedAs(codec)))
	}, parts}
}

// Rules that only one codec has.
func TestTypesRefusedByOneCodec(t *testing.T) {
	type asArray struct {
		_msgpack struct{} `msgpack:",as_array"`
		A        int64
	}
	type interned struct {
		A string `msgpack:",intern"`
	}
	type quoted struct {
		A string `msgpack:"'a,b'"`
	}
	type misspelt struct {
		A string `msgpack:",omitEmpty"`
	}
	type named struct {
		Embedded `msgpack:"base"`
	}
	// Made by reflection, because linters refuse such a tag too.
	badName := reflect.Zero(reflect.StructOf([]reflect.StructField{{Name: "A", Type: reflect.TypeFor[string](), Tag: `json:"a\\b"`}})).Interface()
	type texts struct{ M map[textKey]int64 }
	type alias struct {
		A string `msgpack:"a,alias:b"`
		B string `msgpack:"b"`
	}
	check := func(codec eventstore.Codec, v any, parts ...string) {
		t.Helper()
		_, err := codec.Marshal(v)
		if err == nil {
			t.Errorf("%T was stored as %s", v, codec.ContentType())
			return
		}
		wantText(t, err.Error(), parts...)
	}
	check(eventstore.Msgpack, asArray{}, "field _msgpack", "whole struct")
	check(eventstore.Msgpack, interned{}, "field A", `"intern"`)
	check(eventstore.Msgpack, quoted{}, "field A", "plain name")
	check(eventstore.Msgpack, misspelt{}, "field A", `"omitEmpty"`)
	check(eventstore.Msgpack, named{}, "field Embedded", "base,noinline")
	check(eventstore.Msgpack, alias{}, "field B", `stored as "b"`)
	check(eventstore.JSON, badName, "field A", "ignores")
	check(eventstore.JSON, texts{}, "field M", "differently")
	check(eventstore.JSON, EmbeddedTime{}, "field Time", "passes over")
}

// cents keeps its number unexported and marshals itself, with methods on the value and on the pointer.
type cents struct{ n int64 }

func (c cents) EncodeMsgpack(enc *msgpack.Encoder) error { return enc.EncodeInt(c.n) }
func (c *cents) DecodeMsgpack(dec *msgpack.Decoder) (err error) {
	c.n, err = dec.DecodeInt64()
	return err
}
func (c cents) MarshalJSON() ([]byte, error)  { return []byte(big.NewInt(c.n).String()), nil }
func (c *cents) UnmarshalJSON(b []byte) error { return (&jsonInt{&c.n}).read(b) }

type jsonInt struct{ n *int64 }

func (j *jsonInt) read(b []byte) error {
	v, _ := new(big.Int).SetString(string(b), 10)
	*j.n = v.Int64()
	return nil
}

type pointerText struct{ text string }

func (p *pointerText) MarshalText() ([]byte, error) { return []byte(p.text), nil }
func (p *pointerText) UnmarshalText(b []byte) error { p.text = string(b); return nil }

type packed struct{ a, b byte }

func (p packed) MarshalMsgpack() ([]byte, error)  { return []byte{0x92, p.a, p.b}, nil }
func (p *packed) UnmarshalMsgpack(b []byte) error { p.a, p.b = b[1], b[2]; return nil }
func (p packed) MarshalJSON() ([]byte, error)     { return []byte{'"', p.a + '0', p.b + '0', '"'}, nil }
func (p *packed) UnmarshalJSON(b []byte) error    { p.a, p.b = b[1]-'0', b[2]-'0'; return nil }

func TestTypesThatMarshalThemselves(t *testing.T) {
	type wrapped struct{ decimal.Decimal }
	type event struct {
		Cents   cents
		CentsP  *cents
		List    []cents
		ByName  map[string]cents
		Text    pointerText
		TextP   *pointerText
		Texts   []pointerText
		TextsBy map[string]*pointerText
		Array   [2]pointerText
		Packed  packed
		PackedP *packed
		Wrapped wrapped
		ByID    map[uuid.UUID]cents
	}
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		compare(t, roundTrip(t, codec, event{}), event{})
		want := event{
			cents{-7}, &cents{1}, []cents{{2}}, map[string]cents{"a": {3}},
			pointerText{"x"}, &pointerText{""}, []pointerText{{"y"}}, map[string]*pointerText{"n": nil, "v": {"v"}}, [2]pointerText{{"p"}, {"q"}},
			packed{1, 2}, &packed{3, 4}, wrapped{decimal.MustParse("1.50")}, map[uuid.UUID]cents{{9}: {9}},
		}
		compare(t, roundTrip(t, codec, want), want)
		type root = packed
		compare(t, roundTrip(t, codec, root{5, 6}), root{5, 6})
	})
	type keyed struct{ M map[textKey]int64 }
	want := keyed{map[textKey]int64{"a": 1}}
	compare(t, roundTrip(t, eventstore.Msgpack, want), want)
}

// broken writes no MessagePack value, or more than one.
type broken struct{ Data string }

func (b broken) EncodeMsgpack(enc *msgpack.Encoder) error {
	_, err := enc.Writer().Write([]byte(b.Data))
	return err
}
func (b *broken) DecodeMsgpack(*msgpack.Decoder) error { return nil }

func TestWhatMarshalsItselfWronglyIsNotStored(t *testing.T) {
	type event struct{ Inner struct{ Broken broken } }
	for _, data := range []string{"", "\x01\x02", "\x92\x01", "\xc1"} {
		var e event
		e.Inner.Broken.Data = data
		_, err := eventstore.Msgpack.Marshal(e)
		if err == nil {
			t.Errorf("%q was stored", data)
			continue
		}
		wantText(t, err.Error(), "field Inner.Broken", "exactly one MessagePack value")
	}
	_, err := eventstore.Msgpack.Marshal(broken{Data: "\x01"})
	if err != nil {
		t.Error(err)
	}
	// It reads nothing of the value that stands there.
	if err := eventstore.Msgpack.Unmarshal([]byte{1}, new(broken)); err == nil || !strings.Contains(err.Error(), "cannot read itself") {
		t.Errorf("got %v", err)
	}
}

func TestSkippedAndBlankFields(t *testing.T) {
	type event struct {
		_     [0]func()
		Owner string
		Cache chan int `msgpack:"-" json:"-"`
		cents int64    `msgpack:"-" json:"-"`
	}
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		got := roundTrip(t, codec, event{Owner: "ada", Cache: make(chan int), cents: 7})
		if got.Owner != "ada" || got.Cache != nil || got.cents != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestTargets(t *testing.T) {
	eachCodec(t, func(t *testing.T, codec eventstore.Codec) {
		for _, target := range []any{nil, accountOpened{}, (*accountOpened)(nil)} {
			if err := codec.Unmarshal([]byte{0x80}, target); err == nil {
				t.Errorf("decoded into %#v", target)
			}
		}
		for _, source := range []any{nil, (*accountOpened)(nil)} {
			if data, err := codec.Marshal(source); err == nil {
				t.Errorf("%#v was stored as %q", source, data)
			}
		}
		byValue, _ := codec.Marshal(accountOpened{Owner: "a"})
		byPointer, err := codec.Marshal(&accountOpened{Owner: "a"})
		if err != nil || string(byValue) != string(byPointer) {
			t.Errorf("%q and %q, %v", byValue, byPointer, err)
		}
		// Other types than structs may be stored too: states of snapshots.
		compare(t, roundTrip(t, codec, map[string]int64{"a": 1}), map[string]int64{"a": 1})
		compare(t, roundTrip(t, codec, []string(nil)), []string(nil))
		compare(t, roundTrip(t, codec, [16]byte{1}), [16]byte{1})
		compare(t, roundTrip(t, codec, int64(5)), int64(5))
	})
}
