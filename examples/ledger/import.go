package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

func (p *program) importCommand() *cobra.Command {
	var strict bool
	from := fromStream
	command := &cobra.Command{
		Use:   "import FILE",
		Short: "Import a journal",
		Long: `Import a journal as "hledger print -O csv" prints it.

Entries are posted in the order of the file, each whole or not at all. The first
one that cannot be read or breaks a rule ends the import; what was posted before
it stays. Importing a file again posts only what is new in it.

What is posted is published, and the read models follow that; with --source log
they follow what is stored, and nothing is published meanwhile.`,
		Args: oneArgument("journal", "ledger import FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := from.check(); err != nil {
				return err
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close() // it was only read
			lag := newLagMeter(p.now)
			p.observer = lag.watching(p.observer)
			return p.withReports(cmd.Context(), from, func(ctx context.Context, l *ledger, k *keeper) error {
				k.begun(ctx)
				i := &importing{ledger: l, keeper: k, lag: lag, progress: newProgress(p.notes, file), began: p.now()}
				if !strict {
					i.options = append(i.options, book.OpeningAccounts())
				}
				if err := i.post(ctx, file); err != nil {
					return i.explain(err)
				}
				return i.report(ctx, p)
			})
		},
	}
	command.Flags().BoolVar(&strict, "strict", false, "refuse entries to accounts that are not open, instead of opening them")
	sourceFlag(command, &from)
	return command
}

// importing is one run of an import.
type importing struct {
	ledger   *ledger
	keeper   *keeper
	lag      *lagMeter
	progress progress
	options  []book.PostOption
	began    time.Time

	posted, known int              // entries
	token         eventstore.Token // of everything that was posted
}

// post posts the entries of a file until the first that cannot be.
func (i *importing) post(ctx context.Context, file *os.File) error {
	defer i.progress.done()
	keys := journal.NewKeyer()
	for entry, err := range journal.Read(io.TeeReader(file, i.progress), file.Name()) {
		if err != nil {
			return err
		}
		posted, err := i.ledger.book.Post(ctx, keys.Key(entry), entry, i.options...)
		if err != nil {
			return err
		}
		if posted.Already {
			i.known++
			continue
		}
		i.posted++
		i.lag.wrote(posted.Token)
		if i.token, err = i.token.Merge(posted.Token); err != nil {
			return err
		}
	}
	return nil
}

// explain adds to an error what became of the file.
func (i *importing) explain(err error) error {
	fate := "whether that entry was stored is not certain; run the same command again"
	if refused(err) {
		fate = "nothing of that entry was stored; correct the file and import it again"
	}
	return fmt.Errorf("%w\nthe %d entries before it are in the ledger (%d new, %d already imported); %s: it goes on there",
		err, i.posted+i.known, i.posted, i.known, fate)
}

// refused reports whether the file is to blame.
func refused(err error) bool {
	var rejected *book.RejectedError
	return errors.Is(err, journal.ErrSyntax) || errors.As(err, &rejected)
}

// report waits for the read models, and says what was done.
func (i *importing) report(ctx context.Context, p *program) error {
	ended := p.now()
	unseen := func(err error) error {
		return fmt.Errorf("%w\nall %d entries are in the ledger; to see that the reports have them, run the same command again", err, i.posted+i.known)
	}
	if err := i.ledger.see(ctx, i.token); err != nil {
		return unseen(err)
	}
	caughtUp := p.now()
	if i.keeper.relay != nil {
		if err := i.keeper.published(ctx, i.token); err != nil {
			return unseen(err)
		}
	}
	published := p.now()
	if i.posted > 0 {
		fmt.Fprintf(p.out, "imported: %d new, %d already imported\n", i.posted, i.known)
	} else {
		fmt.Fprintln(p.out, "already imported: 0 new")
	}
	took := ended.Sub(i.began)
	if i.posted == 0 {
		fmt.Fprintf(p.out, "took %s\n", took.Round(time.Millisecond))
	} else {
		fmt.Fprintf(p.out, "took %s, %.0f entries/s\n", took.Round(time.Millisecond), float64(i.posted+i.known)/took.Seconds())
		if i.keeper.relay != nil {
			fmt.Fprintf(p.out, "from commit to published: %s\n", i.lag.published(published))
		}
		fmt.Fprintf(p.out, "from commit to shown by the read models: %s; up to date %s after the last entry\n",
			i.lag.shown(caughtUp), caughtUp.Sub(ended).Round(100*time.Microsecond))
	}
	fmt.Fprintln(p.out)
	lines, err := i.ledger.balances(ctx, journal.Date{})
	if err != nil {
		return err
	}
	return writeTable(p.out, lines)
}
