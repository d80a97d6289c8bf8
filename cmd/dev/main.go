// Command dev runs, tests and checks Daybook. `make help` lists the same things
// as make targets.
//
//	go run ./cmd/dev run               import the example ledger and print its balances
//	go run ./cmd/dev checkout [ARGS]   let sagas bring orders to their ends, and add everything up
//	go run ./cmd/dev test [-- ARGS]    all tests, ARGS go to go test
//	go run ./cmd/dev integration       the tests with real message brokers
//	go run ./cmd/dev stop              stop the server that run keeps
//	go run ./cmd/dev url               print its URL, for psql
//	go run ./cmd/dev lint              gofmt, vet, staticcheck, tidy check
//	go run ./cmd/dev fuzz              every fuzz target for a while
//	go run ./cmd/dev figures [GROUP]   measure, and compare with the bounds
//
// run and test look for a PostgreSQL server and print which one they took; see
// the package internal/pgserver for the order. The exit code is that of the
// command that was run, 130 after Ctrl-C; go run itself ends with 1 whenever that
// is not 0, and prints it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// exitError carries the exit code of a command that has already said what is
// wrong.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	d := &dev{out: out, errOut: errOut}
	root := &cobra.Command{
		Use:           "dev",
		Short:         "Run, test and check Daybook",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			d.root, err = moduleRoot(cmd.Context())
			return err
		},
	}
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	root.AddCommand(d.runCommand(), d.checkoutCommand(), d.testCommand(), d.integrationCommand(), d.stopCommand(), d.urlCommand(), d.lintCommand(), d.fuzzCommand(), d.figuresCommand())

	err := root.ExecuteContext(ctx)
	var exit *exitError
	switch {
	case ctx.Err() != nil:
		return 130
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	default:
		fmt.Fprintln(errOut, err)
		return 1
	}
}

// dev is what the commands share.
type dev struct {
	root        string // folder of the main module
	out, errOut io.Writer
}
