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
)

// The relay's rows in the store. The functions that clean the outbox know them.
const (
	relayName    = "outbox-relay"
	relayVersion = 2
)

// Relay publishes the outbox of a store: every message, in the order of the log within each partition and topic, at
// least once. Run it in as many processes as you like: one of them publishes, the others wait to take over.
//
// What it waits for, it waits for without end: a broker that refuses a message holds everything behind it, and Health
// says so. A message that was refused is tried again before the next of its partition. No transaction is open while
// the broker is spoken to.
//
// When a relay dies, or stands still for longer than its lease, another publishes again what may not have arrived: the
// same ids, headers and bytes, so that consumers can tell. Nothing can stop a frozen relay from publishing what it had
// in hand: a [Subscription] drops it, a plain subscriber may see an old message late.
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
	worker    *consumer.Worker
	log       *slog.Logger
	running   atomic.Bool

	mu      sync.Mutex
	trouble *PublishError // what the broker did not take; nil when all is well
	since   time.Time     // when that began
}

// NewRelay checks the configuration; it touches neither database nor broker. The relay opens three connections of its
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
	r := &Relay{
		pool: pool, rows: rows, publisher: publisher, cfg: cfg.withDefaults(),
		ref: consumer.Ref{Store: rows.Schema(), Name: relayName, Version: relayVersion},
	}
	r.log = r.cfg.Logger.With("schema", rows.Schema())
	r.worker = consumer.NewTask(r.ref, 0, r.cfg.inner(), r.publishOutbox)
	return r, nil
}

// Run publishes until ctx ends, and then returns nil within two seconds: a page in hand may finish for one second. The
// context of messages ends with it. Run returns at once with a [*NotInstalledError] when the store lacks the outbox's
// tables, and with a [*ShutdownError] when the publisher does not return in time. A database or broker that is away is
// waited for. When the log is not the one that was published before, the relay stops, and Health says what to do.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("outbox: run: the relay runs already: make another Relay, or call Run once")
	}
	defer r.running.Store(false)
	db, err := consumer.Pool(context.WithoutCancel(ctx), r.pool, 1)
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
	return shutDown(consumer.Run(ctx, db, r.worker))
}

// forget ends what troubled the relay, without claiming that the broker is well again.
func (r *Relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = nil
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
			_, err := tx.Exec(ctx, r.sql(registerRelaySQL), r.ref.Name, r.ref.Version)
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
func (r *Relay) publishOutbox(ctx context.Context, t *consumer.Tenure) error {
	var background sync.WaitGroup
	defer background.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l, err := r.begin(ctx, t)
	if err != nil {
		return err
	}
	defer r.forget() // whoever publishes next has troubles of its own
	defer l.end()
	background.Go(func() { r.clean(ctx) })
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
SELECT c.consumer, c.version, 0, 0, s.partitions - 1, s.outbox_cleaned FROM c, {schema}.store s`
)
