package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
	"github.com/daybook-go/daybook/internal/retry"
)

// Parked is what this owner has set aside. Only the goroutine of the tenure uses it.
func (t *Tenure) Parked() *parking.Set { return t.lease.parked }

// Now is the time by which sequences are due.
func (t *Tenure) Now() time.Time { return t.w.now() }

// Policy says when what has failed is tried again.
func (t *Tenure) Policy() retry.Policy { return t.w.cfg.policy() }

// Budget bounds what is tried again.
func (t *Tenure) Budget() *retry.Budget { return t.w.cfg.Budget }

// lookEvery is how often an owner looks for redrives, and for what operators have changed.
const lookEvery = time.Second

// plans is what an owner knows of redrives.
type plans struct {
	looked time.Time
	some   bool // there were some when it looked last
	items  []parking.Item
}

// Item returns the next item of a running redrive that is to be begun now, if there is one. It asks the database once a
// second at most, and only while something is set aside or redrives run. What was begun by an owner before is tracked in the
// set; what has no open letter any more is to be ended as skipped, which skip says. Call [parking.MayBegin] before beginning.
// An error that says that the set is old takes the lease again at once.
func (t *Tenure) Item() (i parking.Item, ok, skip bool, err error) {
	p, set, now := &t.plans, t.lease.parked, t.w.now()
	if (set.Len() > 0 || p.some) && time.Since(p.looked) >= lookEvery {
		look, err := parking.LookFor(t.work, t.db, set.Owner(), t.w.spec.Segment, t.lease.first, t.lease.last, now)
		if err != nil {
			return i, false, false, t.unread(err)
		}
		if look.ParkedRev != t.lease.parkedRev {
			return i, false, false, fmt.Errorf("%w, or somebody has changed what is set aside", errLost)
		}
		p.looked, p.some, p.items = time.Now(), look.Running, look.Items
	}
	for len(p.items) > 0 && !p.items[0].Due.After(now) {
		i, p.items = p.items[0], p.items[1:]
		seq, aside := set.Get(i.Key)
		open := aside && seq.State != parking.Draining && parking.LetterID(set.Owner(), i.Topic, seq.First) == i.Letter
		switch {
		case !open:
			return i, true, true, nil
		case !i.Begun:
			return i, true, false, nil
		case seq.State == parking.Parked: // an operator's doing
			return i, true, true, nil
		}
		set.Track(i)
	}
	return parking.Item{}, false, false, nil
}

// PutOffItem brings an item again at a time.
func (t *Tenure) PutOffItem(i parking.Item, at time.Time) {
	i.Due = at
	t.plans.items = append([]parking.Item{i}, t.plans.items...)
}

// unread is an error of reading what is set aside.
func (t *Tenure) unread(err error) error {
	if t.work.Err() != nil {
		return context.Cause(t.work)
	}
	return fmt.Errorf("consumer: tend what %s has set aside: %w", t.w.spec.Ref, err)
}

// kindOf judges a failure that is not the database's.
func (w *Worker) kindOf(err error) (kind eventstore.FailureKind) {
	var decode *eventstore.DecodeError
	var unknown *eventstore.UnknownTypeError
	if errors.As(err, &decode) || errors.As(err, &unknown) {
		return eventstore.Permanent
	}
	if w.cfg.Classify == nil {
		return eventstore.Transient
	}
	defer func() {
		if recover() != nil {
			kind = eventstore.Transient
		}
	}()
	return w.cfg.Classify(err)
}

// failure is what is written down of a failed attempt. round is how many there were since the event was set aside or
// redriven last, this one included.
func (w *Worker) failure(e eventstore.RecordedEvent, kind eventstore.FailureKind, err error, round int) parking.Failure {
	f := parking.Failure{
		Message: e, Kind: kind, Err: err, Handler: fmt.Sprintf("%s v%d %s", w.spec.Name, w.spec.Version, e.Type), At: w.now(),
	}
	if policy := w.cfg.policy(); kind != eventstore.Permanent && !policy.Spent(round) {
		f.Due = f.At.Add(policy.Delay(round, nil))
	}
	return f
}

func (w *Worker) now() time.Time {
	if w.cfg.Clock != nil {
		return w.cfg.Clock()
	}
	return time.Now()
}

// queueChanges puts changes behind the fence, which locks the segment: operators lock it first, too. noting tells how far
// the statements came, when they fail.
func queueChanges(b *pgx.Batch, c *parking.Changes, n *noting) {
	if c == nil || c.Empty() {
		return
	}
	// Nothing of the user's is planned any more in this transaction.
	b.Queue("SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)").QueryRow(func(pgx.Row) error { n.begun = true; return nil })
	c.Queue(b)
	b.Queue("SELECT 1").QueryRow(func(pgx.Row) error { n.ended = true; return nil })
}

// noting tells whether a transaction failed at what is written down of failures, for which no event is to blame.
type noting struct{ begun, ended bool }

func (n noting) failed() bool { return n.begun && !n.ended }

// noted brings what this owner knows up to date with a committed transaction.
func (t *Tenure) noted(c *parking.Changes) {
	if c == nil || c.Empty() {
		return
	}
	if c.Raises() {
		t.lease.parkedRev++
	}
	altered := c.Altered()
	c.Committed(t.w.now())
	t.logNews(c.News())
	if c.Raises() {
		t.aside = t.lease.parked.Partitions()
	}
	if altered {
		t.tellParked()
	}
}

func (t *Tenure) tellParked() {
	counts := t.lease.parked.Counts()
	t.w.mu.Lock()
	t.w.status.Parked = counts
	t.w.mu.Unlock()
	t.w.cfg.Observer.ObserveParked(eventstore.ParkedObservation{
		Consumer: t.w.spec.Name, Version: t.w.spec.Version, Retrying: counts.Retrying, Parked: counts.Parked, Draining: counts.Draining,
		Oldest: counts.Oldest,
	})
}

// tellFailure tells of a failed attempt once it is written down, or at once when it does not count.
func (t *Tenure) tellFailure(f parking.Failure, attempt int) {
	t.LogPanic(f, attempt)
	t.w.cfg.Observer.ObserveFailure(eventstore.FailureObservation{
		Consumer: t.w.spec.Name, Version: t.w.spec.Version, Topic: f.Topic, Type: f.Message.Type, Kind: f.Kind, Attempt: attempt,
		Parked: f.Due.IsZero() && f.Kind != eventstore.Environment, Err: f.Err,
	})
}
