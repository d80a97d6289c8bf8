package eventstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/google/uuid"
)

// maxTopic bounds a topic's name in bytes; brokers take less than PostgreSQL does.
const maxTopic = 200

// Route says which events are published on a topic, and as what.
//
// It is configuration of the store, because the append that stores an event also writes what is to be published of it:
// whatever is stored is published, and nothing else. A route added or changed later affects new appends only.
//
// Where and Map must be pure: an append that is tried again calls them again. Both must be safe for concurrent use.
type Route struct {
	// Topic is 1 to 200 bytes of UTF-8 without control characters. A store takes one route for a topic.
	Topic string
	// Categories and Types select events of these categories and wire names; empty selects all.
	Categories []string
	Types      []string
	// Where selects by content; nil selects all. It gets the event as it will be stored, with id and metadata.
	Where func(StreamID, EventData) bool
	// Map makes the message that is published in place of the event, and is stored with bytes and a position of its
	// own; nil publishes the event itself. An error fails the append. See [Route.Message].
	Map func(StreamID, EventData) (EventData, error)
}

// Validate reports what keeps the route from being used. The error is an [*InvalidError].
func (r Route) Validate() error {
	if err := checkTopic("Route.Topic", r.Topic); err != nil {
		return err
	}
	for i, category := range r.Categories {
		if category == "" || strings.Contains(category, "-") {
			return &InvalidError{
				Field: "Route.Categories[" + strconv.Itoa(i) + "]", Value: category, Reason: "is no category that a stream can have",
				Remedy: "name what stands before the first dash of the stream ids",
			}
		}
		if err := checkLimitedText("Route.Categories["+strconv.Itoa(i)+"]", category, maxStreamID); err != nil {
			return err
		}
	}
	for i, name := range r.Types {
		if name == "" {
			return &InvalidError{
				Field: "Route.Types[" + strconv.Itoa(i) + "]", Value: "", Reason: "is empty", Remedy: "give the wire name of the event",
			}
		}
		if err := checkLimitedText("Route.Types["+strconv.Itoa(i)+"]", name, maxTypeName); err != nil {
			return err
		}
	}
	return nil
}

// Accepts reports whether the route publishes the event.
func (r Route) Accepts(stream StreamID, e EventData) bool {
	return (len(r.Categories) == 0 || slices.Contains(r.Categories, stream.Category)) &&
		(len(r.Types) == 0 || slices.Contains(r.Types, e.Type)) &&
		(r.Where == nil || r.Where(stream, e))
}

// Message is for engines: it returns what [Route.Map] makes of an event, completed and checked as an event of an append
// is. Without an id the message gets one that follows from the event's id and the topic (a UUID of version 5, RFC 9562),
// so that a repeated append makes the same message; metadata that it leaves empty is the event's. Without Map it is the
// event.
func (r Route) Message(stream StreamID, e EventData) (EventData, error) {
	if r.Map == nil {
		return e, nil
	}
	m, err := r.Map(stream, e)
	if err != nil {
		return EventData{}, fmt.Errorf("eventstore: route %q: map %q of stream %q: %w", r.Topic, e.Type, stream, err)
	}
	if m.ID == (uuid.UUID{}) {
		m.ID = uuid.NewSHA1(e.ID, []byte(r.Topic))
	}
	if m, err = completeEvent(m, e.Metadata); err != nil {
		return EventData{}, fmt.Errorf("%w (route %q, mapping %q of stream %q)", err, r.Topic, e.Type, stream)
	}
	return m, nil
}

// ValidateRoutes reports the first route that cannot be used, and topics that two routes name: each topic has one chain
// of messages, which two routes would tear. The error is an [*InvalidError].
func ValidateRoutes(routes []Route) error {
	seen := make(map[string]bool, len(routes))
	for i, r := range routes {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("%w (route %d)", err, i+1)
		}
		if seen[r.Topic] {
			return &InvalidError{
				Field: "Route.Topic", Value: r.Topic, Reason: "is named by two routes", Remedy: "put both into one route, or give each a topic of its own",
			}
		}
		seen[r.Topic] = true
	}
	return nil
}

func checkTopic(field, topic string) error {
	switch {
	case topic == "":
		return &InvalidError{Field: field, Value: "", Reason: "is empty", Remedy: "name the topic that consumers subscribe to"}
	case strings.ContainsFunc(topic, unicode.IsControl):
		return &InvalidError{Field: field, Value: topic, Reason: "contains a control character", Remedy: "remove it"}
	case len(topic) > maxTopic:
		return &InvalidError{
			Field: field, Value: topic, Reason: fmt.Sprintf("has %d bytes, more than %d", len(topic), maxTopic), Remedy: "use a shorter name",
		}
	}
	return checkText(field, topic)
}
