package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/aggregatetest"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

const printed = `#1, balance 100
#2, balance 70
rejected, balance 70
#3, balance 55
read model at #1: 100, write side: 55
read model at #3: 55, write side: 55
withdrawals #2 30, #3 15
state {balance 55, version 3}
`

func TestProgramPrintsWhatTheREADMESays(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	pool := postgrestest.New(t)
	for range 2 { // a second run uses another account of the same database
		out.Reset()
		if err := run(t.Context(), pool, uuid.NewString(), &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != printed {
			t.Errorf("the program printed\n%s\nwant\n%s", out.String(), printed)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), printed) {
		t.Errorf("README.md does not show the output of its program:\n%s", printed)
	}
}

func TestRejectedWithdrawalWritesNothing(t *testing.T) {
	t.Parallel()
	given := aggregatetest.For(t, Type).Given(Deposited{100}, Withdrawn{30})
	given.When(Withdraw(500)).ThenError(ErrRejected)
	given.When(Withdraw(15)).Then(Withdrawn{15})
}
