package projection

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Install creates the tables of projections and registers them in the store; what is there already stays as it is. It
// needs a role that may create tables and write to the store's schema, and is safe from many processes at once. A
// runner never creates anything, so programs call Install where they migrate.
//
// A view's tables belong to the role that installs them. When programs run with another role, give it USAGE on the
// schema and SELECT, INSERT, UPDATE and DELETE on its tables, once and for all with ALTER DEFAULT PRIVILEGES.
//
// The SQL view with the projection's plain name is pointed at the version installed last. Older versions are kept.
//
// The error is a [*ShapeError] when a version is installed with other columns or in another Schema, a
// [*NotInstalledError] when the store itself is missing. A table that is there without being registered in the store,
// because it is that of another store's projection for example, is refused.
func Install(ctx context.Context, pool *pgxpool.Pool, projections ...Definition) error {
	defined, err := define(projections)
	if err != nil || len(defined) == 0 {
		return err
	}
	// Each statement must see what it has waited for, whatever the role's default isolation.
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fmt.Errorf("projection: install: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after the commit it does nothing
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", installLock(defined[0].ref.Store)); err != nil {
		return fmt.Errorf("projection: install: %w", err)
	}
	for _, d := range defined {
		if err := d.installIn(ctx, tx); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("projection: install: %w", err)
	}
	return nil
}

func installLock(store string) int64 {
	h := fnv.New64a()
	h.Write([]byte("daybook projection install\x00" + store))
	return int64(h.Sum64())
}

func inStore(sql, store string) string {
	return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{store}.Sanitize())
}

func (d *definition) installIn(ctx context.Context, tx pgx.Tx) error {
	err := d.check(ctx, tx)
	var missing *NotInstalledError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &missing):
		return err
	case missing.Missing == missingStore:
		return err
	}
	fail := func(what string, err error) error { return fmt.Errorf("projection: install %s: %s: %w", d, what, err) }
	if d.inline {
		var late bool
		if err := tx.QueryRow(ctx, inStore(lateSQL, d.ref.Store), d.types).Scan(&late); err != nil {
			return fail("look for earlier events", err)
		}
		if late {
			return fmt.Errorf("projection: install %s: the log has events of its types, which an inline projection would lack: use a Runner", d)
		}
	}
	if d.table != nil {
		if err := d.table.install(ctx, tx, d.ref.Name); err != nil {
			return fail("create "+d.table.quoted, err)
		}
	}
	if missing.Missing != missingRow { // registered before, and only the table was gone
		return d.restart(ctx, tx)
	}
	if d.setup != nil {
		if err := makeSchema(ctx, tx, defaultSchema); err != nil { // where its tables usually go, whatever is installed first
			return fail("create schema "+defaultSchema, err)
		}
		if err := d.setup(ctx, tx); err != nil {
			return fail("Setup", err)
		}
	}
	if _, err := tx.Exec(ctx, inStore(registerSQL, d.ref.Store), d.ref.Name, d.ref.Version, d.kind(), d.fingerprint); err != nil {
		return fail("register", err)
	}
	return nil
}

// restart begins at the beginning of the log: the table was dropped by hand, and is empty.
func (d *definition) restart(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	b.Queue(guardSQL)
	b.Queue(inStore(restartLockSQL, d.ref.Store), d.ref.Name, d.ref.Version)
	b.Queue(inStore(restartSQL, d.ref.Store), d.ref.Name, d.ref.Version)
	b.Queue(unguardSQL)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("projection: install %s: start again: %w", d, err)
	}
	return nil
}

// makeSchema looks first: a role that may create tables in a schema need not have the right to create schemas.
func makeSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&there); err != nil || there {
		return err
	}
	_, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize())
	return err
}

func (t *table) install(ctx context.Context, tx pgx.Tx, name string) error {
	plain := pgx.Identifier{t.schema, name}.Sanitize()
	if err := makeSchema(ctx, tx, t.schema); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, t.create); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "42P07" {
			// Its rows are of events that this consumer has not read: folding the log onto them would count twice.
			return fmt.Errorf("the table is there, but was not made by this projection of this store: "+
				"drop it if nothing uses it any more, or set Schema: %w", err)
		}
		return err
	}
	return pointView(ctx, tx, plain, t.quoted)
}

// repointPatience is how long a view waits for its readers at a time.
const repointPatience = 200 * time.Millisecond

// pointView points the plain SQL view at a table. That needs the view for itself for a moment, and while it waits for a
// transaction that has read the view, all new readers queue behind it: so it gives up soon, and tries again until ctx
// ends.
func pointView(ctx context.Context, tx pgx.Tx, plain, table string) error {
	for {
		err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return replaceView(ctx, sp, plain, table) })
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55P03" { // lock_not_available
			return err
		}
		timer := time.NewTimer(repointPatience/2 + rand.N(repointPatience))
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("replace the view %s: a transaction that has read it stays open: %w", plain, ctx.Err())
		case <-timer.C:
		}
	}
}

