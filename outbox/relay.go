package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/retry"
)

// The relay's rows in the store. The functions that clean the outbox know them.
const (
	relayName    = "outbox-relay"
	relayVersion = 2
)

// segments is into how many ranges of partitions the relays of a store divide them; a store of fewer partitions has fewer.
const segments = 4

// Relay publishes the outbox of a store: every message, in the order of the log within each partition and topic, at
// least once. Run it in as many processes as you like: they share the partitions, in four ranges, so that up to four
// publish and the others wait to take over. Who joins or leaves is noticed within a third of the lease; who dies, when
// its lease has run out.
//
// What it waits for, it waits for without end: a broker that is away holds everything, and Health says so; nobody's
// attempts are used up. A message that was refused is tried again before the next of its partition. One that is refused for
// its own sake (see Config.Classify) is set aside, and with it what follows of its topic and partition key; everything else
// goes on. It is tried again after a pause and, after Config.Attempts, when an operator says so; it, and what is queued
// behind it, is then published in order. In their places skip markers keep the chain whole ([KindSkip]). No transaction is
// open while the broker is spoken to.
//
// When a relay dies, or stands still for longer than its lease, another publishes again what may not have arrived: the
// same ids, headers and bytes, so that consumers can tell. Before each page a relay makes sure that its lease holds; nothing
// can stop a frozen one from publishing what it had in hand: a [Subscription] drops it, a plain subscriber may see an old
// message late.
//
// A message counts as sent when Publish returns nil. What a publisher that does not confirm loses, a [Subscription]
// notices and reads from the outbox; others never get it. See the package's documentation.
//
// A Relay is safe for concurrent use, but Run only once at a time.
type Relay struct {
	pool      *pgxpool.Pool
	rows      Rows
	publisher message.Publisher
	cfg       Config
	ref       consumer.Ref
	member    *consumer.Member
	segments  []*segment
	log       *slog.Logger
	running   atomic.Bool
	tail      *tail // of this Run
	took      takenTopics
}

// segment is a range of partitions, as the process works on it while it owns it.
type segment struct {
	*Relay
	number int
	worker *consumer.Worker
	watch  *watch // of the publisher

	mu      sync.Mutex
	trouble *PublishError // what the broker did not take; nil when all is well
	since   time.Time     // when that began
}

// NewRelay checks the configuration; it touches neither database nor broker. The relay opens up to four connections of its
// own with pool's settings while it runs. The publisher stays the caller's, who closes it after Run has returned. The
// errors of all faults are joined.
func NewRelay(pool *pgxpool.Pool, rows Rows, publisher message.Publisher, cfg Config) (*Relay, error) {
	var faults []error
	if pool == nil {
		faults = append(faults, errors.New("outbox: new relay: pool is nil: pass the pool of the store's database"))
	}
	if rows == nil {
		faults = append(faults, errors.New("outbox: new relay: rows is nil: pass the store's Outbox"))
	}
	if publisher == nil {
		faults = append(faults, errors.New("outbox: new relay: publisher is nil: pass a Watermill publisher"))
	}
	if err := cfg.validate(); err != nil {
		faults = append(faults, fmt.Errorf("outbox: new relay: %w", err))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	r := &Relay{
		pool: pool, rows: rows, cfg: cfg, publisher: slots{publisher, make(chan struct{}, cfg.Lanes)},
		ref: consumer.Ref{Store: rows.Schema(), Name: relayName, Version: relayVersion},
	}
	r.log = r.cfg.Logger.With("schema", rows.Schema())
	inner := r.cfg.inner()
	inner.Budget = new(retry.Budget) // one for the relay, not one for each of its segments
	inner.Lines = new(consumer.Lines)
	r.member = consumer.NewMember(r.ref, inner)
	for number := range min(segments, rows.Partitions()) {
		s := &segment{Relay: r, number: number, watch: &watch{log: r.log, limit: r.cfg.late}}
		s.worker = consumer.NewTask(r.ref, number, inner, s.publishOutbox)
		r.member.Add(s.worker)
		r.segments = append(r.segments, s)
	}
	return r, nil
}

// slots bounds how many messages of a process are on their way to the broker at once.
type slots struct {
	message.Publisher
	free chan struct{}
}

// Publish waits for a slot, as long as the message's context lasts.
func (s slots) Publish(topic string, messages ...*message.Message) error {
	ctx := messages[0].Context()
	select {
	case s.free <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.free }()
	return s.Publisher.Publish(topic, messages...)
}

// Run publishes until ctx ends, and then returns nil within two seconds: a page in hand may finish for one second. The
// context of messages ends with it. Run returns at once with a [*NotInstalledError] when the store lacks the outbox's
// tables, and with a [*ShutdownError] when the publisher does not return in time. A database or broker that is away is
// waited for. When the log is not the one that was published before, the relay stops, leaves its partitions to others,
// and Health says what to do.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("outbox: run: the relay runs already: make another Relay, or call Run once")
	}
	defer r.running.Store(false)
	db, err := consumer.Pool(context.WithoutCancel(ctx), r.pool, 2)
	if err != nil {
		return fmt.Errorf("outbox: run: %w", err)
	}
	if err := consumer.Patiently(ctx, func(ctx context.Context) error { return r.register(ctx, db) }); err != nil {
		db.Close()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r.tail = newTail(ctx, r.rows, r.cfg.BatchSize)
	defer r.tail.close()
	return shutDown(r.member.Run(ctx, db))
}

