package aggregatetest_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/aggregatetest"
	"github.com/daybook-go/daybook/eventstore"
)

type event interface{ lampEvent() }

type (
	switched struct {
		On bool
		At time.Time
	}
	measured struct{ Lux float64 }
	lossy    struct{ Text short }
)

func (switched) lampEvent() {}
func (measured) lampEvent() {}
func (lossy) lampEvent()    {}

// short forgets all but its first byte when it is stored.
type short string

func (s short) MarshalText() ([]byte, error) { return []byte(s[:1]), nil }
func (s *short) UnmarshalText(b []byte) error {
	if string(b) == "!" {
		return errors.New("unreadable")
	}
	*s = short(b)
	return nil
}

type lamp struct {
	On    bool
	Count int
	log   []string
}

func (l lamp) Evolve(e event) lamp {
	l.Count++
	l.log = append(l.log, fmt.Sprintf("%T", e))
	if s, ok := e.(switched); ok {
		l.On = s.On
	}
	return l
}

var lampType = aggregate.Define("lamp", lamp.Evolve, eventstore.NewCatalog(
	eventstore.TypeOf[switched]("lamp.switched"),
	eventstore.TypeOf[measured]("lamp.measured", eventstore.EncodedAs(eventstore.JSON)),
	eventstore.TypeOf[lossy]("lamp.lossy")))

var (
	errAlready = errors.New("lamp: on already")
	noon       = time.Date(2020, 1, 2, 12, 0, 0, 0, time.FixedZone("CET", 3600))
)

func turnOn(l lamp) ([]event, error) {
	if l.On {
		return nil, fmt.Errorf("refused: %w", errAlready)
	}
	return []event{switched{On: true, At: noon}}, nil
}

func idle(lamp) ([]event, error) { return nil, nil }

func TestScenarios(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, lampType).When(turnOn).Then(switched{On: true, At: noon.UTC()}).When(turnOn).ThenError(errAlready)
	aggregatetest.For(t, lampType).Given(switched{On: true}, switched{}).When(idle).Then().
		ThenState(lamp{Count: 2, log: []string{"aggregatetest_test.switched", "aggregatetest_test.switched"}})
	aggregatetest.For(t, lampType).Given(switched{On: true}).When(turnOn).ThenError(errAlready).
		Given(switched{}).When(turnOn).ThenState(lamp{On: true, Count: 3, log: []string{
		"aggregatetest_test.switched", "aggregatetest_test.switched", "aggregatetest_test.switched"}})
	if got := aggregatetest.For(t, lampType).Given(switched{On: true}).State(); !got.On {
		t.Errorf("state %+v", got)
	}
}

// fakeTB records what a test would have been told.
type fakeTB struct {
	testing.TB
	text     strings.Builder
	cleanups []func()
	failed   bool
}

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Failed() bool      { return f.failed }
func (f *fakeTB) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }
func (f *fakeTB) Errorf(format string, args ...any) {
	f.failed = true
	fmt.Fprintf(&f.text, format, args...)
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// outcome runs a scenario as a test would, and returns what it was told; "" is a test that passes.
func outcome(run func(s *aggregatetest.Scenario[lamp, event])) string {
	f := &fakeTB{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(aggregatetest.For[lamp, event](f, lampType))
	}()
	<-done
	for _, do := range f.cleanups {
		do()
	}
	return f.text.String()
}

type scenario = *aggregatetest.Scenario[lamp, event]

func TestScenariosFail(t *testing.T) {
	t.Parallel()
	decide := func(events ...event) func(lamp) ([]event, error) {
		return func(lamp) ([]event, error) { return events, nil }
	}
	for _, test := range []struct {
		name  string
		run   func(s scenario)
		texts []string // none: it passes
	}{
		{"passes", func(s scenario) { s.When(turnOn).Then(switched{On: true, At: noon}) }, nil},
		{"wrong field", func(s scenario) { s.When(turnOn).Then(switched{At: noon}) }, []string{"Then:", "-want +got", "On:", "false", "true"}},
		{"wrong type", func(s scenario) { s.When(turnOn).Then(measured{}) }, []string{"measured", "switched"}},
		{"too few", func(s scenario) { s.When(decide(switched{}, switched{On: true})).Then(switched{}) }, []string{"+", "On:"}},
		{"too many", func(s scenario) { s.When(idle).Then(switched{}) }, []string{"-"}},
		{"something", func(s scenario) { s.When(turnOn).Then() }, []string{"switched"}},
		{"wrong order", func(s scenario) { s.When(decide(switched{}, measured{})).Then(measured{}, switched{}) }, []string{"-want +got"}},
		{"refused", func(s scenario) { s.Given(switched{On: true}).When(turnOn).Then() }, []string{"the decision was refused: refused: lamp: on already"}},
		{"refused, state", func(s scenario) { s.Given(switched{On: true}).When(turnOn).ThenState(lamp{}) }, []string{"was refused"}},
		{"not refused", func(s scenario) { s.When(turnOn).ThenError(errAlready) }, []string{"ThenError", "led to aggregatetest_test.switched{On:true"}},
		{"nothing, not refused", func(s scenario) { s.When(idle).ThenError(errAlready) }, []string{"led to nothing"}},
		{"other error", func(s scenario) { s.Given(switched{On: true}).When(turnOn).ThenError(errors.New("other")) }, []string{`"other"`, "on already"}},
		{"nil error", func(s scenario) { s.When(turnOn).ThenError(nil) }, []string{"target is nil"}},
		{"wrong state", func(s scenario) { s.Given(switched{On: true}).ThenState(lamp{On: true, Count: 1}) }, []string{"ThenState", "log"}},
		{"no outcome", func(s scenario) { s.When(turnOn) }, []string{"nothing looked at the outcome"}},
		{"skipped outcome", func(s scenario) { s.When(turnOn).When(turnOn).ThenError(errAlready) }, []string{"When: nothing looked at"}},
		{"skipped before Given", func(s scenario) { s.When(turnOn).Given(switched{}) }, []string{"Given: nothing looked at"}},
		{"no When", func(s scenario) { s.Given(switched{}).Then() }, []string{"call When first"}},
		{"no When after Given", func(s scenario) { s.When(idle).Then().Given(switched{}).ThenError(errAlready) }, []string{"call When first"}},
		{"not in JSON", func(s scenario) { s.Given(measured{Lux: math.NaN()}) }, []string{"Given: event 1", "measured", "cannot be stored"}},
		{"decided, not in JSON", func(s scenario) { s.When(decide(switched{}, measured{Lux: math.Inf(1)})).Then() }, []string{"When: event 2", "cannot be stored"}},
		{"comes back as another", func(s scenario) { s.Given(lossy{"long"}) }, []string{"comes back as another", "long"}},
		{"cannot come back", func(s scenario) { s.Given(lossy{"!"}) }, []string{"cannot be read back", "unreadable"}},
		{"events and error", func(s scenario) {
			s.When(func(lamp) ([]event, error) { return []event{switched{}}, errAlready })
		}, []string{"one or the other"}},
	} {
		got := outcome(test.run)
		if (got != "") != (test.texts != nil) {
			t.Errorf("%s: the test was told %q", test.name, got)
		}
		for _, want := range test.texts {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the test was told %q, want %q in it", test.name, got, want)
			}
		}
	}
}
