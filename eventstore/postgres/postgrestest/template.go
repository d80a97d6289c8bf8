package postgrestest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

// abandoned is the age at which a test's database is taken for left behind.
const abandoned = 24 * time.Hour

// ready remembers the templates that this process has seen.
var ready sync.Map

// templateName depends on everything that the template is made from.
func templateName(cfg postgres.MigrateConfig) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%s %#v", postgres.MigrationsHash(), cfg))
	return fmt.Sprintf("daybook_template_%x", h[:8])
}

// ensureTemplate makes the migrated template unless the server has it. Any
// number of processes may call it: one makes it, the others wait.
func ensureTemplate(ctx context.Context, admin string, cfg postgres.MigrateConfig) (string, error) {
	name := templateName(cfg)
	if _, ok := ready.Load(name); ok {
		return name, nil
	}
	err := withAdmin(ctx, admin, func(conn *pgx.Conn) error {
		// Ends with the connection.
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, name); err != nil {
			return err
		}
		var exists bool
		const find = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`
		if err := conn.QueryRow(ctx, find, name).Scan(&exists); err != nil || exists {
			return err
		}
		return makeTemplate(ctx, conn, admin, name, cfg)
	})
	if err != nil {
		return "", fmt.Errorf("make template database %s: %w", name, err)
	}
	ready.Store(name, true)
	return name, nil
}

// makeTemplate works under another name until the template is whole.
func makeTemplate(ctx context.Context, conn *pgx.Conn, admin, name string, cfg postgres.MigrateConfig) error {
	dropAbandoned(ctx, conn, time.Now())
	unfinished := name + "_new"
	if err := drop(ctx, conn, unfinished); err != nil { // of a process that was killed
		return err
	}
	if err := create(ctx, conn, unfinished, "template0"); err != nil {
		return err
	}
	if err := migrate(ctx, withDatabase(admin, unfinished), cfg); err != nil {
		return errors.Join(err, drop(ctx, conn, unfinished))
	}
	// Nobody may connect to it again, or it could not be copied.
	for _, sql := range []string{
		fmt.Sprintf("ALTER DATABASE %s WITH ALLOW_CONNECTIONS false", ident(unfinished)),
		fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", ident(unfinished), ident(name)),
	} {
		if err := execWhenFree(ctx, conn, sql); err != nil {
			return err
		}
	}
	return nil
}

func migrate(ctx context.Context, url string, cfg postgres.MigrateConfig) error {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return errors.New("the server's URL cannot be used for a pool") // the cause may quote the password
	}
	pc.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return err
	}
	defer pool.Close()
	return postgres.Migrate(ctx, pool, cfg)
}

// execWhenFree repeats a statement while connections that were closed are still
// ending on the server.
func execWhenFree(ctx context.Context, conn *pgx.Conn, sql string) error {
	for {
		_, err := conn.Exec(ctx, sql)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55006" {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// dropAbandoned removes what killed tests left on a server that lives on. It is
// a courtesy: what cannot be dropped, or is in use, stays.
func dropAbandoned(ctx context.Context, conn *pgx.Conn, now time.Time) {
	rows, err := conn.Query(ctx, `SELECT datname FROM pg_database WHERE starts_with(datname, $1)`, databasePrefix)
	if err != nil {
		return
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return
	}
	for _, name := range names {
		if made, ok := madeAt(name); ok && now.Sub(made) > abandoned {
			_, _ = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+ident(name))
		}
	}
}

func madeAt(name string) (time.Time, bool) {
	text, _, _ := strings.Cut(strings.TrimPrefix(name, databasePrefix), "_")
	seconds, err := strconv.ParseInt(text, 16, 64)
	return time.Unix(seconds, 0), err == nil
}
