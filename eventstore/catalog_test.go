package eventstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

type accountEvent interface{ accountEvent() }

type accountOpened struct{ Owner string }
type accountDeposited struct{ Cents int64 }
type accountClosed struct{}
type foreignEvent struct{ Name string }
type pointerOnly struct{ Name string }

func (accountOpened) accountEvent()    {}
func (accountDeposited) accountEvent() {}
func (accountClosed) accountEvent()    {}
func (*pointerOnly) accountEvent()     {}

func accountCatalog() *eventstore.Catalog {
	return eventstore.NewCatalog(
		eventstore.TypeOf[accountOpened]("account.opened"),
		eventstore.TypeOf[accountDeposited]("account.deposited"),
		eventstore.TypeOf[accountClosed]("account.closed", eventstore.EncodedAs(eventstore.JSON)),
	)
}

// panicText runs f and returns the text it panics with.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	t.Fatal("did not panic")
	return ""
}

func wantText(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("text lacks %q:\n%s", part, text)
		}
	}
}

// recorded is data as it comes back from a store.
func recorded(data eventstore.EventData) eventstore.RecordedEvent {
	return eventstore.RecordedEvent{
		EventData: data, Stream: eventstore.NewStreamID("account", "42"), Version: 7, Position: eventstore.PositionAt(91),
	}
}

func TestCatalogRoundTrip(t *testing.T) {
	c := accountCatalog()
	for _, event := range []any{accountOpened{Owner: "ada"}, accountDeposited{Cents: 100}, accountClosed{}} {
		data, err := c.Encode(event)
		if err != nil {
			t.Fatal(err)
		}
		if data.SchemaVersion != 1 || data.ID != (eventstore.EventData{}).ID {
			t.Errorf("%T: schema version %d, id %s", event, data.SchemaVersion, data.ID)
		}
		if name, _ := c.TypeName(reflect.TypeOf(event)); name != data.Type {
			t.Errorf("stored as %q, TypeName says %q", data.Type, name)
		}
		got, err := c.Decode(recorded(data))
		if err != nil {
			t.Fatal(err)
		}
		if got != event {
			t.Errorf("got %#v, want %#v", got, event)
		}
	}
	data, _ := c.Encode(accountClosed{})
	if data.ContentType != "application/json" || string(data.Data) != "{}" {
		t.Errorf("EncodedAs(JSON) stored %s as %s", data.Data, data.ContentType)
	}
}

func TestCatalogLookups(t *testing.T) {
	c := accountCatalog()
	if got, want := c.Types(), []string{"account.closed", "account.deposited", "account.opened"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Types() = %v, want %v", got, want)
	}
	if !c.Contains("account.opened") || c.Contains("account.reopened") {
		t.Error("Contains is wrong")
	}
	if goType, ok := c.GoType("account.deposited"); !ok || goType != reflect.TypeFor[accountDeposited]() {
		t.Errorf("GoType = %v, %v", goType, ok)
	}
	if name, ok := c.TypeName(reflect.TypeFor[foreignEvent]()); ok {
		t.Errorf("TypeName of an unknown type = %q", name)
	}
}

func TestEncodeRefusesWhatIsNoEvent(t *testing.T) {
	c := accountCatalog()
	for _, test := range []struct {
		event any
		parts []string
	}{
		{foreignEvent{}, []string{"eventstore_test.foreignEvent", "in no catalog", "TypeOf"}},
		{&accountOpened{}, []string{"*eventstore_test.accountOpened", "pointer", "pass the event itself"}},
		{nil, []string{"is nil"}},
	} {
		_, err := c.Encode(test.event)
		if !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%T: %v is not ErrInvalid", test.event, err)
			continue
		}
		wantText(t, err.Error(), test.parts...)
	}
}

