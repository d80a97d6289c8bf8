// Command daybook installs and inspects the store in a PostgreSQL database.
//
// The database is the one that --database or DAYBOOK_DATABASE_URL names, else the development server that
// `go run ./cmd/dev run` keeps on this machine. What cannot be undone (epoch keep, epoch new) and what changes dead letters
// or sagas never falls back to that.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &settings{in: os.Stdin, out: os.Stdout, errOut: os.Stderr, terminal: onTerminal, find: pgserver.ForRun}
	if err := command(s).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "daybook:", err)
		os.Exit(exitCode(err))
	}
}

// settings are what every command needs to reach the database.
type settings struct {
	url, schema string
	in          io.Reader
	out, errOut io.Writer
	// terminal reports whether somebody at in can be asked; nil for nobody.
	terminal func() bool
	// every is how often a plan that is followed is looked at. Default 1 s.
	every time.Duration
	// find finds the database that no flag names: pgserver.ForRun.
	find func(ctx context.Context, out io.Writer) (url string, release func(), err error)
}

func command(s *settings) *cobra.Command {
	root := &cobra.Command{
		Use:           "daybook",
		Short:         "Install and inspect a Daybook store",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("database") && s.url == "" { // as from a variable that is not set
				return errors.New("--database is empty: give a URL, or leave the flag out for the development server")
			}
			return nil
		},
	}
	root.SetOut(s.out)
	root.SetErr(s.errOut)
	root.PersistentFlags().StringVar(&s.url, "database", "", "connection URL (default $DAYBOOK_DATABASE_URL, else this machine's kept development server)")
	root.PersistentFlags().StringVar(&s.schema, "schema", "daybook", "PostgreSQL schema of the store")
	root.AddCommand(migrateCommand(s), grantsCommand(s), statusCommand(s), epochCommand(s), checkCommand(s), deadletterCommand(s), sagaCommand(s))
	return root
}

// named reports whether somebody said which database is meant.
func (s *settings) named() bool { return s.url != "" || os.Getenv(pgserver.RunVariable) != "" }

// where names the database of pool for people, without user and password.
func (s *settings) where(pool *pgxpool.Pool) string {
	cfg := pool.Config().ConnConfig
	text := net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))) + "/" + cfg.Database
	if !s.named() {
		text += " (this machine's kept development server)"
	}
	return text
}

// connect opens a pool; release gives everything back.
func (s *settings) connect(ctx context.Context) (pool *pgxpool.Pool, release func(), err error) {
	url, stop := s.url, func() {}
	if url == "" {
		if url, stop, err = s.find(ctx, s.errOut); err != nil {
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
	return s.withPool(ctx, func(_ *pgxpool.Pool, store *postgres.Store) error { return f(store) })
}

// withPool runs f with an open store and its pool.
func (s *settings) withPool(ctx context.Context, f func(*pgxpool.Pool, *postgres.Store) error) error {
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
	return f(pool, store)
}
