package saga_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/saga"
)

// Version 2 was installed, and was rolled back: programs that have version 1 go on when somebody has said so.
func ExampleOperator_Withdraw() {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, _ *postgres.Store) error {
		next := saga.Define(saga.Process[Membership]{
			Name: "welcome", Version: 2, Events: memberEvents, Start: saga.StartOn(joined),
			Steps: []saga.Step[Membership]{{Name: "print-card", Send: saga.Send(Membership.print), Pivot: true}},
		})
		if err := saga.Install(ctx, pool, welcome, next); err != nil {
			return err
		}
		operator := saga.Operator{DB: pool, Actor: "ann", Reason: "2.0 is rolled back"}
		if err := operator.Withdraw(ctx, "welcome", 1); err != nil {
			return err
		}
		fmt.Println(operator.Withdraw(ctx, "welcome", 1))
		return nil
	})
	// Output: saga: withdraw refused: the newest version of "welcome" is 1
}
