package postgres

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

//go:embed grants.sql
var grantsSQL string

// MigrateConfig says where and how a store is installed. The zero value is right for most.
type MigrateConfig struct {
	// Schema is the PostgreSQL schema that holds everything; any name of at most 63 bytes without quotes. Default
	// "daybook".
	Schema string
	// Partitions is the number of partitions of a new store, 1 to 4096. It never changes afterwards; on an installed
	// store it is ignored. Default 64.
	Partitions int
	// RangeSize is the number of positions in one range of the events and outbox tables of a new store; on an
	// installed store it is ignored. Default 10,000,000.
	RangeSize int64
	// From is the version that an installed store has: [MigrationScript] then gives what is missing only. [Migrate] looks
	// for itself. Default 0, a new store.
	From int
}

func (c MigrateConfig) withDefaults() (MigrateConfig, error) {
	if c.Partitions == 0 {
		c.Partitions = eventstore.DefaultPartitions
	}
	if c.RangeSize == 0 {
		c.RangeSize = 10_000_000
	}
	switch {
	case c.Partitions < 1 || c.Partitions > 4096:
		return c, fmt.Errorf("postgres: MigrateConfig.Partitions: %d is not between 1 and 4096", c.Partitions)
	case c.RangeSize < 100:
		return c, fmt.Errorf("postgres: MigrateConfig.RangeSize: %d is below 100", c.RangeSize)
	case c.From < 0 || c.From > latestVersion():
		return c, fmt.Errorf("postgres: MigrateConfig.From: %d is not between 0 and %d, the version of this release", c.From, latestVersion())
	}
	var err error
	c.Schema, err = schemaName(c.Schema)
	return c, err
}

// migration is one numbered file. Files are never edited after a release; a change is a new file.
type migration struct {
	version int
	name    string
	sql     string
	serves  int // the oldest release, by the schema version that it was made for, that works with it
}

// servesForm is a line of a migration that older programs survive: they may go on and be started again while a new release
// is rolled out. Without it a migration serves its own release and newer ones only.
var servesForm = regexp.MustCompile(`(?m)^-- Serves programs from version (\d+) on\.$`)

func migrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	list := make([]migration, 0, len(names))
	for i, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		base := strings.TrimSuffix(strings.TrimPrefix(name, "migrations/"), ".sql")
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("postgres: migration %q is not number %d", name, i+1)
		}
		m := migration{version, base, string(text), version}
		if line := servesForm.FindSubmatch(text); line != nil {
			if m.serves, err = strconv.Atoi(string(line[1])); err != nil || m.serves < 1 || m.serves > version {
				return nil, fmt.Errorf("postgres: migration %q: %q is no version up to its own", name, line[0])
			}
		}
		list = append(list, m)
	}
	return list, nil
}

func latestVersion() int {
	list, err := migrations()
	if err != nil {
		panic(err) // the files are embedded: a fault here is a fault of the build
	}
	return len(list)
}

