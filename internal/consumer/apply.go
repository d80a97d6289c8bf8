package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// quiet is the shortest time between two moves of the progress that no event of the consumer's own has caused: a lone
// foreign append moves it at once, a stream of them one hundred times a second at most.
const quiet = 10 * time.Millisecond

// application is the work of a consumer that applies events.
type application struct {
	*Tenure
	feed    Feed
	reached Progress // applied, and what was passed by since
	suspect suspect  // an event that failed, if there is one and the consumer stops
	single  int      // so many events are tried alone, because one of them has used up the time of all

	keeps    bool                                 // what is queued is held, because the source does not have it for ever
	careful  int                                  // so many batches are still applied event by event
	alone    map[parking.Key]eventstore.Position  // up to there what is queued goes on one by one; see single
	condemns map[eventstore.Position]*failedError // events that have failed, and are not tried again before they are set aside
	seen     time.Time                            // what the clock has said last
}

func applyEvents(t *Tenure) error {
	if err := t.w.follow(t.held, t.db, t.lease); err != nil {
		return err
	}
	start, err := BeginAt(t.held, t.w.source, t.db, t.w.spec.Ref)
	if err != nil {
		return t.lookedAt(err)
	}
	if t.applied.IsZero() && !start.IsZero() {
		if err := t.move(ProgressAt(start)); err != nil {
			return err
		}
	}
	feed, err := t.open()
	if err != nil {
		return t.lookedAt(err)
	}
	defer feed.Close()
	a := &application{
		Tenure: t, feed: feed, reached: t.applied, keeps: CarriedBy(t.w.source) != "", condemns: map[eventstore.Position]*failedError{},
		alone: map[parking.Key]eventstore.Position{},
	}
	for {
		if err := t.held.Err(); err != nil {
			return err
		}
		until, err := a.tend()
		if err != nil {
			return err
		}
		batch, err := feed.Next(t.held, earliest(a.due(), until))
		if err != nil {
			return t.lookedAt(err)
		}
		if len(batch.Events) == 0 && len(batch.Held) == 0 && batch.Queue == nil {
			err = a.idle(batch)
		} else {
			err = a.apply(batch)
		}
		if err != nil {
			return err
		}
	}
}

func (t *Tenure) open() (Feed, error) {
	f := Follower{Ref: t.w.spec.Ref, Filter: t.lease.filter, Applied: t.applied, Limit: t.w.cfg.BatchSize}
	if stream, ok := t.w.source.(Stream); ok {
		return stream.Follow(t.held, f)
	}
	return FollowLog(t.held, t.w.source, f), nil
}

// due is when a move of the progress may not be put off any longer.
func (a *application) due() time.Time {
	if a.applied.Covers(a.reached) {
		return time.Time{}
	}
	return a.moved.Add(quiet)
}

// earliest of two times, where zero stands for never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// idle passes by events of others. Readers wait for the progress also when nothing was of interest.
func (a *application) idle(batch Batch) error {
	a.reached = batch.target(a.reached, a.lease.partitions, 0)
	if a.applied.Covers(a.reached) || (!batch.More && time.Since(a.moved) < quiet) {
		return nil
	}
	return a.move(a.reached)
}

// apply commits a batch in as few transactions as its events allow: one, unless some fail.
func (a *application) apply(batch Batch) error {
	a.w.cfg.Budget.First(a.w.now(), len(batch.Events))
	if err := a.fits(batch.Held); err != nil {
		return err
	}
	n := len(batch.Events) // how many to try at once
	for len(batch.Events) > 0 || len(batch.Held) > 0 || batch.Queue != nil {
		if err := a.held.Err(); err != nil {
			return err
		}
		if len(batch.Events) > 0 && a.suspect.is(batch.Events[0]) {
			if err := a.suspect.verdict(a.w); err != nil {
				return err
			}
			n = 1
		}
		if a.single > 0 && len(batch.Events) > 0 {
			n = 1
		}
		began := time.Now()
		var o outcome
		if a.careful > 0 {
			o = a.carefully(batch, min(n, carefulEvents))
		} else {
			o = a.swiftly(batch, n)
		}
		a.w.cfg.Observer.ObserveBatch(eventstore.BatchObservation{
			Consumer: a.w.spec.Name, Version: a.w.spec.Version, Events: o.done, Through: o.to.Floor(), Marks: batch.reached(o.done),
			Duration: time.Since(began), Err: o.err,
		})
		if o.committed {
			a.committed(o.to)
			a.reached = o.to
			a.single = max(a.single-o.done, 0)
			if a.suspect.among(batch.Events[:o.done]) {
				a.suspect = suspect{}
				a.w.become(Running, "")
			}
			batch = batch.rest(o.done)
			batch.Held = nil
			if len(batch.Events) == 0 {
				batch.Queue = nil
			}
			n = len(batch.Events)
		}
		if o.err == nil {
			continue
		}
		var failed *failedError
		if !errors.As(o.err, &failed) {
			return o.err
		}
		var err error
		if n, err = a.failed(batch, failed, o); err != nil {
			return err
		}
	}
	return nil
}

// outcome is what became of one attempt at the first events of a batch. With an error done says how many were tried; what
// was committed none the less was a part before them.
type outcome struct {
	done      int
	to        Progress
	committed bool
	ran, last int // how many of them were tried, and not passed by; the last of those
	err       error
}

