package journal

import "github.com/govalues/decimal"

// Entry is one journal entry: what happened on a day, as postings to accounts.
type Entry struct {
	// Line is the line of the entry's first row, counted from 1; 0 when the
	// entry was not read from a file.
	Line int
	// Index is the entry's txnidx. It names the entry inside one export only
	// and is not part of the entry's key.
	Index string
	// Date is the entry's own date, not the time of the import.
	Date Date
	// Description is free text and may be empty.
	Description string
	// Postings keep the order of the file.
	Postings []Posting
}

// Posting moves an amount of one commodity into an account, or out of it when
// the amount is negative.
type Posting struct {
	// Line is the line on which the posting's row begins; 0 when it was not
	// read from a file.
	Line int
	// Account is the full name, such as "assets:bank".
	Account string
	// Amount keeps the digits behind the point as the file has them.
	Amount decimal.Decimal
	// Commodity is a currency, a share, hours, or empty for a bare number.
	Commodity string
}

// Mixed reports whether the entry moves more than one commodity. A posting of
// zero moves nothing and does not count: otherwise a "0.00 USD" would excuse
// euros that do not sum to zero.
func (e Entry) Mixed() bool {
	first, seen := "", false
	for _, p := range e.Postings {
		switch {
		case p.Amount.IsZero():
		case !seen:
			first, seen = p.Commodity, true
		case p.Commodity != first:
			return true
		}
	}
	return false
}
