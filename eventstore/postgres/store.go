package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// Hook runs inside the transaction of every append, after its events are written and before it commits. It gets the
// events as they are stored, all of one append. An error rolls the append back and is returned to the caller as it is.
// The store commits; the hook must not. See projection.Inline for the usual one.
type Hook func(ctx context.Context, tx pgx.Tx, events []eventstore.RecordedEvent) error

// Config sets up a [Store]. The zero value works.
type Config struct {
	// Schema is the PostgreSQL schema of the store. Default "daybook".
	Schema string
	// MaxConns bounds the connections of the store's own pool. Default: the MaxConns of the pool passed to [New]. At most
	// half of them hold keys at a time ([Store.HoldKey]), at most half are used by [Store.WithStreamsLocked].
	MaxConns int32
	// Hooks run inside every append, in this order. With hooks an append takes two more round trips. Default none.
	Hooks []Hook
	// Routes say what is published of the events that this Store appends, and as what; see [eventstore.Route]. The rows
	// of the outbox are written by the append's own statement. Give the same routes to every Store that appends. Default
	// none.
	Routes []eventstore.Route
	// TransactionPooler says that connections go through a pooler in transaction mode (PgBouncer and the like). The
	// store then keeps no state on connections and does not listen for notifications: readers in other processes see
	// new events by polling. Prepared statements follow the query mode of the pool passed to [New], which must be one
	// that the pooler supports. Default false.
	TransactionPooler bool
	// Observer is told of appends. Default none.
	Observer eventstore.Observer
	// Logger gets a line for each change of state, never for an event, and never a payload. Default slog.Default().
	Logger *slog.Logger
	// Clock gives the time stored in events and outcomes, and the time at which keys of commands are old. Default nil: the
	// clock of the database.
	Clock func() time.Time
	// KeepKeys is how long the outcome of a command with a key is kept at least, and so for how long a repeat is
	// recognised; see [Store.AppendOnce]. They go after two and a half times as long. Give the same to every process that opens the
	// store: the shortest counts. At least a second. Default 24 hours.
	KeepKeys time.Duration
}

func (c Config) withDefaults(pool *pgxpool.Pool) (Config, error) {
	var faults []error
	var err error
	if c.Schema, err = schemaName(c.Schema); err != nil {
		faults = append(faults, err)
	}
	if c.MaxConns < 0 {
		faults = append(faults, fmt.Errorf("postgres: Config.MaxConns: %d is negative", c.MaxConns))
	}
	for i, h := range c.Hooks {
		if h == nil {
			faults = append(faults, fmt.Errorf("postgres: Config.Hooks[%d]: is nil", i))
		}
	}
	if err := eventstore.ValidateRoutes(c.Routes); err != nil {
		faults = append(faults, fmt.Errorf("postgres: Config.Routes: %w", err))
	}
	if c.KeepKeys == 0 {
		c.KeepKeys = 24 * time.Hour
	}
	if c.KeepKeys < time.Second {
		faults = append(faults, fmt.Errorf("postgres: Config.KeepKeys: %s is shorter than a second", c.KeepKeys))
	}
	if c.MaxConns == 0 {
		c.MaxConns = pool.Config().MaxConns
	}
	if c.Observer == nil {
		c.Observer = eventstore.NopObserver{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(faults...)
}

// Store is the log on PostgreSQL. It is safe for concurrent use.
//
// It keeps a small pool of its own, made from the configuration of the pool passed to [New], because its connections
// carry settings that must not reach the program's own queries. [Store.Close] closes it. Everything works without
// [Store.Run]; with it, other processes wake up at once instead of by polling, and ranges are added ahead of need.
type Store struct {
	pool       *ownPool
	cfg        Config
	sql        statements
	epoch      uuid.UUID
	secret     []byte // under which requests are hashed
	keys       heldKeys
	turns      turns
	idleLimit  time.Duration
	locking    chan struct{} // one element for each call of WithStreamsLocked that goes on
	partitions int
	head       head
	held       holder
	wake       signal
	ranges     ranges
	listening  atomic.Bool
	notify     chan struct{}
	id         string // tells this Store's notifications from others'
}

var (
	_ eventstore.Store        = (*Store)(nil)
	_ eventstore.OnceAppender = (*Store)(nil)
	_ eventstore.StreamLocker = (*Store)(nil)
)

// New opens the store that [Migrate] installed in the database of pool. It reads, and never migrates: an older schema
// is a [*SchemaError], as is a newer one that does not serve this release, a standby [ErrStandby], a pooler that was not
// announced [ErrPooler], a database that was copied or restored elsewhere an [*eventstore.HistoryError] until its epoch is
// settled (see [SetEpoch]).
func New(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New("postgres: pool is nil: pass the pool of the store's database")
	}
	cfg, err := cfg.withDefaults(pool)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, sql: newStatements(cfg.Schema), notify: make(chan struct{}, 1), id: uuid.NewString()}
	own := pool.Config()
	own.MaxConns = cfg.MaxConns
	own.MinConns = min(own.MinConns, own.MaxConns)
	own.MinIdleConns = min(own.MinIdleConns, own.MaxConns)
	if !cfg.TransactionPooler {
		own.AfterConnect = s.afterConnect(own.AfterConnect)
	}
	pool, err = pgxpool.NewWithConfig(ctx, own)
	if err != nil {
		return nil, fmt.Errorf("postgres: open pool: %w", err)
	}
	s.pool, s.locking = &ownPool{pool, s}, make(chan struct{}, max(1, cfg.MaxConns/2))
	s.turns.begin(s.turnEvery())
	s.idleLimit = idleLimit
	if err := s.open(ctx); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

// afterConnect prepares a connection of the store's own. An empty store that was analysed makes the planner choose
// sequential scans for cached plans, which stay when the tables grow. Where there is nothing else to choose, their price is so
// high that the plan would be compiled (jit), which takes far longer than to read the few rows. An append that is acknowledged
// must be on disk, or a crash could hand out its positions again. And events read with the snapshot that the head was read
// with, as under REPEATABLE READ, would miss those committed in between.
func (s *Store) afterConnect(theirs func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		if theirs != nil {
			if err := theirs(ctx, conn); err != nil {
				return err
			}
		}
		var standby bool
		var backend uint32
		if err := conn.QueryRow(ctx, connectSQL, pgx.QueryExecModeExec).Scan(&standby, &backend); err != nil {
			return fmt.Errorf("postgres: prepare connection: %w", err)
		}
		if standby {
			return ErrStandby
		}
		if backend != conn.PgConn().PID() {
			return ErrPooler
		}
		return nil
	}
}

