package saga

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// heldInput is an input that waits in the store.
type heldInput struct {
	kind string
	body []byte
}

// The kinds of inputs that are kept.
const (
	heldEvent = "event"
	heldReply = "reply"
	heldTimer = "timer"
)

// keptFailed begins the text of an instance that is stuck because it cannot take what was kept for it.
const keptFailed = "what was kept for it failed"

// heldForm is the stored form of an input. Names never change.
type heldForm struct {
	Cause  string     `msgpack:"cause,omitempty"`
	Event  *eventForm `msgpack:"event,omitempty"`
	ByKey  bool       `msgpack:"by_key,omitempty"`
	Origin originForm `msgpack:"origin"`
	Reply  *replyForm `msgpack:"reply,omitempty"`
	Timer  string     `msgpack:"timer,omitempty"`
}

type originForm struct {
	ID        string `msgpack:"id,omitempty"`
	Step      string `msgpack:"step,omitempty"`
	Direction string `msgpack:"direction,omitempty"`
	Intent    int    `msgpack:"intent,omitempty"`
}

type replyForm struct {
	Command string    `msgpack:"command"`
	State   string    `msgpack:"state"`
	Code    string    `msgpack:"code,omitempty"`
	Reason  string    `msgpack:"reason,omitempty"`
	At      time.Time `msgpack:"at"`
}

type eventForm struct {
	ID            string            `msgpack:"id"`
	Type          string            `msgpack:"type"`
	SchemaVersion int               `msgpack:"schema_version"`
	ContentType   string            `msgpack:"content_type"`
	Data          []byte            `msgpack:"data"`
	Flags         int32             `msgpack:"flags,omitempty"`
	Tenant        string            `msgpack:"tenant,omitempty"`
	Correlation   string            `msgpack:"correlation,omitempty"`
	Causation     string            `msgpack:"causation,omitempty"`
	Actor         string            `msgpack:"actor,omitempty"`
	Headers       map[string]string `msgpack:"headers,omitempty"`
	Category      string            `msgpack:"category"`
	Stream        string            `msgpack:"stream"`
	Version       int64             `msgpack:"version"`
	Position      int64             `msgpack:"position"`
	Partition     int               `msgpack:"partition"`
	PartitionKey  string            `msgpack:"partition_key"`
	RecordedAt    time.Time         `msgpack:"recorded_at"`
}

// hold makes the stored form of an input.
func hold(in *instance, s stimulus) (heldInput, error) {
	f := heldForm{Cause: s.cause, ByKey: s.ByKey, Timer: s.Timer}
	if o := s.Origin; o.ID != uuid.Nil {
		f.Origin = originForm{o.ID.String(), o.Step, string(o.Direction), o.Intent}
	}
	kind := heldTimer
	switch {
	case s.Event != nil:
		kind, f.Event = heldEvent, formOf(s.Event)
	case s.Reply != nil:
		r := s.Reply
		kind, f.Reply = heldReply, &replyForm{r.Command.String(), string(r.State), r.Code, r.Reason, r.At}
	}
	body, err := eventstore.Msgpack.Marshal(f)
	return heldInput{kind, body}, err
}

func formOf(e *eventstore.RecordedEvent) *eventForm {
	m := e.Metadata
	return &eventForm{
		e.ID.String(), e.Type, e.SchemaVersion, e.ContentType, e.Data, int32(e.Flags), m.Tenant, m.CorrelationID, m.CausationID, m.Actor,
		m.Headers, e.Stream.Category, e.Stream.ID, int64(e.Version), e.Position.Ordinal(), e.Partition, e.PartitionKey, e.RecordedAt,
	}
}

func (f *eventForm) event() (*eventstore.RecordedEvent, error) {
	id, err := uuid.Parse(f.ID)
	if err != nil {
		return nil, err
	}
	return &eventstore.RecordedEvent{
		EventData: eventstore.EventData{
			ID: id, Type: f.Type, SchemaVersion: f.SchemaVersion, ContentType: f.ContentType, Data: f.Data, Flags: eventstore.Flags(f.Flags),
			Metadata: eventstore.Metadata{
				Tenant: f.Tenant, CorrelationID: f.Correlation, CausationID: f.Causation, Actor: f.Actor, Headers: f.Headers,
			},
		},
		Stream: eventstore.StreamID{Category: f.Category, ID: f.Stream}, Version: eventstore.Version(f.Version),
		Position: eventstore.PositionAt(f.Position), Partition: f.Partition, PartitionKey: f.PartitionKey, RecordedAt: f.RecordedAt.UTC(),
	}, nil
}

