package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/outbox"
)

// The dispatcher's rows in the store. The function that cleans the outbox knows them.
const (
	dispatcherName    = "commands"
	dispatcherVersion = 1
)

// Dispatcher carries out the commands of the outbox by a bus. Run one in as many processes as you like: one of them
// works, by a lease, the others wait to take over. Which source they have does not matter: all are the one consumer
// "commands" of the store.
//
// Commands of one target are carried out in the order in which they were sent, those of several targets side by side, at
// most Config.Workers at once. No transaction of the dispatcher is open meanwhile. Then the ends of a batch, the replies
// to their senders and the checkpoint are committed in one transaction. A dispatcher that dies before that leaves a
// batch that the next one runs again: the idempotency keys of the commands, which are their ids unless they came with
// others, make the second run bring the first outcomes.
//
// A Dispatcher is safe for concurrent use, but Run only once at a time.
type Dispatcher struct {
	pool     *pgxpool.Pool
	source   Source
	cfg      Config
	log      *slog.Logger
	schema   string
	outbox   outbox.Schema
	dispatch func(context.Context, bus.Command) (bus.Reply, error)
	bury     func(context.Context, bus.Command) (bus.Reply, error) // the bus's End
	worker   *consumer.Worker
	sql      statements
	slots    chan struct{}
	calls    calls
	running  atomic.Bool
	bare     atomic.Bool // the bus has no bus.Idempotent

	// Set by Run.
	db   *pgxpool.Pool
	held context.Context // of Run: no command begins after it has ended

	mu      sync.Mutex
	away    string // why the database cannot be reached, as commands have found; empty when it can
	waiting int    // how many commands wait for it
	since   time.Time
}

type statements struct{ finish, run, relayed, install, look, clean, standing, outcome string }

// maxHung is how many handlers that ignore their contexts a process bears, beyond Config.Workers.
const maxHung = 64

// NewDispatcher checks the configuration; it does not touch the database. The dispatcher opens a few connections of its
// own with pool's settings while it runs; pool must be of the store that source reads, and b must carry out each
// command once, by [bus.Idempotent] with that store. The errors of all faults are joined.
func NewDispatcher(pool *pgxpool.Pool, source Source, b *bus.Bus, cfg Config) (*Dispatcher, error) {
	var faults []error
	fault := func(text string) { faults = append(faults, errors.New("commands: new dispatcher: "+text)) }
	if pool == nil {
		fault("pool is nil: pass the pool of the store's database")
	}
	switch {
	case source == nil:
		fault("source is nil: pass commands.Local(store.Outbox()) or an outbox.Subscription")
	case source.Carries() != "topic "+Topic:
		fault(fmt.Sprintf("the source carries %q: subscribe to topic %q, without CatchUp", source.Carries(), Topic))
	case source.StartsAt() != outbox.AtBeginning:
		fault("the source starts at the head, and would pass by what was sent before: leave StartAt out")
	}
	if b == nil {
		fault("the bus is nil: pass the one that bus.New made")
	}
	if err := cfg.validate(); err != nil {
		faults = append(faults, fmt.Errorf("commands: new dispatcher: %w", err))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	d := &Dispatcher{
		pool: pool, source: source, cfg: cfg, schema: source.Schema(), outbox: outbox.Schema(source.Schema()),
		slots: make(chan struct{}, cfg.Workers+maxHung), held: context.Background(),
	}
	d.log = cfg.Logger.With("schema", d.schema)
	d.dispatch, d.bury = onceBy(b, d.forgotten), b.End
	in := func(sql string) string { return inSchema(sql, d.schema) }
	d.sql = statements{in(finishSQL), in(runSQL), in(relayedSQL), in(installSQL), in(lookSQL), in(cleanSQL), in(standingSQL), in(outcomeSQL)}
	ref := consumer.Ref{Store: d.schema, Name: dispatcherName, Version: dispatcherVersion}
	d.worker = consumer.New(consumer.Spec{Ref: ref, Applier: applier{d}}, source, cfg.inner())
	return d, nil
}

func inSchema(sql, schema string) string {
	return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{schema}.Sanitize())
}