// MigrationsHash identifies the set of migrations, so that a template database can be named after it.
func MigrationsHash() string {
	list, err := migrations()
	if err != nil {
		panic(err)
	}
	h := sha256.New()
	for _, m := range list {
		fmt.Fprintf(h, "%s\n%d\n%s", m.name, len(m.sql), m.sql)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Migrate brings the schema up to this release. It is forward only, does nothing when nothing is to do (and then takes
// no lock), and may be called by any number of processes at once: each step runs in a transaction of its own under an
// advisory lock. It needs the right to create the schema, or to create tables in it when it exists already. Programs
// that run with fewer rights leave it to `daybook migrate`.
func Migrate(ctx context.Context, pool *pgxpool.Pool, cfg MigrateConfig) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	list, err := migrations()
	if err != nil {
		return err
	}
	if err := checkPool(ctx, pool); err != nil {
		return err
	}
	have, err := schemaVersion(ctx, pool, cfg.Schema)
	if err != nil {
		return err
	}
	if have > len(list) {
		return checkVersion(ctx, pool, cfg.Schema, have, len(list))
	}
	for _, m := range list[min(have, len(list)):] {
		// Whether a step is done is looked up after the wait for the lock, so the snapshot must not be from before it.
		readCommitted := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
		if err := pgx.BeginTxFunc(ctx, pool, readCommitted, func(tx pgx.Tx) error { return m.apply(ctx, tx, cfg) }); err != nil {
			return fmt.Errorf("postgres: migration %s: %w", m.name, err)
		}
	}
	return nil
}

func (m migration) apply(ctx context.Context, tx pgx.Tx, cfg MigrateConfig) error {
	for _, sql := range []string{migrateLockSQL, migrateSchemaSQL, migrateTableSQL, migrateServesSQL} {
		if _, err := tx.Exec(ctx, expand(sql, cfg.Schema), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	var done bool
	if err := tx.QueryRow(ctx, expand(migrateDoneSQL, cfg.Schema), m.version).Scan(&done); err != nil || done {
		return err
	}
	if _, err := tx.Exec(ctx, m.expand(cfg), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, expand(migrateRecordSQL, cfg.Schema), m.version, m.name, m.serves)
	return err
}

func (m migration) expand(cfg MigrateConfig) string {
	sql := strings.ReplaceAll(m.sql, "{partitions}", strconv.Itoa(cfg.Partitions))
	return expand(strings.ReplaceAll(sql, "{range_size}", strconv.FormatInt(cfg.RangeSize, 10)), cfg.Schema)
}

// MigrationScript returns all migrations beyond [MigrateConfig.From] as one SQL script, for those who review and run DDL
// themselves. It may be run inside one transaction. Afterwards [Migrate] finds nothing to do.
func MigrationScript(cfg MigrateConfig) (string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	list, err := migrations()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(expand(migrateSchemaSQL, cfg.Schema) + ";\n" + expand(migrateTableSQL, cfg.Schema) + ";\n" +
		expand(migrateServesSQL, cfg.Schema) + ";\n")
	for _, m := range list[cfg.From:] {
		fmt.Fprintf(&b, "\n-- %s\n%s\nINSERT INTO %s.migrations (version, name, serves) VALUES (%d, '%s', %d);\n",
			m.name, m.expand(cfg), quote(cfg.Schema), m.version, m.name, m.serves)
	}
	return b.String(), nil
}

// GrantsScript returns the SQL that gives role what a program needs at run time, and no DDL rights.
func GrantsScript(schema, role string) (string, error) {
	schema, err := schemaName(schema)
	if err != nil {
		return "", err
	}
	if role == "" || strings.ContainsAny(role, "\"\x00") {
		return "", fmt.Errorf("postgres: role: %q is not a usable role name", role)
	}
	return strings.ReplaceAll(expand(grantsSQL, schema), "{role}", pgx.Identifier{role}.Sanitize()), nil
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SchemaVersion returns the version of the store in schema ("" for "daybook"), which is the number of the last migration
// that was applied: 0 when there is no store. It writes nothing.
func SchemaVersion(ctx context.Context, pool *pgxpool.Pool, schema string) (int, error) {
	schema, err := schemaName(schema)
	if err != nil {
		return 0, err
	}
	return schemaVersion(ctx, pool, schema)
}

// schemaVersion returns the number of the last migration applied, 0 when there is none. The statements are separate:
// the second can only be planned when the table exists.
func schemaVersion(ctx context.Context, q querier, schema string) (int, error) {
	var exists bool
	if err := q.QueryRow(ctx, migrationsExistSQL, schema).Scan(&exists); err != nil {
		return 0, fmt.Errorf("postgres: read schema version: %w", err)
	}
	if !exists {
		return 0, nil
	}
	var version int
	if err := q.QueryRow(ctx, expand(versionSQL, schema)).Scan(&version); err != nil {
		return 0, fmt.Errorf("postgres: read schema version: %w", err)
	}
	return version, nil
}

// checkVersion reports whether a program that was made for version want works with the schema's version. A newer schema
// says itself which programs it serves.
func checkVersion(ctx context.Context, q querier, schema string, have, want int) error {
	if have > want {
		var serves int
		if err := q.QueryRow(ctx, expand(servesSQL, schema), want).Scan(&serves); err != nil {
			return fmt.Errorf("postgres: read schema version: %w", err)
		}
		if serves <= want {
			return nil
		}
	}
	if have != want {
		return &SchemaError{Schema: schema, Have: have, Want: want}
	}
	return nil
}

// schemaName checks the name and gives the default. Quotes are refused because the name also stands inside literals,
// percent because it stands inside formats, and line ends because it stands in comments.
func schemaName(name string) (string, error) {
	if name == "" {
		return "daybook", nil
	}
	if len(name) > 63 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || strings.ContainsAny(name, "'\"\\{}$%") ||
		strings.HasPrefix(name, "pg_") || name == "information_schema" {
		return "", fmt.Errorf("postgres: Schema: %q is not a usable schema name: use at most 63 bytes without quotes, "+
			"backslash, braces, dollar, percent, control characters and the prefix pg_", name)
	}
	return name, nil
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// expand writes the schema into a statement. It is the only building of SQL in this package.
func expand(sql, schema string) string {
	h := fnv.New32a()
	h.Write([]byte(schema))
	return strings.NewReplacer("{schema}", quote(schema), "{tag}", fmt.Sprintf("%08x", h.Sum32())).Replace(sql)
}

const (
	migrateLockSQL = `SELECT pg_advisory_xact_lock(hashtextextended('daybook migrate {tag}', 0))`

	// The schema is looked up first: a role that may create tables in it need not have the right to create schemas.
	migrateSchemaSQL = `
DO $$ BEGIN
  IF to_regnamespace('{schema}') IS NULL THEN
    CREATE SCHEMA {schema};
  END IF;
END $$`

	migrateTableSQL = `
CREATE TABLE IF NOT EXISTS {schema}.migrations (
  version    int PRIMARY KEY,
  name       text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  serves     int NOT NULL DEFAULT 1
)`

	// A store that the first release has made lacks the column until its next step.
	migrateServesSQL = `ALTER TABLE {schema}.migrations ADD COLUMN IF NOT EXISTS serves int NOT NULL DEFAULT 1`

	migrateDoneSQL   = `SELECT EXISTS (SELECT FROM {schema}.migrations WHERE version = $1)`
	migrateRecordSQL = `INSERT INTO {schema}.migrations (version, name, serves) VALUES ($1, $2, $3)`

	migrationsExistSQL = `
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = $1 AND c.relname = 'migrations')`

	servesSQL = `SELECT max(serves) FROM {schema}.migrations WHERE version > $1`

	versionSQL = `SELECT coalesce(max(version), 0) FROM {schema}.migrations`
)