// unhold is the opposite of hold. Payloads are decoded by the instance's own definition, if it reads the event.
func unhold(m flow.Machine, body []byte) (stimulus, error) {
	var f heldForm
	if err := eventstore.Msgpack.Unmarshal(body, &f); err != nil {
		return stimulus{}, fmt.Errorf("saga: decode what was kept: %w", err)
	}
	s := stimulus{cause: f.Cause, Input: flow.Input{ByKey: f.ByKey, Timer: f.Timer}}
	var err error
	if f.Origin.ID != "" {
		s.Origin = flow.Origin{Step: f.Origin.Step, Direction: flow.Direction(f.Origin.Direction), Intent: f.Origin.Intent}
		if s.Origin.ID, err = uuid.Parse(f.Origin.ID); err != nil {
			return s, err
		}
	}
	if r := f.Reply; r != nil {
		s.Reply = &flow.Reply{State: flow.ReplyState(r.State), Code: r.Code, Reason: r.Reason, At: r.At.UTC()}
		if s.Reply.Command, err = uuid.Parse(r.Command); err != nil {
			return s, err
		}
	}
	if f.Event == nil {
		return s, nil
	}
	if s.Event, err = f.Event.event(); err != nil {
		return s, err
	}
	if !slices.Contains(m.Types(), s.Event.Type) {
		return s, nil
	}
	err = safely("saga: "+m.Name(), func() (err error) {
		s.Payload, err = m.Decode(*s.Event)
		return err
	})
	return s, err
}

// passBy notes that an instance has kept an event that its definition does not read: a program that only had other versions
// has kept it.
func (t *turn) passBy(_ context.Context, in *instance, s stimulus) error {
	err := safely("saga: "+t.u.name, in.restore)
	if err != nil {
		return err
	}
	if in.state.Stuck.Reason == flow.HandlerMissing || keptFails(in.state.Stuck) {
		t.unfail(in)
	}
	fx := flow.Effects{Ignored: 1}
	if !in.over {
		fx.History = []flow.Entry{{Kind: "ignored", Text: fmt.Sprintf("%s, which version %d does not read, was kept for it", s.Event.Type, in.version)}}
	}
	t.took(in, s, fx)
	return nil
}

// touched reports whether what it has taken in this transaction has cancelled a timer, or set it anew.
func (in *instance) touched(timer string) bool {
	_, touched := in.timers[timer]
	return touched || in.cancelAll
}

// writeHeld writes down what instances have kept, and marks those that no definition is here for.
func (t *turn) writeHeld(b *pgx.Batch) {
	var keys, kinds, marks []string
	var runs, counts, markRuns []int32
	var missing []bool
	var bodies [][]byte
	for _, in := range t.order {
		if len(in.hold) == 0 {
			continue
		}
		for _, h := range in.hold {
			keys, runs = append(keys, in.key), append(runs, int32(in.run))
			kinds, bodies = append(kinds, h.kind), append(bodies, h.body)
		}
		if in.machine == nil && in.facts.Stuck.Reason == "" {
			t.sticks(in, flow.Stuck{Reason: flow.HandlerMissing})
		}
		marks, markRuns = append(marks, in.key), append(markRuns, int32(in.run))
		counts, missing = append(counts, int32(len(in.hold))), append(missing, in.machine == nil)
	}
	if len(keys) == 0 {
		return
	}
	b.Queue(t.u.sql.hold, t.u.name, t.u.clock(), keys, runs, kinds, bodies)
	b.Queue(t.u.sql.marked, t.u.name, t.u.clock(), marks, markRuns, counts, missing)
}

const (
	holdSQL = `
INSERT INTO {schema}.saga_inputs (saga, key, run, kind, body, arrived_at)
SELECT $1, u.key, u.run, u.kind, u.body, coalesce($2::timestamptz, clock_timestamp())
  FROM unnest($3::text[], $4::int[], $5::text[], $6::bytea[]) WITH ORDINALITY AS u(key, run, kind, body, nth) ORDER BY u.nth`

	// What is stuck already stays so: its own reason says more.
	markedSQL = `
UPDATE {schema}.sagas s
   SET held = s.held + u.n, changed_at = n.now, revision = s.revision + 1,
       stuck = CASE WHEN u.missing AND s.stuck = '' THEN 'handler_missing' ELSE s.stuck END,
       stuck_text = CASE WHEN u.missing AND s.stuck = '' THEN 'no program that runs has version ' || s.version || ' of the definition' ELSE s.stuck_text END,
       stuck_since = CASE WHEN u.missing AND s.stuck = '' THEN n.now ELSE s.stuck_since END
  FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) n,
       unnest($3::text[], $4::int[], $5::int[], $6::boolean[]) AS u(key, run, n, missing)
 CROSS JOIN LATERAL (SELECT x.ctid AS at FROM {schema}.sagas x WHERE x.saga = $1 AND x.key = u.key AND x.run = u.run OFFSET 0) r
 WHERE s.ctid = r.at`
)