func (s *Store) open(ctx context.Context) error {
	if err := checkPool(ctx, s.pool.Pool); err != nil {
		return err
	}
	have, err := schemaVersion(ctx, s.pool, s.cfg.Schema)
	if err != nil {
		return err
	}
	if err := checkVersion(ctx, s.pool, s.cfg.Schema, have, latestVersion()); err != nil {
		return err
	}
	info, err := readEpoch(ctx, s.pool, s.cfg.Schema)
	if err != nil {
		return err
	}
	if info.standby {
		return ErrStandby
	}
	if err := info.check(); err != nil {
		return err
	}
	if s.cfg.TransactionPooler && info.isolation != "read committed" {
		return fmt.Errorf("postgres: default_transaction_isolation is %q: behind a transaction pooler the store cannot choose it; "+
			"set it to read committed for this role or database", info.isolation)
	}
	s.epoch, s.partitions = info.Epoch, info.Partitions
	if err := s.pool.QueryRow(ctx, s.sql.secret).Scan(&s.secret); err != nil {
		return fmt.Errorf("postgres: read secret: %w", err)
	}
	if err := s.readRanges(ctx); err != nil {
		return err
	}
	return s.startHead(ctx)
}

// Close closes the store's own connections and waits for those in use. The pool passed to [New] stays open.
func (s *Store) Close() { s.pool.Close() }

// Epoch identifies the history of this store; tokens carry it.
func (s *Store) Epoch() uuid.UUID { return s.epoch }

// Partitions is the number of partitions chosen when the store was installed.
func (s *Store) Partitions() int { return s.partitions }

// statements are the store's statements with the schema written in.
type statements struct {
	appendExisting, appendNew                                                         oneStream
	lockOne, lockAll, appendMany, appendManyThin, appendManyOwn                       string
	guard, unguard, outside                                                           string
	readStream, floorPosition, appended, streamHead                                   string
	safeHead, page, pageFiltered, lastDrawn                                           string
	sequence, sequenceScan, sequenceSettings, outboxKey, outboxRange                  string
	blocker, ensureRanges, rangesTop, notify, consumers, check, relayHealth           string
	snapshotLoad, snapshotEvents, snapshotSave, snapshotTrim                          string
	snapshotDelete, snapshotDeleteOld, snapshotDeleteMany, snapshotDeleteManyOld      string
	outbox, outboxPartition, outboxTopic, outboxPartitionTopic                        string
	outboxSettings, checkOutbox                                                       string
	secret, lockKey, lockKeyOne, holdKey, firstOutcome, turnOutcomes                  string
	storeOutcomeAlone, storeOutcomeOne, storeOutcomeMany                              string
	outboxCleaned, outboxCleanedTopic, epochs, declareLost, raiseCleaned, dropCleaned string
}