func replaceView(ctx context.Context, tx pgx.Tx, plain, table string) error {
	var before string
	if err := tx.QueryRow(ctx, "SELECT current_setting('lock_timeout')").Scan(&before); err != nil {
		return err
	}
	const setTimeout = "SELECT set_config('lock_timeout', $1, true)"
	if _, err := tx.Exec(ctx, setTimeout, fmt.Sprint(repointPatience.Milliseconds())); err != nil {
		return err
	}
	// Replacing works unless columns differ; then the view is made anew, which fails if somebody built on it.
	replace := "VIEW " + plain + " AS SELECT * FROM " + table
	err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
		_, err := sp.Exec(ctx, "CREATE OR REPLACE "+replace)
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code != "55P03" {
		for _, sql := range []string{"DROP VIEW IF EXISTS " + plain, "CREATE " + replace} {
			if _, err = tx.Exec(ctx, sql); err != nil {
				err = fmt.Errorf("replace the view %s: %w", plain, err)
				break
			}
		}
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, setTimeout, before)
	return err
}

const (
	missingStore = "the event store's tables are not there"
	missingRow   = "it is not registered in the store"
)

type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// check compares what is installed with what the program has.
func (d *definition) check(ctx context.Context, db rowQuerier) error {
	var store bool
	name := pgx.Identifier{d.ref.Store, "consumers"}.Sanitize()
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&store); err != nil {
		return fmt.Errorf("projection: check %s: %w", d, err)
	}
	if !store {
		return &NotInstalledError{d.ref.Name, d.ref.Version, missingStore}
	}
	var kind, fingerprint string
	var segments int
	err := db.QueryRow(ctx, inStore(checkSQL, d.ref.Store), d.ref.Name, d.ref.Version).Scan(&kind, &fingerprint, &segments)
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &NotInstalledError{d.ref.Name, d.ref.Version, missingRow}
	case errors.As(err, &pg) && pg.Code == "42501":
		return fmt.Errorf("projection: check %s: the role may not read the store: grant it what the store's grants file lists: %w", d, err)
	case err != nil:
		return fmt.Errorf("projection: check %s: %w", d, err)
	case kind != d.kind() || fingerprint != d.fingerprint:
		return &ShapeError{d.ref.Name, d.ref.Version, kind + ": " + fingerprint, d.kind() + ": " + d.fingerprint}
	case segments != 1 && !d.inline:
		return &ShapeError{d.ref.Name, d.ref.Version, fmt.Sprintf("%d segments", segments), "1 segment"}
	case d.table == nil:
		return nil
	}
	var table bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", d.table.quoted).Scan(&table); err != nil {
		return fmt.Errorf("projection: check %s: %w", d, err)
	}
	if !table {
		return &NotInstalledError{d.ref.Name, d.ref.Version, "table " + d.table.quoted + " is not there"}
	}
	return nil
}

const checkSQL = `
SELECT c.kind, c.fingerprint,
       (SELECT count(*) FROM {schema}.segments s WHERE s.consumer = c.consumer AND s.version = c.version)::int
  FROM {schema}.consumers c WHERE c.consumer = $1 AND c.version = $2`

const registerSQL = `
WITH c AS (
  INSERT INTO {schema}.consumers (consumer, version, kind, fingerprint) VALUES ($1, $2, $3, $4)
  RETURNING consumer, version, kind)
INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition)
SELECT c.consumer, c.version, 0, 0, s.partitions - 1 FROM c, {schema}.store s WHERE c.kind <> 'inline'`

// restartLockSQL is a statement of its own: the one behind it sees all that an owner has committed until then, who sets
// sequences aside all the time where the table is gone.
const restartLockSQL = `SELECT FROM {schema}.segments WHERE consumer = $1 AND version = $2 FOR UPDATE`

// restartSQL raises the epoch, so that a worker that still has the old place cannot commit. All events come again, so
// nothing is set aside any more: letters that are open are closed, and one whose message fails again goes on.
const restartSQL = `
WITH gone AS (DELETE FROM {schema}.checkpoints WHERE consumer = $1 AND version = $2),
aside AS (DELETE FROM {schema}.parked WHERE consumer = $1 AND version = $2),
queued AS (DELETE FROM {schema}.held WHERE consumer = $1 AND version = $2),
closed AS (
  UPDATE {schema}.letters SET state = 'taken over', closed_at = clock_timestamp(), closed_by = 'projection.Install',
         reason = 'the projection was started again from the beginning of the log'
   WHERE consumer = $1 AND version = $2 AND state IN ('retrying', 'parked'))
UPDATE {schema}.segments SET floor = 0, epoch = epoch + 1, parked_rev = parked_rev + 1, owner = '', expires_at = '-infinity'
 WHERE consumer = $1 AND version = $2`

const lateSQL = `SELECT EXISTS (SELECT 1 FROM {schema}.events WHERE type = ANY ($1))`
