// Command account is the smallest account there is: the program of the README.
//
//	go run ./examples/account
//
// It uses the database that DAYBOOK_DATABASE_URL names, else the server that is kept on this machine, and a fresh
// account at every run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/projection"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "account:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context) error {
	url, release, err := pgserver.ForRun(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer release()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return run(ctx, pool, uuid.NewString(), os.Stdout)
}

func run(ctx context.Context, pool *pgxpool.Pool, ada string, out io.Writer) error {
	store, err := open(ctx, pool)
	if err != nil {
		return err
	}
	defer store.Close()

	// region readme-run
	accounts := aggregate.NewRepository(store, Type)
	var tokens []eventstore.Token
	for _, decide := range []func(Account) ([]Event, error){Deposit(100), Withdraw(30), Withdraw(500), Withdraw(15)} {
		result, err := accounts.Handle(ctx, ada, decide) // loads, decides, appends at the version it saw
		switch {
		case errors.Is(err, ErrRejected):
			fmt.Fprintln(out, err) // nothing was written
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "#%d, balance %d\n", result.Version, result.State.Balance)
			tokens = append(tokens, result.Token)
		}
	}
	for _, n := range []int{1, 3} {
		// The read model lags: here it is shown as it is once #n has reached it.
		if err := catchUp(ctx, pool, store, tokens[n-1], Balances); err != nil {
			return err
		}
		read, err := Balances.Get(ctx, pool, ada, projection.AtLeast(tokens[n-1])) // waits for the token
		written, loadErr := accounts.Load(ctx, ada)
		if err := errors.Join(err, loadErr); err != nil {
			return err
		}
		fmt.Fprintf(out, "read model at #%d: %d, write side: %d\n", n, read, written.State.Balance)
	}
	// endregion

	// A new read model, added afterwards, replays the log.
	if err := catchUp(ctx, pool, store, tokens[2], Withdrawals); err != nil {
		return err
	}
	var lines []string
	for row, err := range Withdrawals.All(ctx, pool) {
		if err != nil {
			return err
		}
		if row.Key.Account == ada {
			lines = append(lines, fmt.Sprintf("#%d %d", row.Key.Version, row.State))
		}
	}
	fmt.Fprintln(out, "withdrawals", strings.Join(lines, ", "))

	account, err := accounts.Load(ctx, ada)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "state {balance %d, version %d}\n", account.State.Balance, account.Version)
	return nil
}

func open(ctx context.Context, pool *pgxpool.Pool) (*postgres.Store, error) {
	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}); err != nil {
		return nil, err
	}
	return postgres.New(ctx, pool, postgres.Config{})
}

// catchUp applies the log up to a token. A service lets a projection.Runner run all the time instead.
func catchUp(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, to eventstore.Token, view projection.Definition) error {
	if err := projection.Install(ctx, pool, view); err != nil {
		return err
	}
	runner, err := projection.NewRunner(pool, store.Log(), projection.Config{}, view)
	if err != nil {
		return err
	}
	return runner.CatchUp(ctx, to)
}
