package commands

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// applier makes a consumer of a dispatcher: commands are carried out while no transaction of the consumer is open, and
// their ends commit together with the checkpoint.
type applier struct{ *Dispatcher }

// Relaxed implements [consumer.Applier]: replies leave the database.
func (applier) Relaxed() bool { return false }

// Plan implements [consumer.Applier]: it carries the commands out, those of one ordering key one after the other, and
// several keys at once.
func (a applier) Plan(ctx context.Context, events []eventstore.RecordedEvent) (consumer.Plan, error) {
	b := newBatch(a.Dispatcher, events)
	if err := b.ask(ctx); err != nil {
		return nil, err
	}
	telling, stop := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() { b.tellWhileRunning(telling) })
	b.carryOut(ctx)
	stop()
	teller.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !b.ended() {
		return nil, consumer.ErrEnding
	}
	a.cfg.probe(probeRan)
	return b, nil
}

// entry is a command of a batch. Its mutable part is guarded by the batch.
type entry struct {
	event   eventstore.RecordedEvent
	command bus.Command
	fault   error // why it cannot be read
	said    progress

	// Of a saga's command, what is stored about it, and about the one that it undoes; nil: nothing.
	ofSaga           bool
	standing, undoes *standing

	began       time.Time // zero before
	toldRunning bool
	verdict     *verdict // nil before its end
	told        bool     // its end is committed, or somebody else's is
}

// batch is some commands under way.
type batch struct {
	*Dispatcher
	entries []*entry
	groups  [][]*entry // by ordering key, in order
	asking  []*entry   // commands of sagas

	mu      sync.Mutex
	telling map[uuid.UUID]*entry // what the transaction of the checkpoint tells
	replies []*entry             // whose end took effect there
}

func newBatch(d *Dispatcher, events []eventstore.RecordedEvent) *batch {
	b := &batch{Dispatcher: d}
	byKey := make(map[string]int, len(events))
	for _, event := range events {
		e := &entry{event: event}
		e.command, e.fault = command(event)
		b.entries = append(b.entries, e)
		if event.Metadata.Headers[headerSaga] != "" {
			e.ofSaga = true
			b.asking = append(b.asking, e)
		}
		group, known := byKey[event.PartitionKey]
		if !known {
			group = len(b.groups)
			byKey[event.PartitionKey] = group
			b.groups = append(b.groups, nil)
		}
		b.groups[group] = append(b.groups[group], e)
	}
	slices.SortStableFunc(b.groups, func(x, y []*entry) int { return urgency(x) - urgency(y) })
	return b
}

// urgency is that of the most urgent command of a target, which comes when those before it have ended; 0 is the most urgent.
func urgency(group []*entry) int {
	least := 2
	for _, e := range group {
		switch e.command.Class {
		case admission.Operator, admission.Critical:
			return 0
		case admission.Normal:
			least = 1
		}
	}
	return least
}

// carryOut returns when all commands have ended, or ctx has.
func (b *batch) carryOut(ctx context.Context) {
	todo := make(chan []*entry, len(b.groups))
	for _, group := range b.groups {
		todo <- group
	}
	close(todo)
	var workers sync.WaitGroup
	for range min(b.cfg.Workers, len(b.groups)) {
		workers.Go(func() {
			for group := range todo {
				left := allowance{each: b.cfg.Timeout}
				for _, e := range group {
					if ctx.Err() != nil || b.held.Err() != nil {
						return
					}
					began := time.Now()
					b.end(ctx, e, left)
					left = left.after(e, time.Since(began))
				}
			}
		})
	}
	workers.Wait()
}

// allowance is how long the next command of a target may take. Each has its own time, until one has used it up: those
// behind it share that much once more, as whatever hung may hang for them too, and the other targets wait for the batch.
type allowance struct {
	each time.Duration
	hung bool
}

func (a allowance) after(e *entry, took time.Duration) allowance {
	switch {
	case a.hung:
		a.each = max(a.each-took, 0)
	case e.verdict != nil && e.verdict.code == CodeTimeout:
		a.hung = true
	}
	return a
}

// ended reports whether all commands have come to an end. When no command may begin any more, some have not.
func (b *batch) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if e.verdict == nil {
			return false
		}
	}
	return true
}

// end brings one command to its end, unless ctx ends before.
func (b *batch) end(ctx context.Context, e *entry, left allowance) {
	var v verdict
	if e.fault != nil {
		v = verdict{state: bus.OperationFailed, code: CodeInvalid, reason: e.fault.Error()}
		if e.event.Version == 0 { // no event that strayed here: another program may have read and carried it out
			var err error
			if v, err = b.seal(context.WithValue(ctx, progressKey{}, &e.said), e.command, v); err != nil {
				return
			}
		}
	} else {
		b.mu.Lock()
		e.began = time.Now()
		b.mu.Unlock()
		within := context.WithValue(ctx, progressKey{}, &e.said)
		var err error
		if e.ofSaga {
			v, err = b.carryOutForSaga(within, e, left)
		} else {
			v, err = b.Dispatcher.carryOut(within, e.command, left.each)
		}
		if err != nil {
			return
		}
	}
	// Nothing that a handler says may keep the end from being stored.
	v.code, v.reason = cleaned(v.code, maxCode), cleaned(v.reason, maxReason)
	if !v.stream.IsZero() && v.stream.Validate() != nil {
		v.stream = eventstore.StreamID{}
	}
	if v.state == bus.OperationFailed {
		b.log.Warn("a command failed", "type", e.command.Type, "id", e.command.ID, "code", v.code, "reason", v.reason)
	}
	b.mu.Lock()
	e.verdict = &v
	b.mu.Unlock()
}

// Load implements [consumer.Plan]: the ends that are not told yet become those of the operations.
func (b *batch) Load(q *pgx.Batch) {
	ends := b.ends(func(e *entry) bool { return !e.told })
	b.telling, b.replies = make(map[uuid.UUID]*entry, len(ends)), nil
	for _, e := range ends {
		b.telling[e.command.ID] = e
	}
	if len(ends) == 0 {
		return
	}
	q.Queue(b.sql.finish, finishArgs(ends)...).Query(func(rows pgx.Rows) error {
		changed, err := collectIDs(rows)
		b.replies = asking(b.telling, changed)
		return err
	})
}

// Apply implements [consumer.Plan]: senders are told of the ends that took effect.
func (b *batch) Apply(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error {
	err := b.sendReplies(ctx, tx, b.replies)
	b.cfg.probe(probeReplied)
	return err
}

// Committed implements [consumer.Committed].
func (b *batch) Committed() {
	ids := make([]uuid.UUID, 0, len(b.telling))
	for id := range b.telling {
		ids = append(ids, id)
	}
	changes.tell(ids)
	if len(b.replies) > 0 {
		b.cfg.Wake()
	}
}
