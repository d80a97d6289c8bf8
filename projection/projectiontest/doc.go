// Package projectiontest tests views: given events, then rows. The same scenario runs in memory and on PostgreSQL.
//
//	rows := projectiontest.Fold(t, Balances, projectiontest.In("account-ada", account.Deposited{Cents: 100}))
//
//	projectiontest.For(t, postgrestest.New(t), Balances).
//		Given("account-ada", account.Deposited{Cents: 100}, account.Withdrawn{Cents: 30}).
//		Then(map[string]Balance{"ada": {Cents: 70}})
//
// Events pass through the catalog's codec and back, so a scenario fails on an event that cannot be stored. Versions and
// positions count from 1, and every event was recorded at the same time, [RecordedAt].
//
// # Caveats
//
// A scenario on PostgreSQL needs a migrated database of its own. It feeds the view from memory: nothing is appended to
// the log, so [projection.AtLeast] has no tokens to wait for.
package projectiontest
