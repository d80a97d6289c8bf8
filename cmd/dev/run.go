package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/internal/pgserver"
)

const journal = "examples/ledger/testdata/journal.csv"

func (d *dev) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Import the example ledger and print its balances",
		Long: `Import the example ledger and print its balances.

Each entry is stored, published by a relay on a Watermill channel, and taken
from there by the read models; how long that takes is printed too.

The database is the one that DAYBOOK_DATABASE_URL names, else that of a server
that is kept: it stays when the command ends, and the next command uses it
again. "dev stop" stops it; its data stays.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.onServer(cmd.Context(), "go", "run", "./examples/ledger", "import", journal) // which ends with the balances
		},
	}
}

func (d *dev) checkoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "checkout [-orders N] [-seed N] [-chaos] [-v] [FILE]",
		Short: "Let sagas bring orders to their ends, and add everything up",
		Long: `Place orders, made up or those of a file, let a saga bring each to its end, and
print how they ended and that every item and every cent is where it should be.
With -chaos the workers are killed at random meanwhile.

The arguments are those of examples/checkout. The database is that of "dev run".`,
		DisableFlagParsing: true, // the program has its own
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.onServer(cmd.Context(), append([]string{"go", "run", "./examples/checkout"}, absolute(args)...)...)
		},
	}
}

// absolute makes the names of files mean the same in any folder.
func absolute(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if _, err := os.Stat(a); err != nil {
			continue
		}
		if path, err := filepath.Abs(a); err == nil {
			args[i] = path
		}
	}
	return args
}

// onServer runs an example on the server that is kept, and says which that is.
func (d *dev) onServer(ctx context.Context, argv ...string) error {
	sources := append(pgserver.RunSources(),
		pgserver.SystemPackages(d.out, pgserver.Kept(pgserver.KeptOptions{})))
	found, err := pgserver.Find(ctx, sources...)
	if err != nil {
		return err
	}
	defer found.Close()
	fmt.Fprintln(d.out, found)
	env := []string{pgserver.RunVariable + "=" + found.URL(), pgserver.AnnouncedVariable + "=1"}
	return d.command(ctx, ".", env, argv...)
}

func (d *dev) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the server that run keeps; its data stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ran, err := pgserver.StopKept(cmd.Context(), "")
			switch {
			case err != nil:
				return err
			case ran:
				fmt.Fprintln(d.out, "stopped; the data stays")
			default:
				fmt.Fprintln(d.out, "no kept server runs")
			}
			return nil
		},
	}
}

func (d *dev) urlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "url",
		Short: "Print the URL of the database that run uses, password included, for psql: psql $(go run ./cmd/dev url)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, release, err := pgserver.ForRun(cmd.Context(), d.errOut)
			if err != nil {
				return err
			}
			defer release()
			fmt.Fprintln(d.out, url)
			return nil
		},
	}
}

func (d *dev) figuresCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "figures [GROUP]",
		Short: "Measure, and compare with the bounds; GROUP limits it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.command(cmd.Context(), "bench", nil, append([]string{"go", "run", "."}, args...)...)
		},
	}
}
