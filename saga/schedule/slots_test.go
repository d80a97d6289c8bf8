package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/testscale"
)

// judge is another reading of an expression with plain fields: which values each of them has.
type judge struct {
	has           [6][64]bool
	union, steady bool
}

func judgeOf(expr string) *judge {
	parts := strings.Fields(expr)
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	j := &judge{union: parts[3][0] != '*' && parts[5][0] != '*', steady: parts[1][0] == '*' || parts[2][0] == '*'}
	for i, high := range [...]int{59, 59, 23, 31, 12, 7} {
		low := 0
		if i == 3 || i == 4 {
			low = 1
		}
		for item := range strings.SplitSeq(parts[i], ",") {
			span, step, stepped := strings.Cut(item, "/")
			by := 1
			if stepped {
				by, _ = strconv.Atoi(step)
			}
			first, last := low, high
			if i == 5 && span == "*" {
				last = 6
			} else if span != "*" {
				from, to, ranged := strings.Cut(span, "-")
				first, _ = strconv.Atoi(from)
				if ranged {
					last, _ = strconv.Atoi(to)
				} else if !stepped {
					last = first
				} else if i == 5 {
					last = 6
				}
			}
			for v := first; v <= last; v += by {
				j.has[i][v] = true
			}
		}
	}
	j.has[5][0] = j.has[5][0] || j.has[5][7]
	return j
}

func (j *judge) fits(wall time.Time) bool {
	hour, minute, second := wall.Clock()
	if !j.has[1][minute] || !j.has[2][hour] || !j.has[0][second] {
		return false
	}
	_, month, day := wall.Date()
	of, on := j.has[3][day], j.has[5][wall.Weekday()]
	return j.has[4][month] && (j.union && (of || on) || of && on)
}

// walk goes through every instant of [from, to), a step at a time, and says what is due by the rule as people read it.
// An instant whose wall time was shown an hour before is no news to a fixed expression; and of the wall times that the
// clock leaves out, one that fits makes the first instant after them due.
func walk(exprs []string, zone *time.Location, from, to time.Time, step time.Duration) [][]time.Time {
	due := make([][]time.Time, len(exprs))
	judges := make([]*judge, len(exprs))
	for i, expr := range exprs {
		judges[i] = judgeOf(expr)
	}
	asUTC := func(t time.Time) time.Time {
		l := t.In(zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
	}
	before := asUTC(from.Add(-step))
	latest := before // what the clock has shown at most
	for t := from; t.Before(to); t = t.Add(step) {
		wall := asUTC(t)
		for i, j := range judges {
			if j.steady {
				if j.fits(wall) {
					due[i] = append(due[i], t)
				}
				continue
			}
			is := false
			for w := latest.Add(step); !w.After(wall); w = w.Add(step) { // more than one when some were left out
				is = is || j.fits(w)
			}
			if is {
				due[i] = append(due[i], t)
			}
		}
		if wall.After(latest) {
			latest = wall
		}
	}
	return due
}

func calendarOf(t testing.TB, expr, zone string) calendar {
	t.Helper()
	c, err := parseCron(expr)
	if err != nil {
		t.Fatal(err)
	}
	l, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return calendar{c, l}
}

func slotsOf(t testing.TB, c calendar, from, to time.Time) []time.Time {
	t.Helper()
	var all []time.Time
	for at := from.Add(-time.Second); ; {
		next, err := c.next(at)
		if err != nil {
			t.Fatal(err)
		}
		if !next.After(at) || next.Location() != time.UTC {
			t.Fatalf("the slot after %s is %s", at, next)
		}
		if !next.Before(to) {
			return all
		}
		all, at = append(all, next), next
	}
}

func differ(t testing.TB, what string, got, want []time.Time) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !got[i].Equal(want[i]) {
			t.Errorf("%s: %d slots, want %d; from %d on\n got %v\nwant %v", what, len(got), len(want), i,
				got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
			return
		}
	}
}

