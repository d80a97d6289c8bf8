package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

const (
	defaultBuffer = 1000
	maxBuffer     = 1_000_000
	defaultSilent = time.Second
)

// Start says where a consumer begins that has never applied anything.
type Start int

const (
	// AtBeginning: with the first message of the topic. When something of the topic has been cleaned away before, and there
	// is no CatchUp, a new consumer has lost that: it stops with a [*LostError].
	AtBeginning Start = iota
	// AtHead: with what is committed after the consumer has first begun. What came before is never applied.
	AtHead
)

// SubscriptionConfig sets up a [Subscription]. Topic and Group are needed.
type SubscriptionConfig struct {
	// Topic is the route that is followed.
	Topic string
	// Group names those who follow together, for operators and for the cleaning of the outbox: a message stays until
	// every consumer of every group of its topic has passed it.
	Group string
	// CatchUp, usually store.Log(), says that the topic carries every event of the log unchanged: its route has no
	// filter and no mapping, and every process that appends has it. Then a consumer reads there what it is far behind
	// with, also after its group was declared lost, and may change between the log and the topic. Default nil: all is
	// read from the outbox.
	CatchUp consumer.Source
	// StartAt says where a consumer begins that has never applied anything. Default [AtBeginning].
	StartAt Start
	// Buffer is how many messages wait in memory for the consumers of this process. Default 1,000.
	Buffer int
	// Silence is how long nothing may come of some partition before the store is asked whether something was lost: a
	// broker that is away costs that much latency, and nothing else. Default 1 s.
	Silence time.Duration
	// Logger gets a line per change of state, never one per message. Default: none.
	Logger *slog.Logger
}

func (c SubscriptionConfig) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("outbox: new subscription: SubscriptionConfig."+format, args...))
	}
	if err := (eventstore.Route{Topic: c.Topic}).Validate(); err != nil {
		faults = append(faults, fmt.Errorf("outbox: new subscription: %w", err))
	}
	if c.Group == "" || len(c.Group) > 200 || strings.ContainsFunc(c.Group, func(r rune) bool { return r < ' ' }) {
		fault("Group: %q: want 1 to 200 bytes without control characters", c.Group)
	}
	if c.StartAt != AtBeginning && c.StartAt != AtHead {
		fault("StartAt: %d: use AtBeginning or AtHead", c.StartAt)
	}
	if c.Buffer < 0 || c.Buffer > maxBuffer {
		fault("Buffer: %d: must be between 1 and %d, or 0 for %d", c.Buffer, maxBuffer, defaultBuffer)
	}
	if c.Silence < 0 {
		fault("Silence: %v: must be positive, or 0 for %v", c.Silence, defaultSilent)
	}
	return errors.Join(faults...)
}

// Subscription is the published stream as consumers follow it, over any Watermill subscriber: pass it to a projection
// runner where store.Log() would stand. It hands out every message of its topic once and in order per partition key,
// whatever the broker loses, repeats or shuffles: each message says which one comes before it, and what is missing is
// read from the outbox.
//
// It subscribes while a consumer follows it, and only then, so that processes that stand by take no messages away.
// A message is acknowledged when it has reached the buffer: what is lost from there is found missing like any other.
// Consumers of one process share a subscription and its buffer; a slow one does not hold the others, but reads from the
// outbox what it has missed. Between processes, each runner that follows should get all messages: give each a consumer
// group, queue or durable of its own at the broker. Where members share one, a runner finds what went to the other in
// the outbox, after Silence.
//
// Whoever may publish on the topic can change what consumers believe: grant that to the relay alone.
//
// A Subscription is safe for concurrent use.
type Subscription struct {
	rows       Rows
	subscriber message.Subscriber
	cfg        SubscriptionConfig
	log        *slog.Logger

	mu        sync.Mutex
	followers int
	receiver  *receiver
	state     eventstore.Health
	counts    counts
}

