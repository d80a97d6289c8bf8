package main

import (
	"context"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/examples/ledger/reports"
)

func (p *program) reverseCommand() *cobra.Command {
	var on string
	command := &cobra.Command{
		Use:   "reverse ENTRY",
		Short: "Take an entry back by a new entry with opposite postings",
		Long: `Take an entry back by a new entry with opposite postings.

ENTRY is the key of the entry or its beginning, as the history of an account
shows it. An entry can be reversed once; a reversal is an entry like any other.`,
		Args: oneArgument("entry", "ledger reverse ENTRY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !keyForm.MatchString(args[0]) {
				return fmt.Errorf("%q is not the beginning of a key: give 4 to 64 of its digits, 0-9 and a-f", args[0])
			}
			date, err := dateFlag("date", on)
			if err != nil {
				return err
			}
			if date.IsZero() {
				year, month, day := p.now().Date()
				date = journal.Date{Year: year, Month: month, Day: day}
			}
			return p.withReports(cmd.Context(), fromStream, func(ctx context.Context, l *ledger, _ *keeper) error {
				return p.reverse(ctx, l, args[0], date)
			})
		},
	}
	command.Flags().StringVar(&on, "date", "", "the `DATE` of the new entry, YYYY-MM-DD (default: today)")
	return command
}

var keyForm = regexp.MustCompile(`^[0-9a-f]{4,64}$`)

func (p *program) reverse(ctx context.Context, l *ledger, beginning string, date journal.Date) error {
	if err := l.seeAll(ctx); err != nil {
		return err
	}
	key, err := reports.FindEntry(ctx, l.pool, beginning)
	if err != nil {
		return err
	}
	reversal, err := l.book.Reverse(ctx, key, date)
	if err != nil {
		return err
	}
	// The next command shall see it, whichever program keeps the read models.
	if err := l.see(ctx, reversal.Token); err != nil {
		return err
	}
	summary, err := reports.Entries.Get(ctx, l.pool, reversal.Key)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%s  %s  %s, %d postings\nreverses %s\n", reversal.Key, summary.Date, summary.Description, summary.Postings, key)
	return nil
}