// R-SU10: the error names type, stream, version and position.
func TestDecodeErrors(t *testing.T) {
	c := accountCatalog()
	good, err := c.Encode(accountDeposited{Cents: 5})
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*eventstore.EventData)) eventstore.RecordedEvent {
		data := good
		f(&data)
		return recorded(data)
	}

	_, err = c.Decode(change(func(d *eventstore.EventData) { d.Type = "legacy.x" }))
	var unknown *eventstore.UnknownTypeError
	if !errors.As(err, &unknown) || !errors.Is(err, eventstore.ErrUnknownType) {
		t.Fatalf("unknown name: %v", err)
	}
	if want := (eventstore.UnknownTypeError{Type: "legacy.x", Stream: eventstore.NewStreamID("account", "42"), Version: 7, Position: eventstore.PositionAt(91)}); *unknown != want {
		t.Errorf("got %+v, want %+v", *unknown, want)
	}

	for _, test := range []struct {
		name  string
		event eventstore.RecordedEvent
		part  string
	}{
		{"damaged", change(func(d *eventstore.EventData) { d.Data = []byte{0x81, 0xa5, 'C'} }), "ends in the middle"},
		{"empty", change(func(d *eventstore.EventData) { d.Data = nil }), "ends in the middle"},
		{"trailing", change(func(d *eventstore.EventData) { d.Data = append(append([]byte(nil), d.Data...), 0) }), "behind the value"},
		{"nil", change(func(d *eventstore.EventData) { d.Data = []byte{0xc0} }), "only nil"},
		{"newer", change(func(d *eventstore.EventData) { d.SchemaVersion = 2 }), "schema version 2, newer than 1"},
		{"content type", change(func(d *eventstore.EventData) { d.ContentType = "application/x-protobuf" }), `content type "application/x-protobuf"`},
		{"no content type", change(func(d *eventstore.EventData) { d.ContentType = "" }), `content type ""`},
		{"json", change(func(d *eventstore.EventData) { d.ContentType = "application/json" }), ""},
		{"json trailing", change(func(d *eventstore.EventData) { d.ContentType, d.Data = "application/json", []byte(`{} {}`) }), "after top-level value"},
		{"json null", change(func(d *eventstore.EventData) { d.ContentType, d.Data = "application/json", []byte(` null `) }), "only nil"},
		{"json truncated", change(func(d *eventstore.EventData) { d.ContentType, d.Data = "application/json", []byte(`{"Cents":`) }), "unexpected end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.Decode(test.event)
			var fault *eventstore.DecodeError
			if !errors.As(err, &fault) {
				t.Fatalf("not a DecodeError: %v", err)
			}
			if fault.Type != "account.deposited" || fault.Version != 7 || fault.Position != eventstore.PositionAt(91) || fault.Stream.ID != "42" {
				t.Errorf("facts are missing: %+v", fault)
			}
			wantText(t, err.Error(), "account.deposited", "account-42", test.part)
			if _, again := eventstore.DecodeAs[accountDeposited](c, test.event); again == nil || again.Error() != err.Error() {
				t.Errorf("DecodeAs says %v, Decode %v", again, err)
			}
		})
	}
}

// A type that moved from one codec to another still reads what the other one stored.
func TestStoredContentTypeChoosesTheCodec(t *testing.T) {
	asJSON := eventstore.NewCatalog(eventstore.TypeOf[accountDeposited]("account.deposited", eventstore.EncodedAs(eventstore.JSON)))
	for _, writer := range []*eventstore.Catalog{accountCatalog(), asJSON} {
		data, err := writer.Encode(accountDeposited{Cents: 12})
		if err != nil {
			t.Fatal(err)
		}
		for _, reader := range []*eventstore.Catalog{accountCatalog(), asJSON} {
			if got, err := reader.Decode(recorded(data)); err != nil || got != (accountDeposited{Cents: 12}) {
				t.Errorf("%s: got %v, %v", data.ContentType, got, err)
			}
		}
	}
}

