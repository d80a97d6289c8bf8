package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Message is what a handler gets: an event as it stands in the log of the publishing store, or a message of its own, which
// has no stream.
type Message = eventstore.OutboxMessage

// Handler says what a message does. What it writes through tx commits together with the inbox's mark, and it must touch
// nothing else, because it runs again when its transaction is repeated. tx is committed by the inbox: Commit and Rollback
// refuse, Begin gives a savepoint. An error, or a panic, sets aside everything of the message's partition key; the other
// keys go on. It must not rest longer than Config.Lease between two statements, and must watch ctx.
type Handler func(ctx context.Context, tx pgx.Tx, m Message) error

// Attempt is which attempt at its message a handler makes, from 1, those before a redrive included.
func Attempt(ctx context.Context) int { return consumer.Attempt(ctx) }

// Inbox consumes a topic of a store that it has no access to. Any number of processes may run the same one: one of them
// subscribes and works, the others stand by. Safe for concurrent use, but Run only once at a time.
type Inbox struct {
	pool       *pgxpool.Pool
	subscriber message.Subscriber
	cfg        Config
	ref        consumer.Ref
	now        func() time.Time
	sql        statements
	worker     *consumer.Worker
	state      state
	epochs     epochs // of the tenure in hand
	running    atomic.Bool
	db         atomic.Pointer[pgxpool.Pool]
}

type statements struct {
	register, check, record, gaps, stored, store, dropHeads, dropStored, awaited, known, versions, keep string
}

// New checks its configuration; it touches neither database nor broker. The pool is that of the inbox's own database,
// which has been migrated with postgres.Migrate; the inbox opens three connections of its own with its settings. The
// subscriber stays the caller's, who closes it. The errors of all faults are joined.
func New(pool *pgxpool.Pool, subscriber message.Subscriber, cfg Config, handler Handler) (*Inbox, error) {
	faults := []error{cfg.validate()}
	if pool == nil {
		faults = append(faults, errors.New("inbox: new: pool is nil: pass the pool of the inbox's own database"))
	}
	if subscriber == nil {
		faults = append(faults, errors.New("inbox: new: subscriber is nil: pass a Watermill subscriber"))
	}
	if handler == nil {
		faults = append(faults, errors.New("inbox: new: handler is nil: pass what messages do"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	in := &Inbox{pool: pool, subscriber: subscriber, cfg: cfg, ref: cfg.ref(), now: time.Now}
	if cfg.Clock != nil {
		in.now = cfg.Clock
	}
	in.state.log = cfg.Logger.With("inbox", cfg.Name, "version", in.ref.Version, "topic", cfg.Topic)
	x := func(sql string) string { return inSchema(sql, cfg.Schema) }
	in.sql = statements{
		register: x(registerSQL), check: x(checkSQL), record: x(recordSQL), gaps: x(gapsSQL), stored: x(storedSQL), store: x(storeSQL),
		dropHeads: x(dropHeadsSQL), dropStored: x(dropStoredSQL), awaited: x(awaitedSQL), known: x(knownSQL),
		versions: x(versionsSQL), keep: x(keepSQL),
	}
	in.worker = consumer.New(consumer.Spec{
		Ref: in.ref, Partitions: cfg.Partitions, Applier: &applier{in: in, handle: handler},
	}, source{in}, cfg.inner(pool))
	return in, nil
}

func inSchema(sql, schema string) string {
	return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{schema}.Sanitize())
}

// inner is the configuration of the worker.
func (c Config) inner(home *pgxpool.Pool) consumer.Config {
	return consumer.Config{
		Lease: c.Lease, BatchSize: c.BatchSize, Attempts: c.Attempts, RetryBase: c.RetryBase, RetryCap: c.RetryCap, Classify: c.classify,
		Timeout: cmp.Or(c.Timeout, consumer.DefaultTimeout), MaxParked: c.MaxParked, Clock: c.Clock, Logger: c.Logger, Observer: c.Observer, Home: home, Probe: c.probe,
	}
}

// Run works until ctx ends, and then returns nil within two seconds: a transaction in hand may finish for one second. It
// returns at once with a [*NotInstalledError] or [*ShapeError] when the tables of Daybook are missing, or the inbox has
// begun with another topic, mode or number of partitions; and with a [*ShutdownError] when a handler ignores the end of its
// context. A database or broker that is away is waited for.
func (in *Inbox) Run(ctx context.Context) error {
	if !in.running.CompareAndSwap(false, true) {
		return errors.New("inbox: run: the inbox runs already: make another one, or call Run once")
	}
	defer in.running.Store(false)
	db, err := consumer.Pool(context.WithoutCancel(ctx), in.pool, 1)
	if err != nil {
		return fmt.Errorf("inbox: run: %w", err)
	}
	if err := consumer.Patiently(ctx, func(ctx context.Context) error { return in.install(ctx, db) }); err != nil {
		db.Close()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return consumer.Run(ctx, db, in.worker)
}

// source is an inbox as its worker reads it.
type source struct{ in *Inbox }

// Follow implements [consumer.Stream].
func (s source) Follow(ctx context.Context, f consumer.Follower) (consumer.Feed, error) {
	return s.in.open(ctx, f)
}

// ReadPage implements [consumer.Source]. There is no log to read.
func (s source) ReadPage(context.Context, eventstore.Position, eventstore.Filter, int) (eventstore.Page, error) {
	return eventstore.Page{}, errors.New("inbox: read: there is no access to the log")
}

// Wait implements [consumer.Source].
func (s source) Wait(ctx context.Context, _ eventstore.Position) error {
	<-ctx.Done()
	return ctx.Err()
}

// Begin implements [consumer.Beginner]: it lends the inbox the connections of the tenure.
func (s source) Begin(_ context.Context, db *pgxpool.Pool, _ consumer.Ref) (eventstore.Position, error) {
	s.in.db.Store(db)
	return eventstore.Position{}, nil
}

// Carries implements [consumer.Carrier].
func (s source) Carries() string { return "topic " + s.in.cfg.Topic }

// Keeps implements [consumer.Keeper]: the record has the epochs too.
func (s source) Keeps(record string) bool {
	known, ok := parseRecord(s.Carries(), record)
	if ok {
		s.in.epochs = known
	}
	return ok
}

var _ consumer.Stream = source{}
