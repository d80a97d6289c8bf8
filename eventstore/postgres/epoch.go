package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// EpochAction says how to settle a database that is not the one that its epoch was made for.
type EpochAction int

const (
	// EpochKeep: the move was faithful (an upgrade, a dump and restore of everything while nothing was written), so
	// checkpoints and tokens stay valid.
	EpochKeep EpochAction = iota + 1
	// EpochNew: data may be missing or added (a backup, a copy that went its own way). The history gets a new epoch:
	// tokens of the old one are refused, and consumers that were ahead must be rebuilt.
	EpochNew
)

// EpochInfo is what the store knows of its history and where it lives.
type EpochInfo struct {
	Epoch      uuid.UUID
	CreatedAt  time.Time
	Partitions int
	// MadeFor and Found name the cluster and database that the epoch was made for, and those of the connection.
	MadeFor, Found string
	standby        bool
	isolation      string // that transactions on this connection have by default
}

// Settled reports whether the database is the one that the epoch was made for.
func (i EpochInfo) Settled() bool { return i.MadeFor == i.Found }

func (i EpochInfo) check() error {
	if i.Settled() {
		return nil
	}
	return &eventstore.HistoryError{
		Reason: fmt.Sprintf("the store was made for %s and now lies in %s: it was restored or copied", i.MadeFor, i.Found),
		Remedy: "run `daybook epoch keep` if everything came along and nothing was written meanwhile, else `daybook epoch new`",
	}
}

// ReadEpoch reads the epoch of the store in schema ("" for "daybook"), also when [New] refuses to open it. The error is a
// [*SchemaError] when there is no store.
func ReadEpoch(ctx context.Context, pool *pgxpool.Pool, schema string) (EpochInfo, error) {
	schema, err := schemaName(schema)
	if err != nil {
		return EpochInfo{}, err
	}
	if err := mustExist(ctx, pool, schema); err != nil {
		return EpochInfo{}, err
	}
	return readEpoch(ctx, pool, schema)
}

// mustExist says what is missing better than PostgreSQL does.
func mustExist(ctx context.Context, q querier, schema string) error {
	have, err := schemaVersion(ctx, q, schema)
	if err == nil && have == 0 {
		err = &SchemaError{Schema: schema, Want: latestVersion()}
	}
	return err
}

func readEpoch(ctx context.Context, q querier, schema string) (EpochInfo, error) {
	var i EpochInfo
	var epoch pgtype.UUID
	var madeSystem, system int64
	var madeDatabase, database uint32
	err := q.QueryRow(ctx, expand(readEpochSQL, schema)).Scan(&epoch, &i.CreatedAt, &i.Partitions, &madeSystem, &madeDatabase, &system, &database, &i.standby, &i.isolation)
	if err != nil {
		return i, fmt.Errorf("postgres: read epoch: %w", err)
	}
	i.Epoch = epoch.Bytes
	i.MadeFor = fmt.Sprintf("cluster %d database %d", madeSystem, madeDatabase)
	i.Found = fmt.Sprintf("cluster %d database %d", system, database)
	return i, nil
}

// SetEpoch settles where the store in schema ("" for "daybook") lives, after a move or a restore, and returns what holds
// now. Stop all programs first. It also moves the sequence of positions behind the highest one stored, which logical
// copies leave behind. The error is a [*SchemaError] when there is no store.
func SetEpoch(ctx context.Context, pool *pgxpool.Pool, schema string, action EpochAction) (EpochInfo, error) {
	schema, err := schemaName(schema)
	if err != nil {
		return EpochInfo{}, err
	}
	if action != EpochKeep && action != EpochNew {
		return EpochInfo{}, fmt.Errorf("postgres: epoch action: %d is neither EpochKeep nor EpochNew", action)
	}
	if err := mustExist(ctx, pool, schema); err != nil {
		return EpochInfo{}, err
	}
	for _, sql := range []string{setEpochSQL, advanceSequenceSQL} {
		args := []any{}
		if sql == setEpochSQL {
			args = append(args, action == EpochNew)
		}
		if _, err := pool.Exec(ctx, expand(sql, schema), args...); err != nil {
			return EpochInfo{}, fmt.Errorf("postgres: set epoch: %w", err)
		}
	}
	return readEpoch(ctx, pool, schema)
}

const (
	readEpochSQL = `
SELECT s.epoch, s.created_at, s.partitions, s.system_identifier, s.database_oid, c.system_identifier, d.oid, pg_is_in_recovery(),
       current_setting('default_transaction_isolation')
  FROM {schema}.store s, pg_control_system() c, pg_database d WHERE s.singleton AND d.datname = current_database()`

	// A restore takes fences back too. With new history they begin anew at a random distance, so that a process that was
	// cut off before it cannot meet one that it knows, and commit what belongs to the history that is gone.
	setEpochSQL = `
WITH fenced AS (
  UPDATE {schema}.segments SET epoch = epoch + 1 + floor(random() * 1e12)::bigint, owner = '', expires_at = '-infinity' WHERE $1)
UPDATE {schema}.store s
   SET epoch = CASE WHEN $1 THEN gen_random_uuid() ELSE s.epoch END, system_identifier = c.system_identifier, database_oid = d.oid
  FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()`

	// A sequence that was never used answers NULL; setval with false would make it "used" without a reason.
	advanceSequenceSQL = `
SELECT setval('{schema}.log_position', x.top)
  FROM (SELECT greatest((SELECT max(position) FROM {schema}.events), (SELECT max(last_position) FROM {schema}.outbox)) AS top) x
 WHERE x.top > coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0)`
)
