package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/parking"
	"github.com/daybook-go/daybook/internal/retry"
)

// putAside is what a relay does about messages that the broker refuses.
type putAside struct {
	changes *parking.Changes // of the next commit; nil for none
	failed  []failureTold    // observers learn of it then
	breaker retry.Breaker
	refusal error               // of the last message that was published again
	reach   eventstore.Position // all that lies at or below it is published, or in the lanes
	beyond  int                 // so many more sequences than may be: those of one position are set aside together
	planned bool                // redrives were found when the relay looked last
	glanced time.Time           // for something new, while there is much to tend
}

// refused deals with every lane that has stopped. It returns when all of them can go on.
func (l *publishing) refused(ctx context.Context, through eventstore.Position) error {
	for _, at := range l.lanes.all {
		for at.err != nil {
			who, kind := l.judge(at)
			switch who {
			case blameNobody:
				at.err = nil
			case blameBroker:
				if err := l.hold(ctx, at, through); err != nil {
					return err
				}
			default:
				l.breaker.Succeeded()
				l.setAside(at, who, kind)
				at.err = nil
			}
		}
	}
	return nil
}

// hold waits for the broker: after each pause the message that was refused is the one probe. It returns when that was taken,
// or when there is something else to say about it, which is in the lane.
func (l *publishing) hold(ctx context.Context, at *lane, through eventstore.Position) error {
	l.troubled(at.err)
	if err := l.noticed(); err != nil {
		return err
	}
	if !rest(ctx, l.breaker.Failed(time.Now())) {
		return ctx.Err()
	}
	if err := l.tenure.Hold(); err != nil {
		return err
	}
	began, messages, heads := time.Now(), at.messages, at.heads
	at.err = l.lanes.try(at)
	seen := eventstore.PublishObservation{Messages: at.messages - messages, Heads: at.heads - heads, Through: through, Duration: time.Since(began)}
	if at.err != nil {
		seen.Err = at.err
	} else {
		l.breaker.Succeeded()
		l.took.note(l.lanes)
	}
	l.cfg.Observer.ObservePublish(seen)
	return l.tenure.Work().Err()
}

// noticed ends the tenure when an operator has made room, or wants something tried again, while so much is set aside that
// the relay waits for the broker: it could not learn of it, or do it, with a page in hand.
func (l *publishing) noticed() error {
	if !l.full() {
		return nil
	}
	item, some, _, err := l.tenure.Item()
	if err != nil || !some {
		return err
	}
	l.tenure.PutOffItem(item, l.tenure.Now())
	return errors.New("outbox: as many sequences are set aside as Config.MaxParked allows: those that are to be tried again go first")
}

// well notes that the broker is there.
func (l *publishing) well() {
	l.breaker.Succeeded()
	l.recovered()
}

// crowded reports whether a job that is refused cannot be set aside, because so much is. What is set aside already takes no
// more room.
func (l *publishing) crowded(j *job) bool {
	if !l.full() {
		return false
	}
	if !j.isMessage() {
		return true
	}
	_, aside := l.tenure.Parked().Get(keyOf(j.message))
	return !aside
}

// full reports whether so much is set aside that it must be the broker, or its set-up, and not the messages.
func (l *publishing) full() bool { return l.room()+l.beyond <= 0 }

// room is how many sequences more may be set aside.
func (l *publishing) room() int {
	n := l.tenure.Parked().Len()
	if l.changes != nil {
		n += l.changes.Added()
	}
	return l.cfg.MaxParked - n
}

// setAside begins with the sequence of a lane's next job, or gives up what stands in a place only.
func (l *publishing) setAside(at *lane, who blame, kind eventstore.FailureKind) {
	j := &at.jobs[at.next]
	refused := at.err
	at.tries = 0
	if !j.isMessage() {
		j.done = true // the next one says more
		if j.message == nil && l.chains.untell(j.topic, j.partition) {
			l.untold = true
		}
		return
	}
	f := l.failure(j, kind, refused.Err, 1)
	if l.tenure.Parked().Len() == 0 {
		l.log.Warn("relay sets messages aside, and goes on with others", "topic", j.topic, "key", f.Message.PartitionKey, "reason", consumer.ReasonOf(refused))
	}
	c := l.change()
	c.Park(f)
	l.failed = append(l.failed, failureTold{f, 1})
	j.as, j.done = asSkip, who == blameTopic
	key := parking.Key{Topic: j.topic, Sequence: f.Message.PartitionKey}
	for i := at.next + 1; i < len(at.jobs); i++ {
		if o := &at.jobs[i]; !o.done && o.message != nil && keyOf(o.message) == key {
			o.as = asSkip
			c.Passed(key, o.position)
		}
	}
}

// failure is what is written down of a refusal.
func (l *publishing) failure(j *job, kind eventstore.FailureKind, err error, round int) parking.Failure {
	m := j.message.RecordedEvent
	m.PartitionKey = sequenceOf(*j.message)
	f := parking.Failure{
		Topic: j.topic, Message: m, Previous: j.previous, Kind: kind, Err: err, Handler: "publish " + j.topic + " " + m.Type, At: l.tenure.Now(),
	}
	if policy := l.tenure.Policy(); kind != eventstore.Permanent && !policy.Spent(round) {
		f.Due = f.At.Add(policy.Delay(round, nil))
	}
	return f
}

// failureTold is one that observers learn of when it is written down.
type failureTold struct {
	parking.Failure
	attempt int
}

func (l *publishing) tellFailures() {
	for _, f := range l.failed {
		l.tenure.LogPanic(f.Failure, f.attempt)
		l.cfg.Observer.ObserveFailure(eventstore.FailureObservation{
			Consumer: l.ref.Name, Version: l.ref.Version, Topic: f.Topic, Type: f.Message.Type, Kind: f.Kind, Attempt: f.attempt,
			Parked: f.Due.IsZero(), Err: f.Err,
		})
	}
	l.failed = nil
}

func keyOf(m *eventstore.OutboxMessage) parking.Key {
	return parking.Key{Topic: m.Topic, Sequence: sequenceOf(*m)}
}

// change is what the next commit does to what is set aside.
func (l *publishing) change() *parking.Changes {
	if l.changes == nil {
		l.changes = l.tenure.Parked().Change()
	}
	return l.changes
}

// queue adds a message of a page to its lane, or, when its sequence is set aside, the marker that stands in its place.
func (l *publishing) queue(m *eventstore.OutboxMessage) {
	j := job{message: m, topic: m.Topic, partition: m.Partition, position: m.Position, previous: l.chains.link(m)}
	if l.tenure.Parked().Len() > 0 {
		// From its first message on: one before that is not of those that wait.
		if seq, aside := l.tenure.Parked().Get(keyOf(m)); aside && !m.Position.Before(seq.First) {
			j.as = asSkip
			l.change().Passed(seq.Key, m.Position)
		}
	}
	l.lanes.add(j)
}
