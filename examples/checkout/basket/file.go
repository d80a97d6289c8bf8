package basket

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/daybook-go/daybook/examples/checkout/order"
)

// row is an order as files have it.
type row struct {
	Account  string `json:"account"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Cents    int64  `json:"cents"`
	Card     string `json:"card"`
	Country  string `json:"country"`
}

var columns = []string{"account", "sku", "quantity", "cents", "card", "country"}

// Read reads the orders of a file whose name ends in .csv or .json.
func Read(path string) ([]order.Place, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // it was only read
	read := map[string]func(io.Reader, string) ([]order.Place, error){".csv": readCSV, ".json": readJSON}[strings.ToLower(filepath.Ext(path))]
	if read == nil {
		return nil, fmt.Errorf("basket: %s: the name ends neither in .csv nor in .json: rename the file", path)
	}
	orders, err := read(file, filepath.Base(path))
	if err == nil && len(orders) == 0 {
		err = fmt.Errorf("basket: %s: there is no order in it", path)
	}
	return orders, err
}

func readJSON(r io.Reader, name string) ([]order.Place, error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	var rows []row
	if err := decoder.Decode(&rows); err != nil {
		return nil, fmt.Errorf("basket: %s: %w: it must be an array of objects with the names %s", name, err, strings.Join(columns, ", "))
	}
	orders := make([]order.Place, 0, len(rows))
	for i, r := range rows {
		p := order.Place(r)
		if err := checked(p); err != nil {
			return nil, &RowError{File: name, Row: i + 1, Err: err}
		}
		orders = append(orders, p)
	}
	return orders, nil
}

func readCSV(r io.Reader, name string) ([]order.Place, error) {
	reader := csv.NewReader(r)
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("basket: %s: its first line must name the columns %s: %w", name, strings.Join(columns, ", "), err)
	}
	at := make(map[string]int, len(header))
	for i, column := range header {
		at[strings.TrimSpace(column)] = i
	}
	for _, column := range columns {
		if _, ok := at[column]; !ok {
			return nil, fmt.Errorf("basket: %s: its first line does not name the column %s", name, column)
		}
	}
	var orders []order.Place
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return orders, nil
		}
		row := len(orders) + 1
		if err != nil {
			return nil, &RowError{File: name, Row: row, Err: err}
		}
		field := func(column string) string { return strings.TrimSpace(fields[at[column]]) }
		p := order.Place{Account: field("account"), SKU: field("sku"), Card: field("card"), Country: field("country")}
		quantity, wrong := strconv.ParseInt(field("quantity"), 10, 64)
		cents, wrongToo := strconv.ParseInt(field("cents"), 10, 64)
		p.Quantity, p.Cents = quantity, cents
		if err := errors.Join(wrong, wrongToo); err != nil {
			return nil, &RowError{File: name, Row: row, Err: fmt.Errorf("quantity and cents must be whole numbers: %w", err)}
		}
		if err := checked(p); err != nil {
			return nil, &RowError{File: name, Row: row, Err: err}
		}
		orders = append(orders, p)
	}
}
