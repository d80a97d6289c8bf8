// Package basket has the orders that the program places: made up by a seed, or read from a file.
//
//	orders := basket.Generate(2000, 1)
//	orders, err := basket.Read("orders.csv") // or .json
//
// A CSV file has a header with the columns account, sku, quantity, cents, card and country, in any order; a JSON file is
// an array of objects with these names. What is ordered says what becomes of it, see [Expect].
//
// # Guarantees
//
// The same number and seed are the same orders. Of 100 orders 5 have a card that is declined, 3 ask for what is not there,
// 2 have a card that nobody answers for, and 1 goes where no carrier goes; shares of less than half an order are none.
//
// # Errors
//
//	*RowError    a row of a file, with what is wrong and what helps
package basket
