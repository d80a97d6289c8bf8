package reports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/govalues/decimal"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/projection"
)

var (
	// ErrNoEntry: no key begins like that.
	ErrNoEntry = errors.New("no such entry")
	// ErrManyEntries: the beginning of the key is too short.
	ErrManyEntries = errors.New("more than one entry")
)

// Line is the balance of one account in one commodity.
type Line struct {
	Account   string
	Commodity string
	Balance   decimal.Decimal
}

// Now returns all balances that are not zero, in the order of [Compare].
func Now(ctx context.Context, db projection.Querier) ([]Line, error) {
	var lines []Line
	for row, err := range Balances.All(ctx, db) {
		if err != nil {
			return nil, fmt.Errorf("reports: balances: %w", err)
		}
		lines = append(lines, Line{Account: row.Key.Account, Commodity: row.Key.Commodity, Balance: row.State.Amount})
	}
	slices.SortFunc(lines, Compare)
	return lines, nil
}

// Of returns the balances of one account that are not zero, by commodity: none for an account that does not exist.
func Of(ctx context.Context, db projection.Querier, account string) ([]Line, error) {
	return collect(ctx, db, "balances of an account", ofSQL, account)
}

const ofSQL = `SELECT account, commodity, amount::text FROM readmodels.balances WHERE account = $1`

// Before returns the balances that are not zero of the entries dated before a day, in the order of [Compare].
func Before(ctx context.Context, db projection.Querier, date journal.Date) ([]Line, error) {
	return collect(ctx, db, "balances before "+date.String(), beforeSQL, date.String())
}

const beforeSQL = `
SELECT account, commodity, sum(amount)::text
  FROM readmodels.movements
 WHERE date < $1
 GROUP BY account, commodity
HAVING sum(amount) <> 0`

func collect(ctx context.Context, db projection.Querier, what, sql string, args ...any) ([]Line, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("reports: %s: %w", what, err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Line, error) {
		var line Line
		var balance string
		err := row.Scan(&line.Account, &line.Commodity, &balance)
		if err == nil {
			line.Balance, err = journal.ParseAmount(balance)
		}
		return line, err
	})
	if err != nil {
		return nil, fmt.Errorf("reports: %s: %w", what, err)
	}
	slices.SortFunc(lines, Compare)
	return lines, nil
}

// FindEntry returns the whole key of the one entry whose key begins like that.
func FindEntry(ctx context.Context, db projection.Querier, beginning string) (string, error) {
	// The keys are in the order of their bytes, and no digit of theirs comes after "f".
	rows, err := db.Query(ctx, findEntrySQL, beginning, beginning+"g")
	if err != nil {
		return "", fmt.Errorf("reports: find entry: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return "", fmt.Errorf("reports: find entry: %w", err)
	case len(keys) == 0:
		return "", fmt.Errorf("reports: find entry: %w has a key that begins with %q: take it from the history of an account", ErrNoEntry, beginning)
	case len(keys) > 1:
		return "", fmt.Errorf("reports: find entry: %w has a key that begins with %q: give more of it, such as %s", ErrManyEntries, beginning, keys[0][:min(len(beginning)+4, len(keys[0]))])
	}
	return keys[0], nil
}

const findEntrySQL = `SELECT key FROM readmodels.entries WHERE key >= $1 AND key < $2 ORDER BY key LIMIT 2`

// kinds are the first parts of account names in the order of a balance sheet and an income statement.
var kinds = []string{"asset", "liabilit", "equity", "income", "revenue", "expense"}

func kind(name string) int {
	name = strings.ToLower(name)
	i := slices.IndexFunc(kinds, func(kind string) bool { return strings.HasPrefix(name, kind) })
	if i < 0 {
		return len(kinds)
	}
	return i
}

// Compare orders lines as accountants read them: assets, liabilities, equity, income, expenses, then whatever is
// called otherwise; within a kind by the parts of the name, then by commodity.
func Compare(a, b Line) int {
	return cmp.Or(
		cmp.Compare(kind(a.Account), kind(b.Account)),
		slices.Compare(strings.Split(a.Account, ":"), strings.Split(b.Account, ":")),
		cmp.Compare(a.Commodity, b.Commodity))
}