var someExprs = []string{
	"30 2 * * *", "0 2 * * *", "15 2,3 * * *", "0,30 1-3 * * *", "59 1 * * *", "0 3 * * *", "45 1 * * *", "0 0 * * *", "30 2 * * 0",
	"0 12 29 2 *", "30 2 31 3,10 *", "10 4 1 * 1", "5/20 2 * * 0-3", "20 2 1-7/2 3,4,10,11 7", "0 0 */10 * *", "30 1 * * */2",
	"0 * * * *", "45 * * * *", "*/40 * * * *", "*/20 2 * * *", "*/7 1-3 * 3,4,10,11 *", "30 */3 * * *",
}

var zones = []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}

// Two years, each minute of them looked at by the other way. At the usual scale it is the days around the changes of the
// clocks, of the year with a 29 February.
func TestTwoYearsOfSlots(t *testing.T) {
	t.Parallel()
	day := func(year, month, day int) time.Time {
		return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	}
	stretches := [][2]time.Time{{day(2027, 1, 1), day(2029, 1, 1)}}
	if testscale.Factor() < 1 {
		stretches = [][2]time.Time{
			{day(2028, 2, 27), day(2028, 3, 14)}, {day(2028, 3, 25), day(2028, 4, 4)}, {day(2028, 9, 30), day(2028, 10, 3)}, {day(2028, 10, 28), day(2028, 11, 7)},
		}
	}
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			l, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range stretches {
				for i, want := range walk(someExprs, l, s[0], s[1], time.Minute) {
					differ(t, someExprs[i], slotsOf(t, calendarOf(t, someExprs[i], zone), s[0], s[1]), want)
				}
			}
		})
	}
}

// Seconds, around the changes.
func TestSlotsWithSeconds(t *testing.T) {
	t.Parallel()
	exprs := []string{"*/15 30 2 * * *", "* 59 1 * * *", "30 0 3 * * *", "*/10 * * * * *", "7 */20 2 * * *", "0 0 * * * *"}
	for zone, days := range map[string][]string{
		"Europe/Berlin": {"2027-03-28", "2027-10-31"}, "America/New_York": {"2027-03-14", "2027-11-07"},
		"Australia/Lord_Howe": {"2027-04-03", "2027-10-02"}, "Pacific/Apia": {"2011-12-30"}, "Africa/Monrovia": {"1972-01-07"},
	} {
		l, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, day := range days {
			midnight, err := time.ParseInLocation(time.DateOnly, day, time.UTC)
			if err != nil {
				t.Fatal(err)
			}
			_, change := midnight.In(l).ZoneBounds()
			from, to := change.UTC().Add(-2*time.Hour), change.UTC().Add(3*time.Hour)
			if testscale.Factor() < 1 { // an hour and a bit on both sides
				from, to = change.UTC().Add(-70*time.Minute), change.UTC().Add(70*time.Minute)
			}
			for i, want := range walk(exprs, l, from, to, time.Second) {
				differ(t, fmt.Sprint(zone, day, exprs[i]), slotsOf(t, calendarOf(t, exprs[i], zone), from, to), want)
			}
		}
	}
}

