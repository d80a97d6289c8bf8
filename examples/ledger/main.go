// Ledger keeps double-entry accounts in an event store. It imports what "hledger print -O csv" prints, one entry after
// the other, while read models follow the log beside it.
//
//	go run ./examples/ledger import examples/ledger/testdata/journal.csv
//	go run ./examples/ledger balances --before 2025-03-01
//	go run ./examples/ledger history assets:cash
//
// The read models follow what is published: a relay sends every event that was committed to a Watermill channel, and the
// projections take it from there. As two processes, one that serves and one that works:
//
//	go run ./examples/ledger work
//	go run ./examples/ledger serve --listen 127.0.0.1:8080
//
// It is made of small packages, each to be read by itself:
//
//	journal    reads the file, knows the rules of an entry and gives it its key
//	account    the aggregate of an account: what may be posted to it
//	entry      the aggregate of an entry: that it is recorded once and reversed once
//	book       the decisions over several aggregates: an entry with all its postings, or nothing
//	commands   the commands as values, and the bus that carries each out once
//	reports    the read models: balances, movements per day, entries
//	api        commands and reads over HTTP
//
// This package is the command line around them.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

func main() {
	p := program{out: os.Stdout, notes: os.Stderr, now: time.Now}
	os.Exit(p.run(context.Background(), os.Args[1:]))
}

// program is one call of the command line.
type program struct {
	out   io.Writer // results
	notes io.Writer // progress, notes and errors
	now   func() time.Time

	// Tests choose its database, watch and stop it through these. The zero values are what the program runs with.
	database string // URL
	pool     func(*pgxpool.Config)
	store    postgres.Config
	observer eventstore.Observer // of relay and projections
	broker   func(broker) broker
}

// oneArgument says what is missing in words of the command, where cobra would count.
func oneArgument(what, use string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("name the %s: %s", what, use)
		case 1:
			return nil
		default:
			return fmt.Errorf("name one %s, not %d: %s; quote a name that has spaces", what, len(args), use)
		}
	}
}

// run returns the exit code: 0, or 1 with the error in the notes.
func (p *program) run(ctx context.Context, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:   "ledger",
		Short: "Double-entry accounts in an event store",
		Long: `Double-entry accounts in an event store.

State lives in the PostgreSQL database that DAYBOOK_DATABASE_URL names, else in
that of a server which is started for you and kept.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(p.importCommand(), p.balancesCommand(), p.reverseCommand(), p.historyCommand(), p.openCommand(),
		p.serveCommand(), p.workCommand())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(p.notes)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(p.notes, "ledger:", err)
		return 1
	}
	return 0
}