func newStatements(schema string) statements {
	x := func(sql string) string { return expand(sql, schema) }
	return statements{
		appendExisting: oneStream{x(appendExistingSQL), x(appendExistingWholeSQL), x(appendExistingThinSQL), x(appendExistingOwnSQL)},
		appendNew:      oneStream{x(appendNewSQL), x(appendNewWholeSQL), x(appendNewThinSQL), x(appendNewOwnSQL)},
		lockOne:        x(lockOneSQL), lockAll: x(lockAllSQL),
		appendMany: x(appendManySQL), guard: x(guardSQL), unguard: x(unguardSQL), outside: x(outsideSQL),
		appendManyThin: x(appendManyThinSQL), appendManyOwn: x(appendManyOwnSQL),
		readStream: x(readStreamSQL), floorPosition: x(floorPositionSQL), appended: x(appendedSQL), streamHead: x(streamHeadSQL),
		safeHead: x(safeHeadSQL), page: x(pageSQL), pageFiltered: x(pageFilteredSQL), lastDrawn: x(lastDrawnSQL),
		sequence: x(sequenceSQL), sequenceScan: x(sequenceScanSQL), sequenceSettings: x(sequenceSettingsSQL), outboxKey: x(outboxKeySQL), outboxRange: x(outboxRangeSQL),
		blocker: x(blockerSQL), ensureRanges: x(ensureRangesSQL), rangesTop: x(rangesTopSQL), notify: x(notifySQL),
		consumers: x(consumersSQL), relayHealth: x(relayHealthSQL), check: x(checkSQL), checkOutbox: x(checkOutboxSQL),
		snapshotLoad: x(snapshotLoadSQL), snapshotEvents: x(snapshotEventsSQL),
		snapshotSave: x(snapshotSaveSQL), snapshotTrim: x(snapshotTrimSQL),
		snapshotDelete: x(snapshotDeleteSQL), snapshotDeleteOld: x(snapshotDeleteOldSQL),
		snapshotDeleteMany: x(snapshotDeleteManySQL), snapshotDeleteManyOld: x(snapshotDeleteManyOldSQL),
		outbox: x(outboxSQL), outboxPartition: x(outboxPartitionSQL), outboxTopic: x(outboxTopicSQL),
		outboxPartitionTopic: x(outboxPartitionTopicSQL), outboxCleaned: x(outboxCleanedSQL), outboxCleanedTopic: x(outboxCleanedTopicSQL), outboxSettings: x(outboxSettingsSQL), epochs: x(epochsSQL),
		secret: x(secretSQL), lockKey: x(lockKeySQL), lockKeyOne: x(lockKeyOneSQL), holdKey: x(holdKeySQL),
		firstOutcome: x(firstOutcomeSQL), turnOutcomes: x(turnOutcomesSQL), storeOutcomeAlone: x(storeOutcomeAloneSQL),
		storeOutcomeOne: x(storeOutcomeOneSQL), storeOutcomeMany: x(storeOutcomeManySQL),
		declareLost: x(declareLostSQL), raiseCleaned: x(raiseCleanedSQL), dropCleaned: x(dropCleanedSQL),
	}
}

const (
	connectSQL = `
SELECT pg_is_in_recovery(), pg_backend_pid()
  FROM (SELECT set_config('daybook.seqscan_outside', current_setting('enable_seqscan'), false),
               set_config('enable_seqscan', 'off', false),
               set_config('daybook.jit_outside', current_setting('jit'), false),
               set_config('jit', 'off', false),
               set_config('default_transaction_isolation', 'read committed', false),
               set_config('synchronous_commit',
                          CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
                          false)
        OFFSET 0) AS settings`

	// guard makes the settings of connectSQL for one transaction that runs code of others too, and unguard undoes them.
	guardSQL = `
SELECT set_config('daybook.seqscan', coalesce(nullif(current_setting('daybook.seqscan_outside', true), ''), current_setting('enable_seqscan')), true),
       set_config('enable_seqscan', 'off', true),
       set_config('daybook.jit', coalesce(nullif(current_setting('daybook.jit_outside', true), ''), current_setting('jit')), true),
       set_config('jit', 'off', true),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`

	// outside remembers for a transaction with several guards what there was before the first.
	outsideSQL = `
SELECT set_config('daybook.seqscan_outside', current_setting('enable_seqscan'), true), set_config('daybook.jit_outside', current_setting('jit'), true)`

	unguardSQL = `
SELECT set_config('enable_seqscan', coalesce(nullif(current_setting('daybook.seqscan', true), ''), 'on'), true),
       set_config('jit', coalesce(nullif(current_setting('daybook.jit', true), ''), 'on'), true)`
)
