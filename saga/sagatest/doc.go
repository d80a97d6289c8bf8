// Package sagatest tests sagas as given / when / then, with virtual time and without a database.
//
//	sagatest.For(t, checkout.Definition).
//		Given(checkout.OrderPlaced{Account: "a1", Cents: 500}).
//		When(checkout.StockReserved{}).ThenSends(checkout.TakePayment{Cents: 500}).
//		WhenDeadline("take-payment").ThenCompensates("take-payment", "reserve-stock").
//		ThenCompensated()
//
// Events are those of one stream; the first that begins an instance begins it. An answer is caused by the command of the
// step that waits for it, unless its key finds the instance: say which by [Scenario.WhenCausedBy] and [Scenario.WhenKeyed]
// where both are possible.
//
// # Guarantees
//
//   - Each event passes through the catalog's codec and back, each command through [eventstore.Msgpack], and the state
//     through its stored form after each reaction: a scenario fails on what cannot be stored, or comes back as another.
//   - Each reaction runs twice, on equal instances. One that does not come to the same end is not pure, and fails the test.
//   - Commands that nothing has looked at fail the test, at the next When or when it ends; the last command of a saga may be
//     left to ThenCompleted and ThenCompensated.
//   - A step that fails ends the test at once, and shows the history of the instance.
//
// # Caveats
//
// A scenario knows no bus: whether a command is registered there, and what its handler does, is for other tests. What
// happens at crashes, repeats and reorderings is for CrashEverywhere, on PostgreSQL.
//
// # Errors
//
// There are none: what goes wrong fails the test, naming the step.
package sagatest
