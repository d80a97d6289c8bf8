package postgrestest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

const (
	// setupPatience bounds everything before the test's own code: finding or
	// starting a server, waiting for another process that makes the template.
	setupPatience = 5 * time.Minute
	// cleanupPatience bounds the end of one database.
	cleanupPatience = time.Minute
	// releasePatience is how long connections may stay out after the test.
	releasePatience = 10 * time.Second

	defaultMaxConns = 16
)

// Option changes what New and Empty give.
type Option func(*config)

type config struct {
	migrate  postgres.MigrateConfig
	maxConns int32
	change   func(*pgxpool.Config)
}

// WithMigrate installs the store with this configuration, e.g. in another schema.
// Default: the zero value. Empty ignores it.
func WithMigrate(m postgres.MigrateConfig) Option { return func(c *config) { c.migrate = m } }

// WithMaxConns limits the pool. Default: 16. An own server takes 300 in all.
func WithMaxConns(n int) Option { return func(c *config) { c.maxConns = int32(n) } }

// WithPoolConfig changes the configuration of the pool before it is made, last
// of all options.
func WithPoolConfig(change func(*pgxpool.Config)) Option {
	return func(c *config) { c.change = change }
}

// New gives a pool on a fresh database with all migrations applied. Both end
// with the test. It ends the test when there is no server.
func New(t testing.TB, opts ...Option) *pgxpool.Pool {
	t.Helper()
	return theServer.open(t, true, opts)
}

// Empty gives a pool on a fresh database without migrations, for tests of
// migrations. Both end with the test. It ends the test when there is no server.
func Empty(t testing.TB, opts ...Option) *pgxpool.Pool {
	t.Helper()
	return theServer.open(t, false, opts)
}

// URL is the connection URL of a pool's database, password included, for tests
// that start programs or make pools of their own. They must end before the test
// does.
func URL(pool *pgxpool.Pool) string { return pool.Config().ConnString() }

func (s *server) open(t testing.TB, migrated bool, opts []Option) *pgxpool.Pool {
	t.Helper()
	cfg := config{maxConns: defaultMaxConns}
	for _, o := range opts {
		o(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), setupPatience)
	defer cancel()
	admin, line, err := s.url(ctx)
	if err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	if line != "" {
		t.Log(line) // once per process
	}
	db, err := createDatabase(ctx, admin, migrated, cfg.migrate)
	if err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	pool, err := db.connect(ctx, cfg)
	if err == nil && migrated {
		// A store takes a copy for what it is, another history, and refuses it.
		_, err = postgres.SetEpoch(ctx, pool, cfg.migrate.Schema, postgres.EpochNew)
	}
	t.Cleanup(func() {
		if pool != nil && !closeWithin(pool, releasePatience) {
			t.Errorf("postgrestest: %d connections of the pool were not released within %s after the test", pool.Stat().AcquiredConns(), releasePatience)
		}
		// The context of the test has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), cleanupPatience)
		defer cancel()
		if err := db.drop(ctx); err != nil {
			t.Errorf("postgrestest: drop database %s: %v", db.name, err)
		}
	})
	if err != nil {
		t.Fatalf("postgrestest: open database %s: %v", db.name, err)
	}
	return pool
}

// closeWithin closes a pool. Close waits for connections in use; a test that
// forgot one must not hang.
func closeWithin(pool *pgxpool.Pool, patience time.Duration) bool {
	done := make(chan struct{})
	go func() {
		pool.Close()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}