// forget ends what troubled the segment, without claiming that the broker is well again.
func (s *segment) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = nil
}

// register makes the relay's rows, which the first relay of a store does.
func (r *Relay) register(ctx context.Context, db *pgxpool.Pool) error {
	if err := r.installed(ctx, db); err != nil {
		return err
	}
	var known bool
	err := db.QueryRow(ctx, r.sql(knownRelaySQL), r.ref.Name, r.ref.Version).Scan(&known)
	if err == nil && !known {
		err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, r.sql(lockRelaySQL)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, r.sql(registerRelaySQL), r.ref.Name, r.ref.Version, segments)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("outbox: run: register the relay: %w", err)
	}
	return nil
}

func (r *Relay) sql(text string) string {
	return strings.ReplaceAll(text, "{schema}", pgx.Identifier{r.ref.Store}.Sanitize())
}

// publishOutbox is the work of a tenure.
func (s *segment) publishOutbox(ctx context.Context, t *consumer.Tenure) error {
	var background sync.WaitGroup
	defer background.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l, err := s.begin(ctx, t)
	if err != nil {
		return err
	}
	defer s.forget() // whoever publishes next has troubles of its own
	defer l.end()
	if s.number == 0 { // one process at a time cleans
		background.Go(func() { s.clean(ctx) })
	}
	for {
		err := l.step(ctx)
		if ctx.Err() != nil { // what is published and not saved need not be repeated by the next
			return errors.Join(ctx.Err(), l.commit())
		}
		if err != nil {
			return err
		}
	}
}

// Only the first relay of a store needs the right to write these.
const (
	knownRelaySQL = `SELECT EXISTS (SELECT FROM {schema}.consumers WHERE consumer = $1 AND version = $2)`

	// The cleaning of a store without a relay holds the same lock: the first relay begins behind what is gone.
	lockRelaySQL = `SELECT pg_advisory_xact_lock(hashtextextended('daybook relay ' || '{schema}.outbox_tails'::regclass::oid, 0))`

	registerRelaySQL = `
WITH c AS (
  INSERT INTO {schema}.consumers (consumer, version, kind) VALUES ($1::text, $2::int, 'relay')
  ON CONFLICT DO NOTHING
  RETURNING consumer, version)
INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition, floor)
SELECT c.consumer, c.version, i, s.partitions * i / n.n, s.partitions * (i + 1) / n.n - 1, s.outbox_cleaned
  FROM c, {schema}.store s, LATERAL (SELECT least($3::int, s.partitions) AS n) n, generate_series(0, n.n - 1) AS i`
)
