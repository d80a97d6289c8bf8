// Package journal reads the double-entry journal that "hledger print -O csv"
// prints: one row per posting, consecutive rows with the same txnidx forming
// one entry. It also holds the rules an entry must obey and the key that
// recognises an entry when the same file is imported again.
//
//	keys := journal.NewKeyer()
//	for entry, err := range journal.Read(f, "journal.csv") {
//		if err != nil {
//			return err // file, line, column, value, remedy
//		}
//		if err := journal.Check(entry); err != nil {
//			return err // the rule and the line
//		}
//		post(keys.Key(entry), entry)
//	}
//
// # Guarantees
//
//   - An entry is delivered whole or not at all: only when the row after it
//     begins another entry, or the file has ended. Reading stops at the first
//     error, and nothing of the entry in which it lies is delivered. Entries
//     before it may have been delivered already.
//   - Money is never a float. Amounts are decimals of at most 19 digits; what
//     does not fit is an error, never a rounded number.
//   - Every line number counts lines of the file, so it stays right behind a
//     quoted field that spans several lines.
//   - Memory holds one entry, at most [MaxPostings] postings whose rows are at
//     most [MaxRow] bytes, plus two small numbers per entry read (to notice a
//     txnidx that comes back). A [Keyer] keeps 32 bytes and a number per
//     distinct entry.
//   - A key depends on what an entry says and on how many equal entries stand
//     before it in its file. Line ends, a byte order mark, the order of the
//     columns, columns that are not read, txnidx and the number of zeros
//     behind the point do not change it.
//
// # Input
//
// Columns are found by name in the header: txnidx, date, description, account,
// amount and commodity, in any order and among any others. Text is UTF-8, with
// or without a byte order mark; lines end in LF or CRLF; blank lines are
// skipped. A header without rows is an empty journal; a file without a header
// is an error. A date is YYYY-MM-DD, an amount is digits with at most one
// point and a minus sign in front. An empty commodity is accepted: hledger
// prints one for a bare number.
//
// # Caveats
//
//   - A file cut off exactly between two rows, or inside an unquoted last
//     field, cannot be told from a complete one. hledger quotes every field;
//     what is left is caught by [Check] wherever the sum no longer is zero.
//   - [Check] does not know prices. In an entry that exchanges one commodity
//     for another it asks for both sides, not for equal worth.
//   - The rows of an entry must agree on date and description.
//
// # Errors
//
//	*SyntaxError, is ErrSyntax   the file is not such a journal; correct the line it names
//	*RuleError, is ErrRule       the entry is readable and breaks a rule of bookkeeping
//	anything else                reading failed; the cause is wrapped
//
// All functions are safe for concurrent use; a [Keyer] and a running [Read]
// belong to one goroutine.
package journal
