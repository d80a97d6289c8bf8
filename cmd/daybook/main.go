// Command daybook installs and inspects the store in a PostgreSQL database.
//
// The database is the one that --database or DAYBOOK_DATABASE_URL names, else the server that `go run ./cmd/dev run`
// keeps on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(os.Stdout, os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "daybook:", err)
		os.Exit(1)
	}
}

// settings are what every command needs to reach the database.
type settings struct {
	url, schema string
	out, errOut io.Writer
}

func command(out, errOut io.Writer) *cobra.Command {
	s := &settings{out: out, errOut: errOut}
	root := &cobra.Command{
		Use:           "daybook",
		Short:         "Install and inspect a Daybook store",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(out)
	root.SetErr(errOut)
	root.PersistentFlags().StringVar(&s.url, "database", "", "connection URL (default $DAYBOOK_DATABASE_URL, else this machine's kept server)")
	root.PersistentFlags().StringVar(&s.schema, "schema", "daybook", "PostgreSQL schema of the store")
	root.AddCommand(migrateCommand(s), grantsCommand(s), statusCommand(s), epochCommand(s), checkCommand(s))
	return root
}

// connect opens a pool; release gives everything back.
func (s *settings) connect(ctx context.Context) (pool *pgxpool.Pool, release func(), err error) {
	url, stop := s.url, func() {}
	if url == "" {
		if url, stop, err = pgserver.ForRun(ctx, s.errOut); err != nil {
			return nil, nil, err
		}
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		stop()
		return nil, nil, errors.New("the database URL cannot be read; it looks like postgres://user:password@host:5432/name") // the cause may quote the password
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "daybook"
	}
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		stop()
		return nil, nil, err
	}
	return pool, func() { pool.Close(); stop() }, nil
}

// withStore runs f with an open store.
func (s *settings) withStore(ctx context.Context, f func(*postgres.Store) error) error {
	pool, release, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	store, err := postgres.New(ctx, pool, postgres.Config{Schema: s.schema, MaxConns: 2})
	if err != nil {
		return err
	}
	defer store.Close()
	return f(store)
}
