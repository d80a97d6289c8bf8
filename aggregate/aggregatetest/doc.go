// Package aggregatetest tests aggregates as given / when / then, without a store.
//
//	aggregatetest.For(t, account.Type).
//		Given(account.Opened{Owner: "ada"}, account.Deposited{Cents: 100}).
//		When(account.Withdraw{Cents: 40}.Decide).
//		Then(account.Withdrawn{Cents: 40})
//
// # Guarantees
//
//   - Every event, given or decided, is encoded by the type's catalog and decoded again, and the state is folded from
//     what came back. A scenario thus fails on an event that cannot be stored, or that comes back as another.
//   - A When whose outcome nothing looks at fails the test when it ends.
//   - A step that fails ends the test at once; what differs is shown as a diff.
//
// # Caveats
//
// A scenario knows nothing of versions, conflicts and metadata. Test those with the engine of eventstore/memory.
//
// # Errors
//
// There are none: what goes wrong fails the test, naming the step.
package aggregatetest
