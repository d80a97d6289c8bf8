package schedule

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/adhocore/gronx"
)

// field is a part of a cron expression and what it may hold.
type field struct {
	name     string
	min, max int
	names    []string // of months and weekdays; the first stands for min
	special  *regexp.Regexp
}

var cronFields = [...]field{
	{name: "second", min: 0, max: 59},
	{name: "minute", min: 0, max: 59},
	{name: "hour", min: 0, max: 23},
	{name: "day of the month", min: 1, max: 31, special: regexp.MustCompile(`^(L|([1-9]|[12]\d|3[01])W)$`)},
	{name: "month", min: 1, max: 12, names: strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
	{name: "weekday", min: 0, max: 7, names: strings.Fields("SUN MON TUE WED THU FRI SAT"), special: regexp.MustCompile(`^[0-7](L|#[1-5])$`)},
}

// cron is an expression that was read, with its six fields as numbers.
type cron struct {
	expr string
	// steady expressions have a star in front of the minute or of the hour: they go by absolute time when clocks change.
	steady bool
	// hashed ones have an H for the minute.
	hashed bool
}

// parseCron reads an expression of five fields, or of six with the seconds in front. It is strict where gronx is not:
// gronx finds some faults only when the clock comes to them.
func parseCron(text string) (cron, error) {
	parts := strings.Fields(strings.ToUpper(text))
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 6 {
		return cron{}, fmt.Errorf("has %d fields: write minute, hour, day of the month, month and weekday, e.g. 30 2 * * *, with the second in front if need be", len(parts))
	}
	c := cron{steady: parts[1][0] == '*' || parts[2][0] == '*', hashed: parts[1] == "H"}
	for i, f := range cronFields {
		if i == 1 && c.hashed {
			continue
		}
		items := strings.Split(parts[i], ",")
		for n, item := range items {
			read, err := f.read(item)
			if err == nil && read == "*" && len(items) > 1 {
				err = fmt.Errorf("has a * in a list: write * alone")
			}
			if err != nil {
				return cron{}, fmt.Errorf("has %q for the %s, which %w", parts[i], f.name, err)
			}
			items[n] = read
		}
		parts[i] = strings.Join(items, ",")
	}
	c.expr = strings.Join(parts, " ")
	return c, nil
}

// read checks one item of a list, and writes names as numbers.
func (f field) read(item string) (string, error) {
	if f.special != nil {
		plain := item
		if n := len(f.names); n > 0 && len(item) > 3 {
			if v, ok := f.named(item[:3]); ok {
				plain = strconv.Itoa(v) + item[3:]
			}
		}
		if f.special.MatchString(plain) {
			return plain, nil
		}
	}
	span, step, stepped := strings.Cut(item, "/")
	if stepped {
		if n, err := digits(step); err != nil || n < 1 || n > f.max {
			return "", fmt.Errorf("has the step %q: write a number from 1 to %d; what is further apart needs a field further to the right", step, f.max)
		}
		step = "/" + step
	}
	if span == "*" {
		return span + step, nil
	}
	from, to, ranged := strings.Cut(span, "-")
	first, err := f.value(from)
	if err != nil {
		return "", err
	}
	if !ranged {
		if stepped && first > f.last() {
			return "", fmt.Errorf("begins with 7: write 0 for Sunday")
		}
		return strconv.Itoa(first) + step, nil
	}
	last, err := f.value(to)
	if err != nil {
		return "", err
	}
	if first > last {
		return "", fmt.Errorf("has the range %s, which runs backwards: write two ranges", span)
	}
	return strconv.Itoa(first) + "-" + strconv.Itoa(last) + step, nil
}

// last is the greatest value that has no other name.
func (f field) last() int {
	if n := len(f.names); n > 0 {
		return f.min + n - 1
	}
	return f.max
}

func (f field) value(text string) (int, error) {
	if v, ok := f.named(text); ok {
		return v, nil
	}
	v, err := digits(text)
	if err != nil || v < f.min || v > f.max {
		return 0, fmt.Errorf("has %q: write a number from %d to %d", text, f.min, f.max)
	}
	return v, nil
}

func (f field) named(text string) (int, bool) {
	for i, name := range f.names {
		if name == text {
			return f.min + i, true
		}
	}
	return 0, false
}

// digits refuses signs, which [strconv.Atoi] takes.
func digits(text string) (int, error) {
	for _, r := range text {
		if r < '0' || r > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.Atoi(text)
}

// of gives the expression of one tenant.
func (c cron) of(job, tenant string) cron {
	if c.hashed {
		parts := strings.Fields(c.expr)
		parts[1] = strconv.Itoa(hashMinute(job, tenant))
		c.expr, c.hashed = strings.Join(parts, " "), false
	}
	return c
}

// hashMinute never changes: a tenant keeps its minute.
func hashMinute(job, tenant string) int {
	h := fnv.New64a()
	h.Write([]byte(job + "\x00" + tenant))
	return int(h.Sum64() % 60)
}

// after is the first time of the calendar behind wall that fits. The calendar has no zone: wall times are written as
// UTC, because gronx does not know which of two equal wall times comes first, or that one is missing.
func (c cron) after(wall time.Time) (time.Time, error) {
	next, err := gronx.NextTickAfter(c.expr, wall, false)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule: %q has no occurrence after %s: %w", c.expr, wall.Format(time.DateTime), err)
	}
	return next, nil
}
