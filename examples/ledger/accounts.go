package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/account"
)

func (p *program) openCommand() *cobra.Command {
	var terms account.Open
	command := &cobra.Command{
		Use:   "open ACCOUNT",
		Short: "Open an account",
		Long: `Open an account, so that entries may be posted to it.

The import opens accounts by itself unless it is strict; this command is for the
terms that an account shall have.`,
		Args: oneArgument("account", "ledger open ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withLedger(cmd.Context(), func(ctx context.Context, l *ledger) error {
				result, err := l.book.Open(ctx, args[0], terms)
				switch {
				case err != nil:
					return err
				case result.Written > 0:
					fmt.Fprintf(p.out, "opened %s\n", args[0])
				default:
					fmt.Fprintf(p.out, "%s is open already\n", args[0])
				}
				return nil
			})
		},
	}
	command.Flags().BoolVar(&terms.NeverBelowZero, "never-below-zero", false, "refuse every posting that would make a balance negative")
	return command
}

func (p *program) historyCommand() *cobra.Command {
	var at int64
	command := &cobra.Command{
		Use:   "history ACCOUNT",
		Short: "Print the events of an account and the state that they lead to",
		Args:  oneArgument("account", "ledger history ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at < 0 || cmd.Flags().Changed("at") && at == 0 {
				return fmt.Errorf("--at %d is not a version: the first event is version 1", at)
			}
			return p.withLedger(cmd.Context(), func(ctx context.Context, l *ledger) error {
				return p.history(ctx, l, args[0], eventstore.Version(at))
			})
		},
	}
	command.Flags().Int64Var(&at, "at", 0, "the state as it was after this `VERSION` (default: the last)")
	return command
}

func (p *program) history(ctx context.Context, l *ledger, name string, at eventstore.Version) error {
	var opts []aggregate.LoadOption
	if at > 0 {
		opts = append(opts, aggregate.AtVersion(at))
	}
	loaded, err := l.book.Account(ctx, name, opts...)
	switch {
	case err != nil:
		return err
	case !loaded.Exists():
		return fmt.Errorf("account %q was never opened: look for its name among the balances", name)
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for event, err := range l.book.History(ctx, name, loaded.Version) {
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%d\t%s\n", event.Version, describe(event.Payload))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "\nat version %d: open", loaded.Version)
	if loaded.State.NeverBelowZero {
		fmt.Fprint(p.out, ", never below zero")
	}
	fmt.Fprintln(p.out)
	for _, commodity := range slices.Sorted(maps.Keys(loaded.State.Holdings)) {
		fmt.Fprintf(p.out, "  %s %s\n", loaded.State.Holdings[commodity].Balance, commodity)
	}
	return nil
}

func describe(event account.Event) string {
	switch e := event.(type) {
	case account.Opened:
		return "opened" + terms(e.NeverBelowZero)
	case account.TermsChanged:
		return "changed" + terms(e.NeverBelowZero)
	case account.Posted:
		return fmt.Sprintf("posted\t%s\t%s\t%s %s\t%s", e.Date, short(e.Entry), e.Amount, e.Commodity, e.Description)
	}
	return fmt.Sprintf("%T", event)
}

func terms(neverBelowZero bool) string {
	if neverBelowZero {
		return ", never below zero"
	}
	return ""
}

// short is enough of a key to find its entry.
func short(key string) string { return key[:min(len(key), 12)] }