// The days that people ask about, in words of the wall clock.
func TestChangesOfTheClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expr, zone, from, to, want string }{
		{"30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", "2027-03-29T12:00:00Z", "2027-03-28T03:00:00+02:00 2027-03-29T02:30:00+02:00"},
		{"30 2 * * *", "Europe/Berlin", "2027-10-30T12:00:00Z", "2027-11-01T12:00:00Z", "2027-10-31T02:30:00+02:00 2027-11-01T02:30:00+01:00"},
		{"30 2 * * *", "America/New_York", "2027-03-13T12:00:00Z", "2027-03-15T12:00:00Z", "2027-03-14T03:00:00-04:00 2027-03-15T02:30:00-04:00"},
		{"30 1 * * *", "America/New_York", "2027-11-06T12:00:00Z", "2027-11-08T12:00:00Z", "2027-11-07T01:30:00-04:00 2027-11-08T01:30:00-05:00"},
		{"10 2 * * *", "Australia/Lord_Howe", "2027-10-02T00:00:00Z", "2027-10-04T00:00:00Z", "2027-10-03T02:30:00+11:00 2027-10-04T02:10:00+11:00"},
		{"45 1 * * *", "Australia/Lord_Howe", "2027-04-03T00:00:00Z", "2027-04-05T00:00:00Z", "2027-04-04T01:45:00+11:00 2027-04-05T01:45:00+10:30"},
		// Both times that are missing, and the first that is not, are one firing.
		{"0,30 2,3 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", "2027-03-28T12:00:00Z", "2027-03-28T03:00:00+02:00 2027-03-28T03:30:00+02:00"},
		{"0 * * * *", "Europe/Berlin", "2027-03-28T00:00:00Z", "2027-03-28T03:00:00Z", "2027-03-28T01:00:00+01:00 2027-03-28T03:00:00+02:00 2027-03-28T04:00:00+02:00"},
		{"0 * * * *", "Europe/Berlin", "2027-10-31T00:00:00Z", "2027-10-31T03:00:00Z", "2027-10-31T02:00:00+02:00 2027-10-31T02:00:00+01:00 2027-10-31T03:00:00+01:00"},
		{"30 0 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-31T12:00:00Z", "2011-12-31T00:00:00+14:00 2011-12-31T00:30:00+14:00 2012-01-01T00:30:00+14:00"},
	} {
		from, _ := time.Parse(time.RFC3339, c.from)
		to, _ := time.Parse(time.RFC3339, c.to)
		cal := calendarOf(t, c.expr, c.zone)
		var got []string
		for _, slot := range slotsOf(t, cal, from, to) {
			got = append(got, slot.In(cal.zone).Format(time.RFC3339))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s in %s:\n got %s\nwant %s", c.expr, c.zone, strings.Join(got, " "), c.want)
		}
	}
}

// The slot after any instant does not depend on how one came there: it is the first of the list behind it.
func TestNextFromAnywhere(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 11))
	for _, zone := range zones {
		for _, day := range []time.Time{time.Date(2027, 3, 14, 0, 0, 0, 0, time.UTC), time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC), time.Date(2027, 4, 3, 0, 0, 0, 0, time.UTC),
			time.Date(2027, 10, 2, 0, 0, 0, 0, time.UTC), time.Date(2027, 10, 31, 0, 0, 0, 0, time.UTC), time.Date(2027, 11, 7, 0, 0, 0, 0, time.UTC)} {
			for _, expr := range []string{"30 2 * * *", "0,30 1-3 * * *", "45 1 * * *", "*/20 2 * * *", "0 * * * *"} {
				c := calendarOf(t, expr, zone)
				all := slotsOf(t, c, day, day.Add(72*time.Hour))
				for range 40 {
					at := day.Add(time.Duration(random.Int64N(int64(36 * time.Hour))))
					want := all[slices.IndexFunc(all, func(s time.Time) bool { return s.After(at) })]
					if got, err := c.next(at); err != nil || !got.Equal(want) {
						t.Fatalf("%s in %s after %s: %v, %v, want %s", expr, zone, at, got, err, want)
					}
				}
			}
		}
	}
}

func TestDaysThatPeopleName(t *testing.T) {
	t.Parallel()
	from, to := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC)
	for expr, want := range map[string]string{
		"0 6 L * *":       "01-31 02-28 03-31 04-30 05-31 06-30",
		"0 6 15W * *":     "01-15 02-15 03-15 04-15 05-14 06-15",
		"0 6 * * friL":    "01-29 02-26 03-26 04-30 05-28 06-25",
		"0 6 * * MON#2":   "01-11 02-08 03-08 04-12 05-10 06-14",
		"0 6 1 feb-Apr *": "02-01 03-01 04-01",
		"0 6 13 * 5#2":    "01-08 01-13 02-12 02-13 03-12 03-13 04-09 04-13 05-13 05-14 06-11 06-13",
	} {
		var got []string
		for _, slot := range slotsOf(t, calendarOf(t, expr, "UTC"), from, to) {
			got = append(got, slot.Format("01-02"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s:\n got %s\nwant %s", expr, strings.Join(got, " "), want)
		}
	}
}

func TestExpressionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{
		"", "* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8", "5,99 * * * *",
		"*,5 * * * *", "1- * * * *", "-1 * * * *", "+1 * * * *", "5-1 * * * *", "*/0 * * * *", "*/ * * * *", "*/60 * * * *", "1/2/3 * * * *",
		"a * * * *", "MON * * * *", "* * * MON *", "* * * * JAN", "* * 32W * *", "* * * * 1#6", "* * * * 1#", "* * LW * *", "@daily", "? * * * *",
		"7,, * * * *", "* H * * *", "H/5 * * * *", "* * * * 7/2", "1 2 3 4 5 2030",
	} {
		if c, err := parseCron(expr); err == nil {
			t.Errorf("%q is read as %q", expr, c.expr)
		}
	}
	if _, err := calendarOf(t, "0 0 31 2 *", "UTC").next(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil {
		t.Error("31 February comes")
	}
}

// 6,000 tenants: 100 on each minute, give or take five standard deviations.
func TestTheMinuteOfATenant(t *testing.T) {
	t.Parallel()
	for _, job := range []string{"report", "nightly-report"} {
		for _, form := range []string{"tenant-%d", "%08d", "%d.example.org"} {
			var count [60]int
			for n := range 6000 {
				count[hashMinute(job, fmt.Sprintf(form, n))]++
			}
			for minute, n := range count {
				if n < 50 || n > 150 {
					t.Errorf("%s, %s: %d tenants on minute %d", job, form, n, minute)
				}
			}
		}
	}
	c, err := parseCron("H 2 * * *")
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]string{"ada": "0 15 2 * * *", "grace": "0 3 2 * * *", "": "0 57 2 * * *"} {
		if got := c.of("nightly-report", tenant).expr; got != want {
			t.Errorf("%q is at %q, want %q: minutes never change", tenant, got, want)
		}
	}
}

