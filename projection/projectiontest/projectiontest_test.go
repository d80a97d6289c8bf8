package projectiontest_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/projection"
	"github.com/daybook-go/daybook/projection/projectiontest"
)

type paid struct{ Cents int64 }

type sum struct{ Cents int64 }

func (s sum) paid(e projection.Event[paid]) sum {
	if e.Payload.Cents == 13 {
		panic("no thirteen")
	}
	s.Cents += e.Payload.Cents
	return s
}

func (s sum) empty() bool { return s.Cents == 0 }

var sums = projection.View[string, sum]{
	Name: "sums", Version: 1, Events: eventstore.NewCatalog(eventstore.TypeOf[paid]("test.paid")),
	Folds: []projection.Fold[string, sum]{projection.On(projection.ByStream, sum.paid)},
	Gone:  sum.empty,
}

func TestFold(t *testing.T) {
	t.Parallel()
	got := projectiontest.Fold(t, sums, projectiontest.In("till-1", paid{3}, paid{4}), projectiontest.In("till-2", paid{5}), projectiontest.In("till-2", paid{-5}))
	if want := (map[string]sum{"1": {7}}); !reflect.DeepEqual(got, want) {
		t.Errorf("rows are %v, want %v", got, want)
	}
}

func TestScenario(t *testing.T) {
	t.Parallel()
	projectiontest.For(t, postgrestest.New(t), sums).
		Then(map[string]sum{}).
		Given("till-1", paid{3}, paid{4}).Given("till-2", paid{5}).
		Then(map[string]sum{"1": {7}, "2": {5}}).
		Given("till-2", paid{-5}).
		Then(map[string]sum{"1": {7}})
}

// recorder notes what a scenario reports instead of failing.
type recorder struct {
	testing.TB
	lines []string
}

func (r *recorder) Helper() {}

func (r *recorder) Error(args ...any) { r.lines = append(r.lines, fmt.Sprint(args...)) }

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	panic(r)
}

func TestScenarioFails(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	s := projectiontest.For(r, postgrestest.New(t), sums).Given("till-1", paid{3}).Given("till-2", paid{4})
	s.Then(map[string]sum{"1": {8}, "3": {1}})
	want := []string{"row 1 is {Cents:3}, want {Cents:8}", "row 2 is {Cents:4}, want none", "row 3 is missing, want {Cents:1}"}
	if !reflect.DeepEqual(r.lines, want) {
		t.Errorf("reported %q, want %q", r.lines, want)
	}
	r.lines = nil
	func() {
		defer func() { _ = recover() }()
		s.Given("till-9", paid{13}).Then(nil)
	}()
	if len(r.lines) != 1 || !strings.Contains(r.lines[0], "no thirteen") || !strings.Contains(r.lines[0], "till-9") {
		t.Errorf("a panicking fold is reported as %q", r.lines)
	}
}
