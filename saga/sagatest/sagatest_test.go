package sagatest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/saga"
	"github.com/daybook-go/daybook/saga/sagatest"
)

type (
	asked   struct{ At time.Time }
	given   struct{ Text string }
	seen    struct{ Key string }
	lossy   struct{ Text short }
	ask     struct{ Text string }
	forget  struct{}
	goodbye struct{}
)

// short forgets all but its first byte when it is stored.
type short string

func (s short) MarshalText() ([]byte, error) { return []byte(s[:min(1, len(s))]), nil }
func (s *short) UnmarshalText(b []byte) error {
	*s = short(b)
	return nil
}

var events = eventstore.NewCatalog(
	eventstore.TypeOf[asked]("asked"), eventstore.TypeOf[given]("given"), eventstore.TypeOf[seen]("seen"), eventstore.TypeOf[lossy]("lossy"),
)

type talk struct {
	Text  string
	Lossy short
}

var counter int

func steps(pick func(*saga.Process[talk])) saga.Definition {
	p := saga.Process[talk]{
		Name: "talk", Version: 1, Events: events,
		Start: saga.StartOn(func(saga.Event[asked]) talk { return talk{} }),
		Steps: []saga.Step[talk]{
			{
				Name: "first", Send: saga.Send(func(s talk) (string, ask) { return "ada", ask{s.Text} }), Deadline: time.Minute,
				Undo:      saga.Send(func(talk) (string, forget) { return "ada", forget{} }),
				Succeeded: []saga.Answer[talk]{saga.On(func(s talk, e saga.Event[given]) talk { s.Text = e.Payload.Text; return s })},
			},
			{
				Name: "second", Send: saga.Send(func(s talk) (string, ask) { return "bob", ask{s.Text} }),
				Undo: saga.Send(func(talk) (string, forget) { return "bob", forget{} }),
				Succeeded: []saga.Answer[talk]{saga.OnKey(saga.KeyOf(func(e saga.Event[seen]) string { return e.Payload.Key }),
					func(s talk, _ saga.Event[seen]) talk { return s })},
			},
		},
		Completed: saga.Send(func(talk) (string, goodbye) { return "all", goodbye{} }),
	}
	pick(&p)
	return saga.Define(p)
}

var definition = steps(func(*saga.Process[talk]) {})

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
func outcome(t *testing.T, d saga.Definition, run func(s *sagatest.Scenario)) string {
	f := &fakeTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(sagatest.For(f, d))
	}()
	<-done
	for _, do := range f.cleanups {
		do()
	}
	return f.text.String()
}

