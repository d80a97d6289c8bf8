package postgrestest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

// database is one test's database.
type database struct {
	admin string // URL of the server
	name  string
}

const databasePrefix = "daybook_test_"

// newName has the time in it, so that a later process can tell the age.
func newName(now time.Time) string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime aborts instead
	return fmt.Sprintf("%s%08x_%s", databasePrefix, now.Unix(), hex.EncodeToString(b[:]))
}

func createDatabase(ctx context.Context, admin string, migrated bool, cfg postgres.MigrateConfig) (database, error) {
	template := "template0"
	if migrated {
		var err error
		if template, err = ensureTemplate(ctx, admin, cfg); err != nil {
			return database{}, err
		}
	}
	db := database{admin: admin, name: newName(time.Now())}
	return db, admins.with(ctx, admin, func(conn *pgx.Conn) error {
		return create(ctx, conn, db.name, template)
	})
}

func create(ctx context.Context, conn *pgx.Conn, name, template string) error {
	// file_copy is more than twice as fast as the default for small templates.
	_, err := conn.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy", ident(name), ident(template)))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

func (db database) url() string { return withDatabase(db.admin, db.name) }

func (db database) connect(ctx context.Context, cfg config) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(db.url())
	if err != nil {
		return nil, errors.New("the server's URL cannot be used for a pool") // the cause may quote the password
	}
	pc.MaxConns = cfg.maxConns
	if cfg.change != nil {
		cfg.change(pc)
	}
	return pgxpool.NewWithConfig(ctx, pc)
}

// drop removes the database and ends whatever still uses it.
func (db database) drop(ctx context.Context) error {
	return admins.with(ctx, db.admin, func(conn *pgx.Conn) error {
		err := drop(ctx, conn, db.name)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55006" {
			return err
		}
		// Prepared transactions are the one thing that FORCE does not end.
		if err := db.rollBackPrepared(ctx); err != nil {
			return err
		}
		return drop(ctx, conn, db.name)
	})
}

func drop(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", ident(name)))
	return err
}

func (db database) rollBackPrepared(ctx context.Context) error {
	return withAdmin(ctx, db.url(), func(conn *pgx.Conn) error {
		const find = `SELECT gid FROM pg_prepared_xacts WHERE database = current_database()`
		rows, err := conn.Query(ctx, find)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := conn.Exec(ctx, "ROLLBACK PREPARED '"+strings.ReplaceAll(id, "'", "''")+"'"); err != nil {
				return fmt.Errorf("roll back prepared transaction %q: %w", id, err)
			}
		}
		return nil
	})
}

// withAdmin runs a function on a connection of its own, which ends with it.
func withAdmin(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	err = do(conn)
	// Its work is done; how it ends does not matter.
	_ = conn.Close(ctx)
	return err
}

// withDatabase is a connection URL, or a key=value text, with another database.
func withDatabase(text, name string) string {
	if u, err := url.Parse(text); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		u.Path = "/" + name
		return u.String()
	}
	return text + " dbname=" + name // the last one counts
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }
