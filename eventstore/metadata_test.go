package eventstore_test

import (
	"context"
	"maps"
	"reflect"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

func TestMetadataMerge(t *testing.T) {
	t.Parallel()
	full := eventstore.Metadata{
		Tenant: "t", CorrelationID: "co", CausationID: "ca", Actor: "ac", Headers: map[string]string{"a": "1", "b": "2"},
	}
	other := eventstore.Metadata{
		Tenant: "T", CorrelationID: "CO", CausationID: "CA", Actor: "AC", Headers: map[string]string{"b": "B", "c": "C"},
	}
	joined := full
	joined.Headers = map[string]string{"a": "1", "b": "2", "c": "C"}
	tests := []struct {
		name              string
		m, defaults, want eventstore.Metadata
	}{
		{"nothing", eventstore.Metadata{}, eventstore.Metadata{}, eventstore.Metadata{}},
		{"own values win", full, other, joined},
		{"defaults fill", eventstore.Metadata{}, full, full},
		{"no defaults", full, eventstore.Metadata{}, full},
		{"field by field", eventstore.Metadata{Actor: "x"}, eventstore.Metadata{Tenant: "y"}, eventstore.Metadata{Actor: "x", Tenant: "y"}},
		{
			"an empty header value is a value",
			eventstore.Metadata{Headers: map[string]string{"b": ""}}, eventstore.Metadata{Headers: map[string]string{"b": "B"}},
			eventstore.Metadata{Headers: map[string]string{"b": ""}},
		},
		{"no headers are nil", eventstore.Metadata{Headers: map[string]string{}}, eventstore.Metadata{}, eventstore.Metadata{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, defaults := maps.Clone(tt.m.Headers), maps.Clone(tt.defaults.Headers)
			got := tt.m.Merge(tt.defaults)
			if !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("Merge = %#v, want %#v", got, tt.want)
			}
			if got.Headers != nil {
				got.Headers["changed"] = "yes"
			}
			if !maps.Equal(tt.m.Headers, m) || !maps.Equal(tt.defaults.Headers, defaults) {
				t.Error("the parts share a map with the result")
			}
		})
	}
}

func TestMetadataInContext(t *testing.T) {
	t.Parallel()
	if got := eventstore.MetadataFrom(context.Background()); !reflect.DeepEqual(got, eventstore.Metadata{}) {
		t.Errorf("an empty context has %#v", got)
	}
	headers := map[string]string{eventstore.HeaderTraceparent: "00-1", "k": "outer"}
	outer := eventstore.WithMetadata(context.Background(), eventstore.Metadata{Tenant: "t", Actor: "outer", Headers: headers})
	inner := eventstore.WithMetadata(outer, eventstore.Metadata{Actor: "inner", Headers: map[string]string{"k": "inner"}})
	headers["k"] = "changed later"
	want := eventstore.Metadata{Tenant: "t", Actor: "inner", Headers: map[string]string{"traceparent": "00-1", "k": "inner"}}
	if got := eventstore.MetadataFrom(inner); !reflect.DeepEqual(got, want) {
		t.Errorf("inner = %#v, want %#v", got, want)
	}
	want = eventstore.Metadata{Tenant: "t", Actor: "outer", Headers: map[string]string{"traceparent": "00-1", "k": "outer"}}
	if got := eventstore.MetadataFrom(outer); !reflect.DeepEqual(got, want) {
		t.Errorf("outer = %#v, want %#v", got, want)
	}
}