// someField makes a field with values from low to high.
func someField(r *rand.Rand, low, high int) string {
	var list []string
	for range 1 + r.IntN(4)/3 {
		a, b := low+r.IntN(high-low+1), low+r.IntN(high-low+1)
		list = append(list, [...]string{
			"*", fmt.Sprintf("*/%d", 1+r.IntN(high)), fmt.Sprint(a), fmt.Sprintf("%d/%d", a, 1+r.IntN(high)),
			fmt.Sprintf("%d-%d/%d", min(a, b), max(a, b), 1+r.IntN(high)), fmt.Sprintf("%d-%d", min(a, b), max(a, b)),
		}[r.IntN(6)])
	}
	return strings.Join(list, ",")
}

// Any expression, over three days somewhere in six years.
func TestAnyExpression(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for tried := 0; tried < testscale.N(1000); {
		expr := strings.Join([]string{someField(r, 0, 59), someField(r, 0, 23), someField(r, 1, 31), someField(r, 1, 12), someField(r, 0, 7)}, " ")
		c, err := parseCron(expr)
		if err != nil {
			continue
		}
		tried++
		zone := zones[r.IntN(len(zones))]
		cal := calendarOf(t, expr, zone)
		from := time.Unix(1_700_000_000+r.Int64N(200_000_000), 0).UTC().Truncate(time.Minute)
		if _, err := cal.next(from); err != nil {
			continue // a day that never comes
		}
		to := from.Add(72 * time.Hour)
		differ(t, fmt.Sprintf("%s in %s from %s, seed %d", expr, zone, from, seed), slotsOf(t, cal, from, to), walk([]string{c.expr}, cal.zone, from, to, time.Minute)[0])
	}
}

// FuzzSlots holds the search by stretches to the walk through all minutes.
func FuzzSlots(f *testing.F) {
	for i, expr := range someExprs {
		f.Add(expr, i, int64(1_800_000_000+i*3_000_000))
	}
	f.Fuzz(func(t *testing.T, expr string, zone int, at int64) {
		c, err := parseCron(expr)
		if err != nil || c.hashed || strings.ContainsAny(c.expr, "LW#") || !strings.HasPrefix(c.expr, "0 ") {
			return
		}
		l, err := time.LoadLocation(zones[uint(zone)%uint(len(zones))])
		if err != nil {
			return
		}
		from := time.Unix(1_700_000_000+int64(uint64(at)%200_000_000), 0).UTC().Truncate(time.Minute)
		to := from.Add(72 * time.Hour)
		if _, err := (calendar{c, l}).next(from); err != nil {
			return // no occurrence
		}
		differ(t, expr, slotsOf(t, calendar{c, l}, from, to), walk([]string{c.expr}, l, from, to, time.Minute)[0])
	})
}
