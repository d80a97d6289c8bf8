package eventstore

import (
	"context"
	"maps"
)

// Well-known header names. Headers are lower-case by convention.
const (
	// HeaderTraceparent carries the trace an event was written in, as W3C Trace Context defines it.
	HeaderTraceparent = "traceparent"
	// HeaderTracestate carries the vendor part of the same trace.
	HeaderTracestate = "tracestate"
)

// Metadata says who caused an event and as part of what. Every field may be empty.
//
// Values are text on purpose: numbers would change their type on the way through codecs and brokers. Nothing secret
// belongs here; metadata is not encrypted and shows in logs and consoles.
type Metadata struct {
	// Tenant is the customer or organisation that the event belongs to.
	Tenant string
	// CorrelationID names the whole conversation, CausationID the direct parent: the command or event that led here.
	CorrelationID string
	CausationID   string
	// Actor is the person or program that gave the command.
	Actor string
	// Headers hold what else should travel with the event, W3C traceparent included. An event read back has nil here
	// when none were given.
	Headers map[string]string
}

// Merge returns m with every field that is empty in m taken from defaults. Headers are joined; m wins. The result has
// headers of its own: changing them later changes neither m nor defaults.
func (m Metadata) Merge(defaults Metadata) Metadata {
	pick := func(own, other string) string {
		if own != "" {
			return own
		}
		return other
	}
	merged := Metadata{
		Tenant:        pick(m.Tenant, defaults.Tenant),
		CorrelationID: pick(m.CorrelationID, defaults.CorrelationID),
		CausationID:   pick(m.CausationID, defaults.CausationID),
		Actor:         pick(m.Actor, defaults.Actor),
	}
	if n := len(m.Headers) + len(defaults.Headers); n > 0 {
		merged.Headers = make(map[string]string, n)
		maps.Copy(merged.Headers, defaults.Headers)
		maps.Copy(merged.Headers, m.Headers)
	}
	return merged
}

func (m Metadata) validate(field string) error {
	for _, f := range [...]struct{ name, text string }{
		{"Tenant", m.Tenant}, {"CorrelationID", m.CorrelationID}, {"CausationID", m.CausationID}, {"Actor", m.Actor},
	} {
		if err := checkLimitedText(field+".Metadata."+f.name, f.text, maxMetadataText); err != nil {
			return err
		}
	}
	for name, value := range m.Headers {
		if err := checkLimitedText(field+".Metadata.Headers name", name, maxMetadataText); err != nil {
			return err
		}
		if err := checkLimitedText(field+".Metadata.Headers["+name+"]", value, maxHeaderText); err != nil {
			return err
		}
	}
	return nil
}

type metadataKey struct{}

// WithMetadata returns a context whose metadata every append made with it adds to its events: fields set in m replace
// those of ctx, headers are joined. Fields that an event sets itself win over the context.
func WithMetadata(ctx context.Context, m Metadata) context.Context {
	return context.WithValue(ctx, metadataKey{}, m.Merge(MetadataFrom(ctx)))
}

// MetadataFrom returns the metadata that [WithMetadata] put into ctx, or the zero Metadata.
func MetadataFrom(ctx context.Context) Metadata {
	m, _ := ctx.Value(metadataKey{}).(Metadata)
	return m
}
