package saga

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// consumerKind is that of sagas in the store's table of consumers.
const consumerKind = "saga"

// Schema names the PostgreSQL schema of a store; the zero value stands for "daybook".
type Schema string

func (s Schema) name() string {
	if s == "" {
		return explainDefaultSchema
	}
	return string(s)
}

// Install is [Schema.Install] for the store in "daybook".
func Install(ctx context.Context, pool *pgxpool.Pool, definitions ...Definition) error {
	return Schema("").Install(ctx, pool, definitions...)
}

// Install registers sagas in the store, so that they begin to read; what is there already stays as it is. It creates no
// tables, which postgres.Migrate does, needs a role that may write to the store's schema, and is safe from many processes at
// once. A manager registers no saga, so programs call Install where they migrate.
//
// A version that is newer than all before is the newest of its saga from the commit of Install on, or from when a manager
// that has it runs: from then on events are taken only by programs that have it, and until one runs they wait; see
// [Operator.Withdraw]. So call Install when such a program is about to run, and before anything appends what it alone reads.
//
// Definitions that are not valid are refused. The error is a [*NotInstalledError] when the store itself is missing or old.
func (s Schema) Install(ctx context.Context, pool *pgxpool.Pool, definitions ...Definition) error {
	var faults []error
	for i, d := range definitions {
		if d == nil {
			faults = append(faults, fmt.Errorf("saga: install: definition %d is nil: pass what Define, After and NewReactor return", i+1))
			continue
		}
		faults = append(faults, d.Validate())
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	// Each statement must see what it has waited for, whatever the role's default isolation.
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fmt.Errorf("saga: install: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after the commit it does nothing
	h := fnv.New64a()
	h.Write([]byte("daybook saga install\x00" + s.name()))
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(h.Sum64())); err != nil {
		return fmt.Errorf("saga: install: %w", err)
	}
	for _, saga := range distinctNames(definitions) {
		err := check(ctx, tx, s.name(), saga)
		var missing *NotInstalledError
		switch {
		case err == nil:
		case !errors.As(err, &missing) || missing.Missing != missingRows:
			return err
		default:
			if _, err := tx.Exec(ctx, inSchema(registerSQL, s.name()), saga, consumerVersion, consumerKind, consumerName(saga), repliesName(saga)); err != nil {
				return fmt.Errorf("saga: install %q: %w", saga, err)
			}
		}
		newest, types := newestOf(definitions, saga)
		if err := enrol(ctx, tx, s.name(), saga, newest, types); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("saga: install: %w", err)
	}
	return nil
}

func distinctNames(definitions []Definition) []string {
	var names []string
	for _, d := range definitions {
		names = append(names, d.Name())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func inSchema(sql, schema string) string {
	return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{schema}.Sanitize())
}

const (
	missingTables = "the store's tables of sagas are not there"
	missingRows   = "it is not registered in the store"
)

// NotInstalledError names a saga that cannot run, because something is missing in the store.
type NotInstalledError struct {
	Schema, Saga, Missing string
}

// Error says what is missing, and what to call.
func (e *NotInstalledError) Error() string {
	if e.Missing == missingTables {
		return fmt.Sprintf("saga: %q: %s in schema %q: call postgres.Migrate or run `daybook migrate` first", e.Saga, e.Missing, e.Schema)
	}
	return fmt.Sprintf("saga: %q: %s in schema %q: call saga.Install where the program migrates", e.Saga, e.Missing, e.Schema)
}

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// check looks whether a saga can run.
func check(ctx context.Context, db rowQuerier, schema, saga string) error {
	var there bool
	if err := db.QueryRow(ctx, tablesSQL, schema).Scan(&there); err != nil {
		return fmt.Errorf("saga: check %q: %w", saga, err)
	}
	if !there {
		return &NotInstalledError{schema, saga, missingTables}
	}
	var kinds string
	var rows int
	err := db.QueryRow(ctx, inSchema(checkSQL, schema), saga, consumerVersion, consumerName(saga), repliesName(saga)).Scan(&kinds, &rows)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "42501":
		return fmt.Errorf("saga: check %q: the role may not read the store: grant it what the store's grants file lists: %w", saga, err)
	case err != nil:
		return fmt.Errorf("saga: check %q: %w", saga, err)
	case kinds != "" && kinds != consumerKind:
		return fmt.Errorf("saga: check %q: the store has consumers of its name that are %s: give the saga another name", saga, kinds)
	case rows < 3:
		return &NotInstalledError{schema, saga, missingRows}
	}
	return nil
}

const (
	tablesSQL = `
SELECT NOT EXISTS (SELECT FROM unnest('{consumers,timers,sagas,saga_names}'::text[]) t(name) WHERE to_regclass(format('%I.%I', $1::text, t.name)) IS NULL)`

	checkSQL = `
SELECT coalesce((SELECT string_agg(DISTINCT c.kind, ', ') FROM {schema}.consumers c WHERE c.consumer IN ($3, $4) AND c.version = $2), ''),
       (SELECT count(*) FROM {schema}.segments s WHERE s.consumer IN ($3, $4) AND s.version = $2)::int
         + (SELECT count(*) FROM {schema}.saga_names n WHERE n.saga = $1)::int`

	registerSQL = `
WITH n AS (INSERT INTO {schema}.saga_names (saga) VALUES ($1) ON CONFLICT DO NOTHING),
c AS (
  INSERT INTO {schema}.consumers (consumer, version, kind) SELECT u.name, $2::int, $3 FROM unnest(ARRAY[$4::text, $5::text]) u(name)
  ON CONFLICT DO NOTHING)
INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition)
SELECT u.name, $2::int, 0, 0, s.partitions - 1 FROM unnest(ARRAY[$4::text, $5::text]) u(name), {schema}.store s
ON CONFLICT DO NOTHING`
)
