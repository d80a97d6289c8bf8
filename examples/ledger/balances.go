package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/examples/ledger/reports"
)

func (p *program) balancesCommand() *cobra.Command {
	var before, output string
	command := &cobra.Command{
		Use:   "balances",
		Short: "Print the balance of every account and commodity",
		Long: `Print the balance of every account and commodity that is not zero.

With --before only entries dated before that day count.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			date, err := dateFlag("before", before)
			if err != nil {
				return err
			}
			write, ok := outputs[output]
			if !ok {
				return fmt.Errorf("--output %q is unknown: use table or csv", output)
			}
			return p.withReports(cmd.Context(), fromStream, func(ctx context.Context, l *ledger, _ *keeper) error {
				lines, err := l.balances(ctx, date)
				if err != nil {
					return err
				}
				return write(p.out, lines)
			})
		},
	}
	command.Flags().StringVar(&before, "before", "", "only entries dated before this `DATE`, YYYY-MM-DD")
	command.Flags().StringVarP(&output, "output", "o", "table", "`FORMAT`: table or csv")
	return command
}

// balances are those of everything that is in the log now, or, with a date, of what is dated before it.
func (l *ledger) balances(ctx context.Context, before journal.Date) ([]reports.Line, error) {
	if err := l.seeAll(ctx); err != nil {
		return nil, err
	}
	if before.IsZero() {
		return reports.Now(ctx, l.pool)
	}
	return reports.Before(ctx, l.pool, before)
}

// dateFlag reads a date; an empty text is no date.
func dateFlag(name, text string) (journal.Date, error) {
	if text == "" {
		return journal.Date{}, nil
	}
	date, err := journal.ParseDate(text)
	if err != nil {
		return date, fmt.Errorf("--%s %q is not a day of the calendar: write it YYYY-MM-DD, such as 2013-01-01", name, text)
	}
	return date, nil
}

var outputs = map[string]func(io.Writer, []reports.Line) error{"table": writeTable, "csv": writeCSV}

func writeTable(w io.Writer, lines []reports.Line) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	width := 0
	for _, line := range lines {
		width = max(width, len(line.Balance.String()))
	}
	for _, line := range lines {
		fmt.Fprintf(table, "%s\t%*s\t%s\n", line.Account, width, line.Balance, line.Commodity)
	}
	return table.Flush()
}

// writeCSV quotes every field, as hledger does.
func writeCSV(w io.Writer, lines []reports.Line) error {
	var text strings.Builder
	row := func(fields ...string) {
		for i, field := range fields {
			fields[i] = `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
		}
		text.WriteString(strings.Join(fields, ",") + "\n")
	}
	row("account", "commodity", "balance")
	for _, line := range lines {
		row(line.Account, line.Commodity, line.Balance.String())
	}
	_, err := io.WriteString(w, text.String())
	return err
}