func TestScenariosFail(t *testing.T) {
	t.Parallel()
	type scenario = *sagatest.Scenario
	both := steps(func(p *saga.Process[talk]) {
		second := p.Steps[0]
		second.Name = "again"
		p.Steps = []saga.Step[talk]{{Name: "all", Together: []saga.Step[talk]{p.Steps[0], second}}}
	})
	change := func(pick func(s *saga.Step[talk])) saga.Definition {
		return steps(func(p *saga.Process[talk]) { pick(&p.Steps[0]) })
	}
	first := func(s scenario) scenario { return s.When(asked{}).ThenSends(ask{}) }
	for name, test := range map[string]struct {
		d     saga.Definition // nil: definition
		run   func(s scenario)
		texts []string // none: it passes
	}{
		"passes": {nil, func(s scenario) {
			first(s).When(given{"x"}).ThenSendsTo("bob", ask{"x"}).When(seen{"1"}).ThenCompleted().ThenState(talk{Text: "x"})
		}, nil},
		"passes, undone": {nil, func(s scenario) {
			s.Given(asked{}, given{"x"}).WhenOperator(sagatest.Cancel, "").ThenCompensates("second", "first").ThenCompensated()
			if got := sagatest.StateOf[talk](s); got.Text != "x" || s.Definition() != definition {
				panic(got)
			}
		}, nil},
		"history": {nil, func(s scenario) { first(s).After(time.Second).ThenCompleted() }, []string{
			"ThenCompleted: the saga is running", "+0s  started: asked", "+0s  sent first: ask to ada",
			"at +1s the saga is running and waits for an answer to first (ask to ada)",
			"the next timer, first/deadline, is due at +1m0s and undoes first, then compensates",
		}},
		"no definition":       {steps(func(p *saga.Process[talk]) { p.Name = "" }), func(s scenario) {}, []string{"cannot run", "field Name"}},
		"not looked at":       {nil, func(s scenario) { s.When(asked{}) }, []string{"nothing looked at what was sent last", "ask{Text:}"}},
		"not looked at, When": {nil, func(s scenario) { s.When(asked{}).When(given{}) }, []string{"When: nothing looked at what was sent before"}},
		"nothing yet":         {nil, func(s scenario) { s.ThenSends(ask{}) }, []string{"call When first"}},
		"other command":       {nil, func(s scenario) { s.When(asked{}).ThenSends(ask{"y"}) }, []string{"-want +got", `"y"`}},
		"no command":          {nil, func(s scenario) { s.When(asked{}).ThenNothing() }, []string{"ThenSends: other commands"}},
		"to another":          {nil, func(s scenario) { s.When(asked{}).ThenSendsTo("bob", ask{}) }, []string{`sent to "ada", want "bob"`}},
		"no beginning":        {nil, func(s scenario) { s.When(given{}) }, []string{"given begins no instance"}},
		"no instance":         {nil, func(s scenario) { s.ThenCompleted() }, []string{"no instance has begun"}},
		"no instance to act":  {nil, func(s scenario) { s.WhenOperator(sagatest.Cancel, "") }, []string{"no instance has begun"}},
		"not an answer":       {nil, func(s scenario) { first(s).When(lossy{"x"}) }, []string{"lossy answers no command that was sent"}},
		"another key":         {nil, func(s scenario) { first(s).When(seen{"2"}) }, []string{`concerns the instance "2", not "1"`}},
		"another stream":      {nil, func(s scenario) { first(s).In("no stream") }, []string{"In: "}},
		"another instance": {nil, func(s scenario) {
			s.Given(asked{}).WhenOperator(sagatest.Refuse, "").ThenCompensated().In("talk-2").When(asked{})
		}, []string{`begins the instance "2", not "1"`}},
		"several steps":  {both, func(s scenario) { s.Given(asked{}).When(given{}) }, []string{"answers each of first, again", "WhenCausedBy"}},
		"not sent":       {nil, func(s scenario) { first(s).WhenCausedBy("second", given{}) }, []string{`no command of step "second" was sent`}},
		"no key":         {nil, func(s scenario) { first(s).WhenKeyed(given{}) }, []string{"of no declared key"}},
		"event is lossy": {nil, func(s scenario) { s.When(lossy{"long"}) }, []string{"comes back as another", "long"}},
		"unknown event":  {nil, func(s scenario) { s.When(ask{}) }, []string{"When: sagatest_test.ask cannot be stored"}},
		"no deadline":    {nil, func(s scenario) { first(s).WhenDeadline("second") }, []string{"has no deadline", "the timers are first/deadline"}},
		"no timer":       {nil, func(s scenario) { first(s).WhenTimer("x") }, []string{`"x" is not set`}},
		"no reply":       {nil, func(s scenario) { first(s).WhenReply("second", saga.ReplyDone) }, []string{`no command of step "second"`}},
		"refused action": {nil, func(s scenario) { first(s).WhenOperator(sagatest.Mark, "first") }, []string{"WhenOperator: saga: mark"}},
		"action not refused": {nil, func(s scenario) {
			first(s).WhenOperatorIsRefused(sagatest.Cancel, "", "")
		}, []string{"cancel was done"}},
		"other refusal": {nil, func(s scenario) { first(s).WhenOperatorIsRefused(sagatest.Mark, "first", "xyz") }, []string{`want "xyz"`}},
		"no undo":       {nil, func(s scenario) { first(s).After(1).ThenCompensates("first") }, []string{`want an undo of "first", but none`}},
		"other undo":    {nil, func(s scenario) { s.Given(asked{}).WhenDeadline("first").ThenCompensates("second") }, []string{`want an undo of "second", got one of "first"`}},
		"one undo more": {nil, func(s scenario) {
			s.Given(asked{}, given{}).WhenOperator(sagatest.Cancel, "").ThenCompensates("second")
		}, []string{`"first" is undone too`}},
		"not running": {nil, func(s scenario) { s.Given(asked{}).WhenOperator(sagatest.Refuse, "").ThenRunning() }, []string{"ThenRunning: the saga is compensated"}},
		"not stuck":   {nil, func(s scenario) { first(s).ThenStuck("dead_letter") }, []string{`want "dead_letter", but the saga is running`}},
		"other state": {nil, func(s scenario) { first(s).ThenState(talk{Text: "z"}) }, []string{"another state than expected"}},
		"other wait":  {nil, func(s scenario) { first(s).ThenAwaits("zzz") }, []string{`want "zzz" in "an answer to first`}},
		"state is lossy": {steps(func(p *saga.Process[talk]) {
			p.Start = saga.StartOn(func(saga.Event[asked]) talk { return talk{Lossy: "long"} })
		}), func(s scenario) { s.When(asked{}) }, []string{"the state comes back as another", "long"}},
		"not pure": {change(func(s *saga.Step[talk]) {
			s.Send = saga.Send(func(talk) (string, ask) { counter++; return "", ask{fmt.Sprint(counter)} })
		}), func(s scenario) { s.When(asked{}) }, []string{"the reaction is not pure", "-first +second"}},
		"command is lossy": {change(func(s *saga.Step[talk]) {
			s.Send = saga.Send(func(talk) (string, lossy) { return "", lossy{"long"} })
		}), func(s scenario) { s.When(asked{}) }, []string{"prepare sagatest_test.lossy", "comes back as another"}},
	} {
		if test.d == nil {
			test.d = definition
		}
		got := outcome(t, test.d, test.run)
		if (got != "") != (test.texts != nil) {
			t.Errorf("%s: the test was told %q", name, got)
		}
		for _, want := range test.texts {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the test was told %q, want %q in it", name, got, want)
			}
		}
	}
}

func TestTimersForEver(t *testing.T) {
	t.Parallel()
	d := saga.Define(saga.Flow[talk]{
		Name: "ticks", Version: 1, Events: events, Start: saga.StartOn(func(saga.Event[asked]) talk { return talk{} }),
		Reactions: []saga.Reaction[talk]{
			saga.React(func(s talk, _ saga.Event[asked], fx *saga.Effects) talk { fx.After("tick", 0); return s }),
			saga.ReactTimer("tick", func(s talk, fx *saga.Effects) talk { fx.After("tick", 0); return s }),
		},
	})
	if got := outcome(t, d, func(s *sagatest.Scenario) { s.Given(asked{}).After(1) }); !strings.Contains(got, "there is no end") {
		t.Errorf("the test was told %.300q", got)
	}
}
