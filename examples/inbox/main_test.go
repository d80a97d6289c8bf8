package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const printed = `assets:bank 2500: opening balance
expenses:rent 950.00: rent
assets:savings 1200: put aside
running: ready true, 0 gaps, in time true
`

// Two databases, and twice: the second run goes on where the first has ended.
func TestRun(t *testing.T) {
	t.Parallel()
	books, notices := postgrestest.New(t), postgrestest.Empty(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		var out bytes.Buffer
		if err := run(ctx, books, notices, &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != printed {
			t.Errorf("printed\n%s\nwant\n%s", out.String(), printed)
		}
	}
	var seen int
	if err := notices.QueryRow(ctx, "SELECT sum(postings) FROM notifier.seen").Scan(&seen); err != nil || seen != 2*2*len(entries) {
		t.Errorf("%d postings were seen: %v", seen, err)
	}
}

// The ledger and the notifier in one database, each in a schema of its own.
func TestRunInOneDatabase(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, pool, pool, &out); err != nil || out.String() != printed {
		t.Errorf("printed\n%s\n%v", out.String(), err)
	}
}
