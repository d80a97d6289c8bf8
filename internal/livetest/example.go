package livetest

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// Example runs a testable example with a store on a PostgreSQL database of its own, and prints the error if there is one.
func Example(f func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t := &exampleTB{ctx: ctx}
	ended := make(chan struct{})
	go func() { // which Fatalf ends
		defer close(ended)
		defer t.end()
		if err := example(t, f); err != nil {
			fmt.Println(err)
		}
	}()
	<-ended
}

func example(t *exampleTB, f func(context.Context, *pgxpool.Pool, *postgres.Store) error) error {
	pool := postgrestest.New(t)
	store, err := postgres.New(t.ctx, pool, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	return f(t.ctx, pool, store)
}

// exampleTB is as much of a test as postgrestest asks for, which an example has not. What would fail a test is printed, which
// fails an example.
type exampleTB struct {
	testing.TB
	ctx  context.Context
	ends []func()
}

func (t *exampleTB) Helper()                  {}
func (t *exampleTB) Log(...any)               {}
func (t *exampleTB) Context() context.Context { return t.ctx }
func (t *exampleTB) Cleanup(f func())         { t.ends = append(t.ends, f) }

func (t *exampleTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (t *exampleTB) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *exampleTB) end() {
	for i := len(t.ends) - 1; i >= 0; i-- {
		t.ends[i]()
	}
}