func TestDecodeAs(t *testing.T) {
	c := accountCatalog()
	data, err := c.Encode(accountOpened{Owner: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	data.Metadata = eventstore.Metadata{Actor: "teller"}
	e := recorded(data)
	exact, err := eventstore.DecodeAs[accountOpened](c, e)
	if err != nil {
		t.Fatal(err)
	}
	if exact.Payload.Owner != "ada" || exact.Stream != e.Stream || exact.Version != 7 || exact.Position != e.Position || exact.Metadata.Actor != "teller" {
		t.Errorf("got %+v", exact)
	}
	byInterface, err := eventstore.DecodeAs[accountEvent](c, e)
	if err != nil || byInterface.Payload != accountEvent(accountOpened{Owner: "ada"}) {
		t.Errorf("got %+v, %v", byInterface, err)
	}
	_, err = eventstore.DecodeAs[accountDeposited](c, e)
	var fault *eventstore.DecodeError
	if !errors.As(err, &fault) {
		t.Fatalf("another type: %v", err)
	}
	wantText(t, err.Error(), "eventstore_test.accountOpened is no eventstore_test.accountDeposited")
}

func TestCheckImplements(t *testing.T) {
	if err := accountCatalog().CheckImplements(reflect.TypeFor[accountEvent]()); err != nil {
		t.Error(err)
	}
	mixed := eventstore.Join(accountCatalog(), eventstore.NewCatalog(
		eventstore.TypeOf[foreignEvent]("other.named"), eventstore.TypeOf[pointerOnly]("other.pointed")))
	err := mixed.CheckImplements(reflect.TypeFor[accountEvent]())
	if err == nil {
		t.Fatal("foreign types were accepted")
	}
	wantText(t, err.Error(), `"other.named" (eventstore_test.foreignEvent) does not implement`, `"other.pointed" (eventstore_test.pointerOnly)`, "pointer receiver")
	if strings.Contains(err.Error(), "account.opened") {
		t.Errorf("names a type that implements it: %v", err)
	}
	if err := accountCatalog().CheckImplements(reflect.TypeFor[accountOpened]()); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("a struct as interface: %v", err)
	}
}

func TestNewCatalogPanics(t *testing.T) {
	long := strings.Repeat("a", 129)
	for _, test := range []struct {
		name  string
		make  func()
		parts []string
	}{
		{"empty", func() { eventstore.NewCatalog() }, []string{"no event types", "TypeOf"}},
		{"nil", func() { eventstore.NewCatalog(nil) }, []string{"argument 1 is nil"}},
		{"two types", func() {
			eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("a.x"), eventstore.TypeOf[accountClosed]("a.x"))
		}, []string{`"a.x"`, "accountOpened", "accountClosed", "registered twice"}},
		{"two names", func() {
			eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("a.x"), eventstore.TypeOf[accountOpened]("a.y"))
		}, []string{"accountOpened has two names", `"a.x"`, `"a.y"`}},
		{"no name", func() { eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("")) }, []string{"name is empty", "account.deposited"}},
		{"upper case", func() { eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("Account.Opened")) }, []string{"lower-case"}},
		{"space", func() { eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("account accountOpened")) }, []string{"lower-case"}},
		{"ends in dot", func() { eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("account.")) }, []string{"inside"}},
		{"long", func() { eventstore.NewCatalog(eventstore.TypeOf[accountOpened](long)) }, []string{"129 bytes, more than 128"}},
		{"pointer", func() { eventstore.NewCatalog(eventstore.TypeOf[*accountOpened]("a.x")) }, []string{"*eventstore_test.accountOpened", "not a pointer"}},
		{"interface", func() { eventstore.NewCatalog(eventstore.TypeOf[accountEvent]("a.x")) }, []string{"named struct"}},
		{"unnamed", func() { eventstore.NewCatalog(eventstore.TypeOf[struct{ A int }]("a.x")) }, []string{"named struct"}},
		{"text", func() { eventstore.NewCatalog(eventstore.TypeOf[string]("a.x")) }, []string{"named struct"}},
		{"no codec", func() { eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("a.x", eventstore.EncodedAs(nil))) }, []string{"codec is nil"}},
		{"all faults at once", func() {
			eventstore.NewCatalog(eventstore.TypeOf[accountOpened](""), eventstore.TypeOf[*accountClosed]("a.y"))
		}, []string{"name is empty", "not a pointer"}},
		{"join of nothing", func() { eventstore.Join() }, []string{"Join", "at least one catalog"}},
		{"join of nil", func() { eventstore.Join(nil) }, []string{"argument 1 is nil"}},
		{"join of one name", func() {
			eventstore.Join(accountCatalog(), eventstore.NewCatalog(eventstore.TypeOf[foreignEvent]("account.opened")))
		}, []string{`"account.opened"`, "registered twice"}},
		{"join of one type", func() {
			eventstore.Join(accountCatalog(), eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("account.started")))
		}, []string{"has two names"}},
		{"join of two codecs", func() {
			eventstore.Join(accountCatalog(), eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("account.opened", eventstore.EncodedAs(eventstore.JSON))))
		}, []string{"application/msgpack", "application/json"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := panicText(t, test.make)
			if !strings.HasPrefix(text, "eventstore: ") || strings.Count(text, "eventstore: ") != 1 {
				t.Errorf("the package is not named once: %s", text)
			}
			wantText(t, text, test.parts...)
		})
	}
}

func TestJoinAcceptsTheSameTypeTwice(t *testing.T) {
	joined := eventstore.Join(accountCatalog(), accountCatalog(), eventstore.NewCatalog(eventstore.TypeOf[foreignEvent]("other.named")))
	if got := len(joined.Types()); got != 4 {
		t.Errorf("%d types: %v", got, joined.Types())
	}
}

// upper is a codec of the user's own, which vouches for its types itself.
type upper struct{}

func (upper) ContentType() string                { return "text/x-upper" }
func (upper) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (upper) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

func TestOwnCodec(t *testing.T) {
	c := eventstore.NewCatalog(eventstore.TypeOf[accountOpened]("account.opened", eventstore.EncodedAs(upper{})))
	data, err := c.Encode(accountOpened{Owner: "ada"})
	if err != nil || data.ContentType != "text/x-upper" {
		t.Fatalf("%+v, %v", data, err)
	}
	if got, err := c.Decode(recorded(data)); err != nil || got != (accountOpened{Owner: "ada"}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// What one event refers to is never reached through another, though decoding reuses memory.
func TestDecodedEventsShareNothing(t *testing.T) {
	c := eventstore.NewCatalog(eventstore.TypeOf[everything]("all.kept"))
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 200 {
				want := everything{Texts: []string{fmt.Sprint(worker), fmt.Sprint(i)}, Bytes: []byte{byte(worker), byte(i)}, Counts: map[string]int64{"n": int64(i)}}
				data, err := c.Encode(want)
				if err != nil {
					t.Error(err)
					return
				}
				first, err := c.Decode(recorded(data))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Decode(recorded(eventstore.EventData{Type: "all.kept", ContentType: data.ContentType, Data: data.Data[:len(data.Data)-1]})); err == nil {
					t.Error("truncated data was accepted")
				}
				second, err := eventstore.DecodeAs[everything](c, recorded(data))
				if err != nil {
					t.Error(err)
					return
				}
				second.Payload.Texts[0], second.Payload.Bytes[0], second.Payload.Counts["n"] = "changed", 255, -1
				data.Data[len(data.Data)-1] ^= 0xff
				if got := first.(everything); !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
		})
	}
	group.Wait()
}
