package postgres

import (
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
)

// published is what the routes make of an append.
type published struct {
	runs runs
	own  columns  // messages with bytes of their own; streams says of which stream's event each is
	to   []string // their topics
}

// runs are the events that a topic gets as they are: a row of the outbox for each run of neighbours.
type runs struct {
	streams, topics []string
	first, last     []int32 // offsets in the stream's part of the append, from 1
}

// empty reports whether no route accepted anything: the append is then what it would be without routes.
func (p *published) empty() bool { return len(p.runs.topics) == 0 && len(p.to) == 0 }

// maxMapped bounds the bytes of the messages that the routes of one append make: PostgreSQL takes no message of a
// gigabyte, and the events may have half of it.
const maxMapped = 256 << 20

// publish asks the routes about one stream's part of an append.
func (p *published) publish(routes []eventstore.Route, id eventstore.StreamID, stream string, events []eventstore.EventData) error {
	for _, r := range routes {
		open := false // the event before belongs to the last run
		for k, e := range events {
			if !r.Accepts(id, e) {
				open = false
				continue
			}
			switch {
			case r.Map != nil:
				m, err := r.Message(id, e)
				if err != nil {
					return fmt.Errorf("postgres: append: %w", err)
				}
				p.to = append(p.to, r.Topic)
				if err := p.own.add(stream, k, m); err != nil {
					return err
				}
			case open:
				p.runs.last[len(p.runs.last)-1]++
			default:
				open = true
				p.runs.streams, p.runs.topics = append(p.runs.streams, stream), append(p.runs.topics, r.Topic)
				p.runs.first, p.runs.last = append(p.runs.first, int32(k+1)), append(p.runs.last, int32(k+1))
			}
		}
	}
	return nil
}

func (p *published) check() error {
	size := 0
	for _, data := range p.own.data {
		size += len(data)
	}
	if size > maxMapped {
		return &eventstore.InvalidError{
			Field: "Config.Routes", Value: fmt.Sprint(size, " bytes"), Reason: "make more than 256 MiB of messages of one append",
			Remedy: "split the work into several appends",
		}
	}
	return nil
}

// whole reports whether all that is published of a one-stream append is its n events, as they are, on one topic.
func (p *published) whole(n int) bool {
	return len(p.to) == 0 && len(p.runs.topics) == 1 && p.runs.first[0] == 1 && p.runs.last[0] == int32(n)
}

// one returns the statement for an append of n events to one stream, and args with the parameters that it has more.
func (p *published) one(n int, s *oneStream, args []any) (string, []any) {
	switch {
	case p.empty():
		return s.plain, args
	case p.whole(n):
		return s.whole, append(args, p.runs.topics[0])
	}
	args = append(args, p.runs.topics, p.runs.first, p.runs.last)
	if len(p.to) == 0 {
		return s.thin, args
	}
	c := &p.own
	return s.own, append(args, p.to, c.ids, c.types, uniform(c.contentTypes), uniform(c.schemaVersions), uniform(c.flags), uniform(c.tenants),
		uniform(c.correlations), uniform(c.causations), uniform(c.actors), uniformBytes(c.headers), c.data)
}

// oneStream are the statements of an append to one stream, by what is published of it: nothing, all events on one
// topic, runs of them, or messages with bytes of their own too.
type oneStream struct{ plain, whole, thin, own string }

// many is [published.one] for an append to several streams.
func (p *published) many(plain, thin, own string, args []any) (string, []any) {
	if p.empty() {
		return plain, args
	}
	args = append(args, p.runs.streams, p.runs.topics, p.runs.first, p.runs.last)
	if len(p.to) == 0 {
		return thin, args
	}
	c := &p.own
	return own, append(args, c.streams, p.to, c.ids, c.types, c.contentTypes, c.schemaVersions, c.flags, c.tenants,
		c.correlations, c.causations, c.actors, c.headers, c.data)
}
