package journal_test

import (
	"fmt"
	"strings"

	"github.com/daybook-go/daybook/examples/ledger/journal"
)

func ExampleRead() {
	const file = `"txnidx","date","description","account","amount","commodity"
"2","2025-01-11","Espresso","expenses:coffee","2.80","EUR"
"2","2025-01-11","Espresso","assets:cash","-2.80","EUR"
"1","2025-01-12","Lunch","expenses:food","12.50","EUR"
"1","2025-01-12","Lunch","assets:cash","-12.05","EUR"
"3","2025-02-30","Rent","expenses:rent","780.00","EUR"
`
	keys := journal.NewKeyer()
	for entry, err := range journal.Read(strings.NewReader(file), "journal.csv") {
		if err != nil {
			fmt.Println(err)
			break
		}
		if err := journal.Check(entry); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(keys.Key(entry)[:8], entry.Date, entry.Description, len(entry.Postings), "postings")
	}
	// Output:
	// eb4998b5 2025-01-11 Espresso 2 postings
	// journal: check entry at line 4: rule zero-sum: the 2 postings sum to 0.45 EUR: correct an amount or add the missing posting, so that they sum to zero
	// journal: read journal.csv: line 6, column "date", value "2025-02-30": not a day of the calendar: write it YYYY-MM-DD, such as 2012-02-29
}
