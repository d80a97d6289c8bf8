// Package reports is the ledger's read models: what is asked often, kept ready by folding the log.
//
//	runner, err := projection.NewRunner(pool, store.Log(), projection.Config{}, reports.All()...)
//	lines, err := reports.Now(ctx, pool)
//
// Three views follow the log, each at its own pace:
//
//	balances     a row per account and commodity
//	movements    a row per account, commodity and day: what balances before a day are summed up from
//	entries      a row per entry, to find one by the beginning of its key
//
// # Guarantees
//
//   - Each event counts once, whatever crashes: the rows and the place in the log commit together.
//   - Amounts are exact; see package account for why a sum always fits.
//   - A balance or a movement of zero has no row.
//
// # Caveats
//
// The views are behind the log by milliseconds. Whoever has just written waits for the token of the write.
//
// # Errors
//
//	ErrNoEntry, ErrManyEntries     the beginning of a key finds none, or more than one
//	anything else                  the database's, or those of package projection
package reports
