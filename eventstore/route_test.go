package eventstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

func TestRouteValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		route eventstore.Route
		field string // empty: valid
	}{
		"least":              {eventstore.Route{Topic: "t"}, ""},
		"longest":            {eventstore.Route{Topic: strings.Repeat("x", 200)}, ""},
		"full":               {eventstore.Route{Topic: "büro events", Categories: []string{"order"}, Types: []string{"order.placed"}}, ""},
		"no topic":           {eventstore.Route{}, "Route.Topic"},
		"long topic":         {eventstore.Route{Topic: strings.Repeat("x", 201)}, "Route.Topic"},
		"control character":  {eventstore.Route{Topic: "a\nb"}, "Route.Topic"},
		"zero byte":          {eventstore.Route{Topic: "a\x00b"}, "Route.Topic"},
		"bad UTF-8":          {eventstore.Route{Topic: "a\xff"}, "Route.Topic"},
		"empty category":     {eventstore.Route{Topic: "t", Categories: []string{"a", ""}}, "Route.Categories[1]"},
		"category with dash": {eventstore.Route{Topic: "t", Categories: []string{"a-b"}}, "Route.Categories[0]"},
		"category bad UTF-8": {eventstore.Route{Topic: "t", Categories: []string{"\xff"}}, "Route.Categories[0]"},
		"empty type":         {eventstore.Route{Topic: "t", Types: []string{""}}, "Route.Types[0]"},
		"long type":          {eventstore.Route{Topic: "t", Types: []string{"a", strings.Repeat("x", 129)}}, "Route.Types[1]"},
	} {
		err := c.route.Validate()
		wantRefused(t, name, err, c.field)
	}
	wantRefused(t, "two topics", eventstore.ValidateRoutes([]eventstore.Route{{Topic: "a"}, {Topic: "b"}}), "")
	wantRefused(t, "one topic twice", eventstore.ValidateRoutes([]eventstore.Route{{Topic: "a"}, {Topic: "b"}, {Topic: "a"}}), "Route.Topic")
	wantRefused(t, "a bad route", eventstore.ValidateRoutes([]eventstore.Route{{Topic: "a"}, {}}), "Route.Topic")
}

func wantRefused(t *testing.T, name string, err error, field string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	var invalid *eventstore.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field || invalid.Remedy == "" {
		t.Errorf("%s: got %v, want an InvalidError of %s", name, err, field)
	}
}

