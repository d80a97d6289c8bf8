package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/commands"
	later "github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

func (p *program) workCommand() *cobra.Command {
	from := fromStream
	command := &cobra.Command{
		Use:   "work",
		Short: "Publish what is appended, keep the read models up to date, and carry out commands",
		Long: `Publish what is appended, keep the read models up to date, and carry out the
commands of callers who do not wait, until it is interrupted or terminated.

It is the other process beside "ledger serve". More than one may run: each part
is done by one of them, and the others take over when it dies. It prints a line
when every part is in its place; what changes afterwards is in its log.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := from.check(); err != nil {
				return err
			}
			return p.withLedger(cmd.Context(), func(ctx context.Context, l *ledger) error { return p.work(ctx, l, from) }, book.Cached(cacheBytes))
		},
	}
	sourceFlag(command, &from)
	return command
}

// sourceFlag lets a command choose where its read models learn of what was appended.
func sourceFlag(command *cobra.Command, from *source) {
	command.Flags().StringVar((*string)(from), "source", string(fromStream),
		"the `SOURCE` of the read models: stream (what is published), or log (what is stored; then nothing is published)")
}

func (p *program) work(ctx context.Context, l *ledger, from source) error {
	k, err := p.keeper(l, from)
	if err != nil {
		return err
	}
	defer k.close()
	dispatcher, err := p.dispatcher(l)
	if err != nil {
		return err
	}
	letters, err := deadletter.New(l.pool, deadletter.Config{Logger: l.logger})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.run(ctx) })
	g.Go(func() error { return letters.Run(ctx) })
	g.Go(func() error { return dispatcher.Run(ctx) })
	g.Go(func() error {
		p.watch(ctx, l, func(ctx context.Context) []eventstore.Health { return append(k.health(ctx), dispatcher.Health(ctx)) })
		return nil
	})
	return g.Wait()
}

// dispatcher carries out the commands that were sent to be carried out later. It reads them from the outbox itself: the
// relay's channel may be in another process.
func (p *program) dispatcher(l *ledger) (*later.Dispatcher, error) {
	bus := commands.NewBus(l.store, l.book, commands.Config{Logger: l.logger})
	return later.NewDispatcher(l.pool, later.Local(l.store.Outbox()), bus, later.Config{Lease: lease, Logger: l.logger, Observer: p.observer})
}

// lookEvery is how often is looked whether every part is in its place.
const lookEvery = 100 * time.Millisecond

// watch prints a line when every part is in its place. From then on the parts log each change of their states, with its
// reason; how they start would say the same as that line.
func (p *program) watch(ctx context.Context, l *ledger, health func(context.Context) []eventstore.Health) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	began := p.now()
	parts := health(ctx)
	for !inPlace(parts, p.now().Sub(began)) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		parts = health(ctx)
	}
	l.level.Set(slog.LevelInfo)
	texts := make([]string, len(parts))
	for i, h := range parts {
		texts[i] = h.Component + " " + h.State
	}
	fmt.Fprintf(p.out, "working: %s\n", strings.Join(texts, ", "))
}

// inPlace reports whether there is nothing more to wait for: whoever stands by after the longest lease does so for a
// process that lives.
func inPlace(parts []eventstore.Health, after time.Duration) bool {
	return after >= lease+lease/2 || !slices.ContainsFunc(parts, func(h eventstore.Health) bool { return h.State != "running" })
}