// counts are what [Stats] shows.
type counts struct{ received, repeated, filled, overruns, refused, silences atomic.Int64 }

// Stats are totals since the Subscription was made, over all consumers of this process.
type Stats struct {
	// Received messages, heads included.
	Received int64
	// Repeated messages were dropped: they, or what stands in their place, had been applied.
	Repeated int64
	// Filled messages had not come when they were due, and were read from the outbox.
	Filled int64
	// Overruns: a consumer was so slow that the buffer went on without it.
	Overruns int64
	// Refused messages were not ours, or of an earlier epoch.
	Refused int64
	// Silences: nothing came for SubscriptionConfig.Silence although there was something.
	Silences int64
}

// NewSubscription checks its configuration; it touches neither database nor broker. The subscriber stays the caller's,
// who closes it. The errors of all faults are joined.
func NewSubscription(rows Rows, subscriber message.Subscriber, cfg SubscriptionConfig) (*Subscription, error) {
	s, err := newSubscription(rows, cfg)
	if subscriber == nil {
		err = errors.Join(err, errors.New("outbox: new subscription: subscriber is nil: pass a Watermill subscriber"))
	}
	if err != nil {
		return nil, err
	}
	s.subscriber = subscriber
	return s, nil
}

func newSubscription(rows Rows, cfg SubscriptionConfig) (*Subscription, error) {
	err := cfg.validate()
	if rows == nil {
		err = errors.Join(err, errors.New("outbox: new subscription: rows is nil: pass store.Outbox()"))
	}
	if err != nil {
		return nil, err
	}
	cfg.Buffer = cmp.Or(cfg.Buffer, defaultBuffer)
	cfg.Silence = cmp.Or(cfg.Silence, defaultSilent)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Subscription{rows: rows, cfg: cfg, log: cfg.Logger.With("topic", cfg.Topic, "group", cfg.Group)}
	s.state = eventstore.Health{Component: s.component(), Ready: true, State: "standby", Reason: "nobody follows", Since: time.Now()}
	return s, nil
}

func (s *Subscription) component() string {
	return fmt.Sprintf("subscription %s of %s", s.cfg.Group, s.cfg.Topic)
}

// Carries implements the source of a consumer: empty for a topic that carries all of the log.
func (s *Subscription) Carries() string {
	if s.cfg.CatchUp != nil {
		return ""
	}
	return "topic " + s.cfg.Topic
}

// StartsAt is SubscriptionConfig.StartAt.
func (s *Subscription) StartsAt() Start { return s.cfg.StartAt }

// Schema is the PostgreSQL schema of the store.
func (s *Subscription) Schema() string { return s.rows.Schema() }

// ReadPage reads the topic like a log, without the broker: from SubscriptionConfig.CatchUp if that is set, else from the
// outbox. It is an [*LostError] when the outbox no longer has what lies after a position.
func (s *Subscription) ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	if s.cfg.CatchUp != nil {
		return s.cfg.CatchUp.ReadPage(ctx, after, f, limit)
	}
	page, err := s.rows.ReadPage(ctx, eventstore.OutboxQuery{
		Topic: s.cfg.Topic, Partition: eventstore.AllPartitions, After: after, Limit: limit,
	})
	switch {
	case err != nil:
		return eventstore.Page{}, err
	case page.Cleaned.After(after):
		return eventstore.Page{}, consumer.Stop(s.lost(after, page.Cleaned))
	}
	return eventstore.Page{Events: selected(page.Messages, f), Through: page.Through}, nil
}

// Wait returns when there may be something after a position, or when ctx ends.
func (s *Subscription) Wait(ctx context.Context, after eventstore.Position) error {
	if s.cfg.CatchUp != nil {
		return s.cfg.CatchUp.Wait(ctx, after)
	}
	return s.rows.Wait(ctx, after)
}

