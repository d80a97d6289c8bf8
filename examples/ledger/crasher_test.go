package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// For the program that this test binary is: where it kills itself, as "point:nth", or where it asks for a crash of the
// server instead, by making a file, and waits until that is gone.
const (
	crashPoint  = "LEDGER_TEST_CRASH"
	crashServer = "LEDGER_TEST_CRASH_SERVER"
)

func armedAt(point string, nth int) string { return fmt.Sprintf("%s=%s:%d", crashPoint, point, nth) }

// The places where a crash would hurt most.
const (
	atMigration      = "migration begun"          // nothing or a part of the schema is there
	atInstall        = "read models half made"    // tables are made and not committed
	atLease          = "lease taken"              // the read models have an owner that is dead
	atWritten        = "append written"           // the events are in a transaction that is not committed
	atStored         = "append stored"            // committed, and the program has not noted it
	atPublished      = "page published"           // the channel has it, and the relay's cursor has not moved
	atCursorSent     = "cursor about to be moved" // the same, one step later
	atCursorMoved    = "cursor moved"             // and the relay has not noted it
	atBatchSent      = "batch about to be sent"   // folded, and nothing of it in the database
	atBatchAnswered  = "batch answered in part"   // the outcome of the commit is not known
	atBatchCommitted = "batch committed"          // applied, and the runner has not noted it
	atReport         = "report about to be given" // everything is done, and nobody was told
)

// crashAt arms the program.
func (p *program) crashAt(text string) {
	point, nth, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(nth)
	if err != nil {
		return
	}
	c := &crasher{point: point, ask: os.Getenv(crashServer)}
	c.left.Store(int64(n))
	p.pool = func(config *pgxpool.Config) { config.ConnConfig.Tracer = c }
	p.store = postgres.Config{Observer: c}
	if point == atWritten { // hooks change the way an append is made, so only where one is needed
		p.store.Hooks = []postgres.Hook{func(context.Context, pgx.Tx, []eventstore.RecordedEvent) error {
			c.reached(atWritten)
			return nil
		}}
	}
	p.observer = c
	p.out = c
}

// crasher ends the process, as kill -9 does, when it comes to a place for the nth time.
type crasher struct {
	eventstore.NopObserver
	point string
	left  atomic.Int64
	ask   string // the file that asks for a crash of the server; empty: the process ends
}

func (c *crasher) reached(point string) {
	if point != c.point || c.left.Add(-1) != 0 {
		return
	}
	if c.ask == "" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
	if err := os.WriteFile(c.ask, nil, 0o600); err != nil {
		panic(err)
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(c.ask); err != nil {
			return
		}
		<-look.C
	}
}

func (c *crasher) ObserveAppend(eventstore.AppendObservation) { c.reached(atStored) }

func (c *crasher) ObserveBatch(o eventstore.BatchObservation) {
	if o.Events > 0 {
		c.reached(atBatchCommitted)
	}
}

func (c *crasher) ObservePublish(o eventstore.PublishObservation) {
	if o.Messages > 0 {
		c.reached(atPublished)
	}
}

func (c *crasher) Write(text []byte) (int, error) {
	c.reached(atReport)
	return os.Stdout.Write(text)
}

type statement struct{}

func (c *crasher) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(data.SQL, "CREATE OR REPLACE VIEW"):
		c.reached(atInstall)
	case strings.Contains(data.SQL, "CREATE TABLE"), strings.Contains(data.SQL, "CREATE SCHEMA"):
		c.reached(atMigration)
	}
	return context.WithValue(ctx, statement{}, data.SQL)
}

func (c *crasher) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statement{}).(string); strings.Contains(sql, ".segments AS s\n     SET owner") {
		c.reached(atLease)
	}
}

// The batch of a read model writes rows of it, that of the relay the last messages sent.
func (c *crasher) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	point, commits := "", false
	for _, q := range data.Batch.QueuedQueries {
		switch {
		case strings.Contains(q.SQL, "commit_batch"):
			commits = true
		case strings.Contains(q.SQL, "outbox_tails"):
			point = atCursorSent
		case strings.Contains(q.SQL, "readmodels"):
			point = atBatchSent
		}
	}
	if commits {
		c.reached(point)
	}
	return context.WithValue(ctx, statement{}, point)
}

func (c *crasher) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "readmodels") && strings.Contains(data.SQL, "INSERT") {
		c.reached(atBatchAnswered)
	}
}

func (c *crasher) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if point, _ := ctx.Value(statement{}).(string); point == atCursorSent {
		c.reached(atCursorMoved)
	}
}
