package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

const (
	// carefulEvents bounds a transaction with a savepoint for each event: a session with more than 64 of them makes every
	// other one look up whose they are.
	carefulEvents = 50
	// carefulBatches is how many transactions without a failure it takes until events are applied all at once again.
	carefulBatches = 3
)

// carefully applies the first n events one by one in one transaction. One that fails is rolled back alone and set aside
// with the failure; what healthy events do stays, and they have run once.
func (a *application) carefully(batch Batch, n int) (o outcome) {
	s, err := a.acquire(a.work)
	if err != nil {
		o.err = err
		return o
	}
	defer s.release()
	first := &pgx.Batch{}
	first.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	first.Queue(a.w.sql.settings)
	begun := s.conn.SendBatch(a.work, first)
	w := walk{a: a, s: s, tx: begun.Tx(), began: time.Now(), changes: a.lease.parked.Change(), o: &o}
	if err := begun.Close(); err != nil {
		o.err = a.rollback(s, err, false)
		return o
	}
	w.from = a.hold(w.changes, batch.Held)
	then := w.over(batch.Events[:n])
	if o.err != nil { // the transaction is gone, or of no use
		a.clear(s)
		return o
	}
	if o.done == 0 && then != nil && len(batch.Held) == 0 { // nothing before what ends it
		a.clear(s)
		o.err = then
		return o
	}
	if o.done == len(batch.Events) {
		w.changes.Also(batch.Queue)
	}
	o.to = batch.target(a.reached, a.lease.partitions, o.done)
	if o.err = a.conclude(s, &pgx.Batch{}, o.to, w.changes); o.err != nil {
		return o
	}
	o.committed, o.err = true, then
	w.committed()
	return o
}

// walk goes over events one by one.
type walk struct {
	a       *application
	s       *session
	tx      pgx.Tx
	began   time.Time
	changes *parking.Changes
	from    map[string]eventstore.Position
	o       *outcome

	plans    []Committed
	failures []parking.Failure
}

// over sets o.done to the number of events before the one that ends it, if there is one, and returns why it does. When the
// transaction is gone o.err says why.
func (w *walk) over(events []eventstore.RecordedEvent) (then error) {
	a := w.a
	for i, e := range events {
		key := parking.Key{Sequence: e.PartitionKey}
		w.o.done = i
		if a.aside(w.changes, w.from, key, e) {
			a.pass(w.changes, key, e)
			continue
		}
		failed, tried := a.condemns[e.Position], false
		if failed == nil {
			if w.o.ran > 0 && (a.w.probing || a.w.cfg.Timeout > 0 && time.Since(w.began) > a.w.cfg.Timeout) {
				return nil // the others have their own time
			}
			w.o.ran, w.o.last, tried = w.o.ran+1, i, true
			plan, err := a.one(w.s, w.tx, e)
			if err == nil {
				if c, ok := plan.(Committed); ok {
					w.plans = append(w.plans, c)
				}
				continue
			}
			if !errors.As(err, &failed) {
				w.o.err = err
				return nil
			}
		}
		if tried && !a.undo(w.s) { // with it, what the events before have done
			w.o.done = i + 1
			w.o.err = &failedError{i, failed.kind, failed.err, failed.late}
			return nil
		}
		if failed.kind == eventstore.Environment {
			return a.away(e, failed)
		}
		f := a.w.failure(e, failed.kind, failed.err, 1)
		if _, known := a.lease.parked.Get(key); !known && a.lease.parked.Len()+w.changes.Added() >= a.w.cfg.MaxParked {
			a.tellFailure(f, 1)
			return a.crowded(f, "the handler may be broken, and not the messages")
		}
		w.changes.Park(f)
		w.failures = append(w.failures, f)
	}
	w.o.done = len(events)
	return nil
}

func (w *walk) committed() {
	a := w.a
	for _, c := range w.plans {
		c.Committed()
	}
	a.w.probing = a.w.probing && w.o.ran == 0
	for _, f := range w.failures {
		delete(a.condemns, f.Message.Position)
		a.tellFailure(f, 1)
		a.w.cfg.Probe(ProbeParked)
	}
	if len(w.failures) > 0 {
		a.careful = max(a.careful-1, carefulBatches)
	} else {
		a.careful--
	}
}

// The savepoint of an event, and one more to find out what would be refused at COMMIT: rolling back to it leaves deferred
// constraints deferred, and what triggers have done to them undone until then.
const (
	beforeEvent = "savepoint daybook_event"
	undoEvent   = "rollback to savepoint daybook_event; release savepoint daybook_event"
)

var afterEvent = [...]string{
	"savepoint daybook_check", "set constraints all immediate", "rollback to savepoint daybook_check", "release savepoint daybook_event",
}

// one applies one event within a transaction that has others.
func (t *Tenure) one(s *session, tx pgx.Tx, e eventstore.RecordedEvent) (Plan, error) {
	fail := func(m made) error {
		dead, _ := connState(s.conn)
		m.user = true // whatever the database refuses here, it is of the event
		return t.judged(m, dead, 1)
	}
	m, err := t.attempt(t.work, s, []eventstore.RecordedEvent{e}, func(ctx context.Context, c *call) (m made) {
		m.s = s
		first := &pgx.Batch{}
		first.Queue(beforeEvent)
		var planned error
		if m.plan, planned = t.w.spec.Applier.Plan(ctx, c.events); planned == nil {
			m.plan.Load(first)
		}
		if m.err = s.conn.SendBatch(ctx, first).Close(); m.err != nil {
			return m
		}
		if m.err = planned; planned != nil {
			return m
		}
		m.last = &pgx.Batch{}
		m.err = m.plan.Apply(ctx, tx, m.last)
		return m
	})
	if err != nil {
		return nil, err
	}
	if m.err != nil {
		return nil, fail(m)
	}
	for _, sql := range afterEvent {
		m.last.Queue(sql)
	}
	if err := s.conn.SendBatch(t.work, m.last).Close(); err != nil {
		return nil, fail(made{err: err})
	}
	return m.plan, nil
}

// undo rolls back the event that failed, and reports false when the transaction around it is gone.
func (t *Tenure) undo(s *session) bool {
	if s.gone {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.work), time.Second)
	defer cancel()
	if dead, state := connState(s.conn); dead || state == 'I' {
		return false
	}
	_, err := s.conn.PgConn().Exec(ctx, undoEvent).ReadAll()
	dead, state := connState(s.conn)
	return err == nil && !dead && state == 'T'
}