func TestRouteAccepts(t *testing.T) {
	t.Parallel()
	order := eventstore.NewStreamID("order", "1")
	placed := eventstore.EventData{Type: "order.placed", Data: []byte("x")}
	for name, c := range map[string]struct {
		route eventstore.Route
		want  bool
	}{
		"everything":         {eventstore.Route{}, true},
		"category":           {eventstore.Route{Categories: []string{"bill", "order"}}, true},
		"other category":     {eventstore.Route{Categories: []string{"bill"}}, false},
		"type":               {eventstore.Route{Types: []string{"order.placed"}}, true},
		"other type":         {eventstore.Route{Types: []string{"order"}}, false},
		"type, not category": {eventstore.Route{Types: []string{"order.placed"}, Categories: []string{"bill"}}, false},
		"content": {eventstore.Route{Where: func(s eventstore.StreamID, e eventstore.EventData) bool {
			return s == order && string(e.Data) == "x"
		}}, true},
		"other content":             {eventstore.Route{Where: func(eventstore.StreamID, eventstore.EventData) bool { return false }}, false},
		"content, but not the type": {eventstore.Route{Types: []string{"a"}, Where: func(eventstore.StreamID, eventstore.EventData) bool { return true }}, false},
	} {
		if got := c.route.Accepts(order, placed); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRouteMessage(t *testing.T) {
	t.Parallel()
	order := eventstore.NewStreamID("order", "1")
	event := eventstore.EventData{
		ID: uuid.MustParse("0193e2f1-0000-7000-8000-000000000001"), Type: "order.placed", SchemaVersion: 3, ContentType: "application/msgpack",
		Data: []byte("x"), Metadata: eventstore.Metadata{Tenant: "acme", Actor: "ann", Headers: map[string]string{"a": "1", "b": "2"}},
	}
	route := eventstore.Route{Topic: "public"}
	if got, err := route.Message(order, event); err != nil || !cmp.Equal(got, event) {
		t.Errorf("without Map: %+v, %v", got, err)
	}
	route.Map = func(s eventstore.StreamID, e eventstore.EventData) (eventstore.EventData, error) {
		return eventstore.EventData{
			Type: "public.order", Data: append([]byte(s.ID+":"), e.Data...),
			Metadata: eventstore.Metadata{Actor: "system", Headers: map[string]string{"b": "3"}},
		}, nil
	}
	got, err := route.Message(order, event)
	want := eventstore.EventData{
		ID: uuid.NewSHA1(event.ID, []byte("public")), Type: "public.order", SchemaVersion: 1, ContentType: "application/octet-stream", Data: []byte("1:x"),
		Metadata: eventstore.Metadata{Tenant: "acme", Actor: "system", Headers: map[string]string{"a": "1", "b": "3"}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	again, err := route.Message(order, event)
	if err != nil || again.ID != got.ID || got.ID.Version() != 5 {
		t.Errorf("ids %s and %s, %v", got.ID, again.ID, err)
	}
	other := route
	other.Topic = "internal"
	if m, err := other.Message(order, event); err != nil || m.ID == got.ID {
		t.Errorf("two topics have one id, %v", err)
	}
	own := uuid.New()
	route.Map = func(_ eventstore.StreamID, e eventstore.EventData) (eventstore.EventData, error) {
		e.ID = own
		return e, nil
	}
	if m, err := route.Message(order, event); err != nil || m.ID != own || m.SchemaVersion != 3 {
		t.Errorf("%+v, %v", m, err)
	}
	cause := errors.New("cannot")
	route.Map = func(eventstore.StreamID, eventstore.EventData) (eventstore.EventData, error) { return event, cause }
	if _, err := route.Message(order, event); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	route.Map = func(eventstore.StreamID, eventstore.EventData) (eventstore.EventData, error) {
		return eventstore.EventData{}, nil
	}
	_, err = route.Message(order, event)
	wantRefused(t, "a message without type", err, "Type")
}

func TestOutboxQueryValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query eventstore.OutboxQuery
		field string
	}{
		"everything":     {eventstore.OutboxQuery{Partition: eventstore.AllPartitions, Limit: 1}, ""},
		"one partition":  {eventstore.OutboxQuery{Topic: "t", Partition: 5, Limit: 1}, ""},
		"one key":        {eventstore.OutboxQuery{Topic: "t", Partition: 5, PartitionKey: "k", Limit: 1}, ""},
		"key, no topic":  {eventstore.OutboxQuery{Partition: 5, PartitionKey: "k", Limit: 1}, "OutboxQuery.PartitionKey"},
		"key anywhere":   {eventstore.OutboxQuery{Topic: "t", Partition: eventstore.AllPartitions, PartitionKey: "k", Limit: 1}, "OutboxQuery.PartitionKey"},
		"no limit":       {eventstore.OutboxQuery{}, "OutboxQuery.Limit"},
		"bad partition":  {eventstore.OutboxQuery{Partition: -2, Limit: 1}, "OutboxQuery.Partition"},
		"bad topic":      {eventstore.OutboxQuery{Topic: "\x01", Limit: 1}, "OutboxQuery.Topic"},
		"negative limit": {eventstore.OutboxQuery{Limit: -1}, "OutboxQuery.Limit"},
	} {
		wantRefused(t, name, c.query.Validate(), c.field)
	}
	if (eventstore.OutboxMessage{}).IsEvent() || !(eventstore.OutboxMessage{RecordedEvent: eventstore.RecordedEvent{Version: 1}}).IsEvent() {
		t.Error("IsEvent is wrong")
	}
}