// Run carries out commands until ctx ends, and then returns within two seconds: handlers that are at work have one
// second to end, then their contexts end; what has not ended by then is run again by the next dispatcher. No command
// begins after ctx has ended. The error is nil, a [*NotInstalledError] when the store lacks the tables, or a
// [*ShutdownError] that names the commands whose handlers have not returned: should they commit later, the next
// dispatcher finds that, and repeats nothing.
//
// A database that is away is waited for. When the log is not the one that was read before, or commands were lost because
// no dispatcher ran for longer than the outbox keeps them, the dispatcher stops, and Health says what to do.
func (d *Dispatcher) Run(ctx context.Context) error {
	if !d.running.CompareAndSwap(false, true) {
		return errors.New("commands: run: the dispatcher runs already: make another, or call Run once")
	}
	defer d.running.Store(false)
	db, err := consumer.Pool(context.WithoutCancel(ctx), d.pool, 2)
	if err != nil {
		return fmt.Errorf("commands: run: %w", err)
	}
	if err := consumer.Patiently(ctx, func(ctx context.Context) error { return d.install(ctx, db) }); err != nil {
		db.Close()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	d.db, d.held = db, ctx
	var background sync.WaitGroup
	background.Go(func() { d.clean(ctx) })
	err = consumer.Run(ctx, db, d.worker)
	background.Wait()
	if late := d.calls.running(); len(late) > 0 {
		return &ShutdownError{Commands: late}
	}
	if err != nil {
		return fmt.Errorf("commands: run: %w", err)
	}
	return nil
}

// install makes the dispatcher's rows, which the first of a store does.
func (d *Dispatcher) install(ctx context.Context, db *pgxpool.Pool) error {
	var missing, kind string
	if err := db.QueryRow(ctx, d.sql.look, d.schema).Scan(&missing); err != nil {
		return fmt.Errorf("commands: run: look for the tables: %w", err)
	}
	if missing != "" {
		return &NotInstalledError{Schema: d.schema, Missing: "table " + missing}
	}
	if err := db.QueryRow(ctx, d.sql.install, dispatcherName, dispatcherVersion).Scan(&kind); err != nil {
		return fmt.Errorf("commands: run: register the dispatcher: %w", err)
	}
	if kind != "dispatcher" {
		return fmt.Errorf("commands: run: consumer %q version %d of the store is a %s: give that one another name", dispatcherName, dispatcherVersion, kind)
	}
	return nil
}

// Health says how the dispatcher is doing, as this process knows it; it does not touch the database. It is not ready
// while it waits for the database, when it has stopped, when so many handlers ignore the end of their contexts that nothing
// else can run, and when the bus turned out to have no [bus.Idempotent]. One that waits while another process works is ready in state "standby".
func (d *Dispatcher) Health(context.Context) eventstore.Health {
	h := eventstore.Health{Component: "dispatcher"}
	if !d.running.Load() {
		h.State, h.Reason = "not running", "call Run"
		return h
	}
	s := d.worker.Status()
	h.State, h.Reason, h.Since = string(s.State), s.Reason, s.Since
	switch s.State {
	case consumer.Standby, consumer.Paused, consumer.Running:
		h.Ready = true
	}
	if text, n := d.calls.hanging(); n > 0 {
		h.Reason = text
		h.Ready = h.Ready && n < maxHung
	}
	if d.bare.Load() {
		h.Ready, h.Reason = false, noIdempotent
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting > 0 {
		h.Ready, h.State, h.Reason, h.Since = false, string(consumer.Waiting), d.away, d.since
	}
	return h
}

const noIdempotent = "the bus has no bus.Idempotent: commands that expire or are given up may yet take effect: give it to bus.New"

// forgotten notes that the bus lacks its middleware.
func (d *Dispatcher) forgotten() {
	if !d.bare.Swap(true) {
		d.log.Error("a mistake in the set-up of the bus", "reason", noIdempotent)
	}
}

// waits notes that a command waits for the database, because of err, or no longer does.
func (d *Dispatcher) waits(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.waiting--
		return
	}
	if d.waiting++; d.waiting == 1 {
		d.away, d.since = err.Error(), time.Now()
		d.log.Warn("commands wait for the database", "reason", d.away)
	}
}

// scopeOf is the scope of a command: its own, or that of its metadata, as the bus has it.
func scopeOf(c bus.Command) string {
	if c.Scope == "" {
		return aggregate.ScopeOf(c.Metadata)
	}
	return c.Scope
}

const (
	lookSQL = `SELECT coalesce((SELECT t.name FROM unnest('{consumers,subscribers,operations,saga_commands}'::text[]) WITH ORDINALITY AS t(name, nth)
 WHERE to_regclass(format('%I.%I', $1::text, t.name)) IS NULL ORDER BY t.nth LIMIT 1), '')`

	// Only the first dispatcher of a store needs the right to write here.
	installSQL = `
WITH c AS (
  INSERT INTO {schema}.consumers (consumer, version, kind)
  SELECT $1::text, $2::int, 'dispatcher' WHERE NOT EXISTS (SELECT FROM {schema}.consumers WHERE consumer = $1 AND version = $2)
  ON CONFLICT DO NOTHING
  RETURNING consumer, version, kind),
s AS (
  INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition)
  SELECT c.consumer, c.version, 0, 0, s.partitions - 1 FROM c, {schema}.store s)
SELECT coalesce((SELECT kind FROM c), (SELECT kind FROM {schema}.consumers WHERE consumer = $1 AND version = $2), 'dispatcher')`
)
