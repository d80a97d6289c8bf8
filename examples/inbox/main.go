// Inbox is two services that share a broker and nothing else: a ledger, which publishes what is posted to its accounts, and
// a notifier, which has no access to the ledger's store and notes the large postings in a database of its own.
//
//	go run ./examples/inbox
//
// The ledger's database is the one that DAYBOOK_DATABASE_URL names, else that of a server which is kept on this machine.
// The notifier's is the one that NOTIFIER_DATABASE_URL names; without it, it is the same one, and the notifier has a schema
// of its own there.
//
//	notifier.go  the service that follows: what to copy
//	ledger.go    the one that publishes
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/internal/pgserver"
)

// topic is what the ledger publishes for others.
const topic = "ledger.postings"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "inbox:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context) error {
	url, release, err := pgserver.ForRun(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer release()
	books, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer books.Close()
	notices, err := pgxpool.New(ctx, cmp.Or(os.Getenv("NOTIFIER_DATABASE_URL"), url))
	if err != nil {
		return err
	}
	defer notices.Close()
	return run(ctx, books, notices, os.Stdout)
}

// run posts some entries, and ends when the notifier has seen the last of them.
func run(ctx context.Context, books, notices *pgxpool.Pool, out io.Writer) error {
	// Any broker that Watermill has would do; this one lives as long as the program.
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	defer func() { _ = broker.Close() }() // it has no error to give

	l, err := openLedger(ctx, books, broker)
	if err != nil {
		return err
	}
	defer l.store.Close()
	n, err := newNotifier(ctx, notices, broker)
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.inbox.Run(ctx) })
	g.Go(func() error {
		defer stop()
		if err := n.ready(ctx); err != nil { // a channel keeps nothing for who comes later, as other brokers do
			return err
		}
		before, err := n.seen(ctx)
		if err != nil {
			return err
		}
		g.Go(func() error { return l.relay.Run(ctx) })
		run := uuid.NewString() // entries of this run
		for i, e := range entries {
			if err := l.post(ctx, fmt.Sprint(run, "-", i), e); err != nil {
				return err
			}
		}
		return n.print(ctx, run, before+2*len(entries), out)
	})
	return g.Wait()
}

// entries are from, to, amount and what for.
var entries = []move{
	{"equity:opening", "assets:bank", "2500", "opening balance"},
	{"assets:bank", "expenses:rent", "950.00", "rent"},
	{"assets:bank", "expenses:food", "31.40", "groceries"},
	{"assets:bank", "assets:savings", "1200", "put aside"},
	{"assets:bank", "expenses:food", "8.60", "lunch"},
}

type move struct{ from, to, amount, what string }

// today is the day of all entries.
var today = journal.Date{Year: 2026, Month: time.January, Day: 5}
