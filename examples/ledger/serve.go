package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/api"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/commands"
	later "github.com/daybook-go/daybook/outbox/commands"
)

// The bounds of the server. An answer may wait for 30 s, and then be written.
const (
	headerTime   = 5 * time.Second
	requestTime  = 15 * time.Second
	answerTime   = 50 * time.Second
	idleTime     = time.Minute
	headerBytes  = 32 << 10
	shutdownTime = 1200 * time.Millisecond
)

func (p *program) serveCommand() *cobra.Command {
	var listen string
	command := &cobra.Command{
		Use:   "serve",
		Short: "Post and read over HTTP",
		Long: `Post and read over HTTP, until it is interrupted or terminated.

This process appends and reads. The read models are kept by another one: run
"ledger work" beside it. A post is answered with the header Consistency-Token;
a read that sends it back waits until the balances show that entry. A post whose
answer was lost is sent again with the same Idempotency-Key.

  curl -i 127.0.0.1:8080/entries -H 'Idempotency-Key: lunch-31' -H 'Content-Type: application/json' -d '{
    "date": "2025-01-31", "description": "Lunch", "postings": [
      {"account": "expenses:food", "amount": "4.00", "commodity": "EUR"},
      {"account": "assets:cash", "amount": "-4.00", "commodity": "EUR"}]}'
  curl -i 127.0.0.1:8080/balances/assets:cash -H 'Consistency-Token: …'

The interface is described at /openapi.yaml. There is no authentication: whoever
reaches the address may post.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			listener, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen %q: %w: give an address and a free port, such as 127.0.0.1:8080", listen, err)
			}
			defer listener.Close() // the server has closed it, unless it never came to that
			return p.withLedger(cmd.Context(), func(ctx context.Context, l *ledger) error { return p.serve(ctx, l, listener) }, book.Cached(cacheBytes))
		},
	}
	command.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "the `ADDRESS` to listen on")
	return command
}

// The bounds of what is worked on at once, and of what waits for that.
const (
	queueLength = 64
	// cacheBytes is for the accounts that are in use.
	cacheBytes = 32 << 20
)

// api is the handler behind its gate, with the bus that carries out what is let in.
func (p *program) api(l *ledger, door eventstore.Observer) (*api.API, error) {
	bus := commands.NewBus(l.store, l.book, commands.Config{Logger: l.logger, TellIfRunning: true})
	gate, err := admission.New(admission.Config{
		// More than there are connections would only wait for one.
		Queue: queueLength, MinConcurrency: 2, MaxConcurrency: max(2, int(l.pool.Config().MaxConns)), Observer: door,
	})
	if err != nil {
		return nil, err
	}
	queue, err := later.NewQueue(l.pool, later.QueueConfig{Wake: l.store.Wake})
	if err != nil {
		return nil, err
	}
	return api.New(api.Config{
		Bus: bus, Book: l.book, Store: l.store, DB: l.pool, Gate: gate, Operations: queue, Logger: l.logger,
	})
}

func (p *program) serve(ctx context.Context, l *ledger, listener net.Listener) error {
	if address, ok := listener.Addr().(*net.TCPAddr); ok && !address.IP.IsLoopback() {
		fmt.Fprintln(p.notes, "ledger: other machines can reach this address, and there is no authentication")
	}
	l.level.Set(slog.LevelInfo) // also what is well again
	door := newDoor(l.logger, p.observer)
	defer door.close()
	handler, err := p.api(l, door)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: headerBytes,
		ErrorLog:       slog.NewLogLogger(l.logger.Handler(), slog.LevelWarn),
	}
	server.RegisterOnShutdown(handler.Close)
	g, ctx := errgroup.WithContext(ctx)
	server.BaseContext = func(net.Listener) context.Context { return ctx } // who waits for read models waits no longer than this
	g.Go(func() error { return l.store.Run(ctx) })
	g.Go(func() error {
		fmt.Fprintf(p.out, "serving http://%s\n", listener.Addr())
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if err := server.Shutdown(ending); err != nil {
			_ = server.Close() // whoever is still being answered has had his time
		}
		return nil
	})
	return g.Wait()
}
