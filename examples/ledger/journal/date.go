package journal

import (
	"cmp"
	"errors"
	"time"
)

// Date is a day of the calendar without time and zone, so it is the same day
// on every machine. The zero value is no date. Dates are comparable with ==.
type Date struct {
	Year  int
	Month time.Month
	Day   int
}

var errDate = errors.New("journal: parse date: not a day of the calendar written YYYY-MM-DD, such as 2012-02-29")

// ParseDate reads exactly YYYY-MM-DD, from year 0001 on. A day that the month
// does not have is an error.
func ParseDate(s string) (Date, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil || len(s) != len(time.DateOnly) || t.Year() < 1 {
		return Date{}, errDate
	}
	return Date{Year: t.Year(), Month: t.Month(), Day: t.Day()}, nil
}

// String is YYYY-MM-DD.
func (d Date) String() string {
	return d.Time().Format(time.DateOnly)
}

// Time is the day's midnight in UTC.
func (d Date) Time() time.Time {
	return time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, time.UTC)
}

// Compare is negative when d is earlier than o, positive when it is later.
func (d Date) Compare(o Date) int {
	return cmp.Or(cmp.Compare(d.Year, o.Year), cmp.Compare(d.Month, o.Month), cmp.Compare(d.Day, o.Day))
}

// Before reports whether d is earlier than o.
func (d Date) Before(o Date) bool { return d.Compare(o) < 0 }

// IsZero reports whether d is the zero value.
func (d Date) IsZero() bool { return d == Date{} }

// MarshalText writes YYYY-MM-DD, and nothing for the zero value.
func (d Date) MarshalText() ([]byte, error) {
	if d.IsZero() {
		return nil, nil
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (d *Date) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = Date{}
		return nil
	}
	parsed, err := ParseDate(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}
