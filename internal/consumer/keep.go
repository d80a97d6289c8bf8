package consumer

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// fits stops the consumer when messages with which nothing can be done need more room than there is. Those that have room are
// written before; they come again with the others, and change nothing then.
func (a *application) fits(held []HeldMessage) error {
	c := a.lease.parked.Change()
	for _, h := range held {
		if h.Kind != Refused {
			continue
		}
		f := a.refused(h)
		if !c.Aside(parking.Key{Topic: f.Topic, Sequence: h.Event.PartitionKey}) && a.lease.parked.Len()+c.Added() >= a.w.cfg.MaxParked {
			if err := a.commit(a.applied, c, func(*pgx.Batch) {}); err != nil {
				return err
			}
			return a.crowded(f, "discard what cannot be read, or find out who sends it")
		}
		c.Park(f)
	}
	return nil
}

func (a *application) refused(h HeldMessage) parking.Failure {
	f := a.w.failure(h.Event, eventstore.Permanent, h.Err, 1)
	f.Topic = h.Topic
	return f
}

// crowded ends the consumer before something that would have to be set aside, and has no room.
func (a *application) crowded(f parking.Failure, why string) error {
	e := f.Message
	e.Data = nil
	return &stopError{fmt.Errorf("consumer: %s has set aside %d sequences, as many as Config.MaxParked allows; %s: %w",
		a.w.spec.Ref, a.w.cfg.MaxParked, why, &HandlerError{Consumer: a.w.spec.Name, Version: a.w.spec.Version, Event: e, Attempts: 1, Err: f.Err})}
}

// hold writes down what the feed has kept, and returns where sequences begin that are set aside by it.
func (a *application) hold(c *parking.Changes, held []HeldMessage) (from map[string]eventstore.Position) {
	for _, h := range held {
		key := parking.Key{Sequence: h.Event.PartitionKey}
		switch h.Kind {
		case Discarded:
			c.Forget(key, h.Event.Position)
			continue
		case Refused:
			c.Park(a.refused(h))
			continue
		}
		if h.Kind != Redelivered {
			if _, known := a.lease.parked.Get(key); !known {
				if from == nil {
					from = map[string]eventstore.Position{}
				}
				if at, ok := from[key.Sequence]; !ok || h.Event.Position.Before(at) {
					from[key.Sequence] = h.Event.Position
				}
			}
			c.Await(key, h.Event.Partition, h.Event.Position, a.w.now())
			c.Passed(key, h.Event.Position)
		}
		c.Hold(parking.Held{
			Key: key, Message: h.Event, Previous: h.Previous, Present: h.Kind != Awaited, Fill: h.Kind == Redelivered,
		})
	}
	return from
}