// Stats returns the totals.
func (s *Subscription) Stats() Stats {
	c := &s.counts
	return Stats{
		c.received.Load(), c.repeated.Load(), c.filled.Load(), c.overruns.Load(), c.refused.Load(), c.silences.Load(),
	}
}

// Health says whether messages can come, as this process knows it. A subscription that the broker refuses is not ready;
// its consumers go on by asking the store.
func (s *Subscription) Health(context.Context) eventstore.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Subscription) become(ready bool, state, reason string) {
	s.mu.Lock()
	changed := s.state.State != state
	if changed {
		s.state.Since = time.Now()
	}
	s.state.Ready, s.state.State, s.state.Reason = ready, state, reason
	s.mu.Unlock()
	if !changed {
		return
	}
	level := slog.LevelInfo
	if !ready {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "subscription "+state, "reason", reason)
}

// Begin implements the source of a consumer: it makes the outbox wait for it, and says where it starts if it has never
// applied anything.
func (s *Subscription) Begin(ctx context.Context, db *pgxpool.Pool, ref consumer.Ref) (eventstore.Position, error) {
	var head eventstore.Position
	if s.cfg.StartAt == AtHead {
		var err error
		if head, err = s.rows.SafeHead(ctx); err != nil {
			return head, err
		}
	}
	var start int64
	err := db.QueryRow(ctx, strings.ReplaceAll(registerSQL, "{schema}", quoted(ref.Store)), s.cfg.Topic, s.cfg.Group, ref.Name, ref.Version,
		head.Ordinal(), s.cfg.CatchUp != nil).Scan(&start)
	if err != nil {
		return head, fmt.Errorf("outbox: register %s with group %q of topic %q: %w", ref, s.cfg.Group, s.cfg.Topic, err)
	}
	return eventstore.PositionAt(start), nil
}

// Follow implements the source of a consumer; runners call it.
func (s *Subscription) Follow(ctx context.Context, f consumer.Follower) (consumer.Feed, error) {
	return s.follow(ctx, f), nil
}

// selected are the events of messages that a consumer wants. What is not an event has no category.
func selected(messages []eventstore.OutboxMessage, f eventstore.Filter) []eventstore.RecordedEvent {
	var events []eventstore.RecordedEvent
	for i := range messages {
		if wanted(&messages[i].RecordedEvent, f) {
			events = append(events, messages[i].RecordedEvent)
		}
	}
	return events
}

func wanted(e *eventstore.RecordedEvent, f eventstore.Filter) bool {
	return (len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) &&
		(len(f.Categories) == 0 || slices.Contains(f.Categories, e.Stream.Category))
}

// registerSQL keeps where a consumer started first. One that has lost messages, and cannot get them from the log, holds
// nothing back any more: it stays lost.
const registerSQL = `
INSERT INTO {schema}.subscribers AS s (topic, group_name, consumer, version, start_position, state)
SELECT $1, $2, $3::text, $4::int, $5::bigint, CASE WHEN $6::boolean OR greatest(f.floor, $5::bigint) >= f.cleaned THEN 'following' ELSE 'lost' END
  FROM (SELECT coalesce((SELECT min(g.floor) FROM {schema}.segments g WHERE g.consumer = $3::text AND g.version = $4::int), 0) AS floor,
               coalesce((SELECT t.cleaned FROM {schema}.outbox_topics t WHERE t.topic = $1), 0) AS cleaned) f
ON CONFLICT (topic, group_name, consumer, version) DO UPDATE
   SET state = CASE WHEN $6::boolean OR greatest((SELECT coalesce(min(g.floor), 0) FROM {schema}.segments g
                                                   WHERE g.consumer = $3::text AND g.version = $4::int), s.start_position)
                         >= coalesce((SELECT t.cleaned FROM {schema}.outbox_topics t WHERE t.topic = $1), 0)
                    THEN 'following' ELSE 'lost' END,
       since = CASE WHEN s.state = excluded.state THEN s.since ELSE clock_timestamp() END
RETURNING start_position`