// failed decides what follows a failed attempt: how many events are tried next, or the end.
func (a *application) failed(batch Batch, failed *failedError, o outcome) (n int, err error) {
	at := failed.index
	if at >= 0 && failed.kind == eventstore.Environment {
		if at == 0 || a.careful > 0 {
			return 0, a.away(batch.Events[at], failed)
		}
		return at, nil // what lies before is good
	}
	if a.w.cfg.OnFailure == StopConsumer {
		if failed.late && at < 0 {
			a.single = o.done
			return 1, nil
		}
		if at < 0 && o.done > 1 { // the database refused the whole; halves find the event
			return o.done / 2, nil
		}
		at = max(at, 0)
		if err := a.suspected(batch.Events[at], failed.err, at == 0); err != nil {
			return 0, err
		}
		return max(at, 1), nil
	}
	careful := a.careful > 0
	a.careful = max(a.careful, carefulBatches)
	if failed.late && !careful { // each of them has its own time
		a.careful = max(a.careful, o.done/carefulEvents+1)
	}
	switch {
	case at >= 0:
		a.condemns[batch.Events[at].Position] = failed
	case !careful:
	case o.ran > 1: // refused at the end, by what only then is checked
		return o.done / 2, nil
	case o.ran == 1:
		if a.blame(failed) == eventstore.Environment {
			return 0, a.away(batch.Events[o.last], failed)
		}
		a.condemns[batch.Events[o.last].Position] = failed
	default:
		return 0, fmt.Errorf("consumer: pass by events for %s: %w", a.w.spec.Ref, failed.err)
	}
	return len(batch.Events), nil
}

// away is what an event has found away, which everything waits for.
func (a *application) away(e eventstore.RecordedEvent, failed *failedError) error {
	a.tellFailure(parking.Failure{Message: e, Kind: eventstore.Environment, Err: failed.err}, 0)
	return fmt.Errorf("consumer: %s waits for what %q at position %s found away: %w", a.w.spec.Ref, e.Type, e.Position, failed.err)
}

// swiftly applies the first n events at once, without those of sequences that are set aside.
func (a *application) swiftly(batch Batch, n int) outcome {
	s := a.sift(batch, a.atMost(n))
	o := outcome{done: s.n, to: batch.target(a.reached, a.lease.partitions, s.n), ran: len(s.events)}
	if len(s.events) == 0 {
		// Committed by the tenure, with its progress.
		o.err = a.commit(o.to, s.changes, func(*pgx.Batch) {})
		o.committed = o.err == nil
		return o
	}
	began := time.Now()
	o.err = a.transact(a.work, s.events, o.to, s.changes)
	if o.committed = o.err == nil; o.committed {
		a.more(time.Since(began))
		a.w.probing = false
		return o
	}
	var failed *failedError
	if errors.As(o.err, &failed) && failed.index >= 0 && s.at != nil {
		o.err = &failedError{s.at[failed.index], failed.kind, failed.err, failed.late}
	}
	return o
}

// sifted are the events of a batch that are to be applied, and what becomes of the others.
type sifted struct {
	n       int // of the batch
	events  []eventstore.RecordedEvent
	at      []int // their places in the batch; nil when nothing is left out
	changes *parking.Changes
}

// sift takes the first n events of a batch, or fewer when one is to find out whether what was away is back. While nothing is
// set aside it looks at none of them.
func (a *application) sift(batch Batch, n int) sifted {
	set := a.lease.parked
	if set.Len() == 0 && len(batch.Held) == 0 && batch.Queue == nil {
		if a.w.probing {
			n = min(n, 1)
		}
		return sifted{n: n, events: batch.Events[:n]}
	}
	s := sifted{changes: set.Change(), at: make([]int, 0, n)}
	from := a.hold(s.changes, batch.Held)
	for i, e := range batch.Events[:n] {
		s.n = i + 1
		if key := (parking.Key{Sequence: e.PartitionKey}); a.aside(s.changes, from, key, e) {
			a.pass(s.changes, key, e)
			continue
		}
		s.at = append(s.at, i)
		s.events = append(s.events, e)
		if a.w.probing {
			break
		}
	}
	if s.n == len(batch.Events) {
		s.changes.Also(batch.Queue)
	}
	return s
}

// aside says whether an event is to be passed by. from says where sequences begin that this batch sets aside.
func (a *application) aside(c *parking.Changes, from map[string]eventstore.Position, key parking.Key, e eventstore.RecordedEvent) bool {
	if at, ok := from[e.PartitionKey]; ok && e.Position.Before(at) {
		return false
	}
	return c.Aside(key)
}

func (a *application) pass(c *parking.Changes, key parking.Key, e eventstore.RecordedEvent) {
	delete(a.condemns, e.Position) // it is tried when its turn comes, after others
	c.Passed(key, e.Position)
	if a.keeps {
		c.Hold(parking.Held{Key: key, Message: e, Present: true})
	}
}

// reached are the marks of the first n events, for observers of a stream.
func (b Batch) reached(n int) []eventstore.Mark {
	switch {
	case !b.Floor.IsZero():
		return nil
	case n == len(b.Events):
		return b.Marks
	}
	return marksOf(b.Events[:n])
}
