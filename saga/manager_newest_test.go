package saga

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// earlier is version 1 of the script, which does not read yet what is found by key.
type earlier struct{ *scripted }

func (m earlier) Parts() (flow.Parts, error) { return flow.Parts{Machine: m}, nil }
func (m earlier) Types() []string {
	return slices.DeleteFunc(m.scripted.Types(), func(name string) bool { return name == "script.poked" })
}

// While a deployment goes on a program that lacks the newest version owns the events. From the moment on when that version is
// installed it commits nothing any more, not even what it has in hand, and who has that version takes over.
func TestOlderProgramsLeaveTheEvents(t *testing.T) {
	t.Parallel()
	old := earlier{script(1)}
	w := newScriptWorld(t, old)
	reached, installed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var lines livetest.Lines
	cfg := quick()
	cfg.Logger = lines.Logger()
	cfg.Probe = func(place string) {
		if place == ProbeReacted && w.log("before", 1) != "" {
			once.Do(func() {
				close(reached)
				<-installed
			})
		}
	}
	m := w.manager(cfg, old)
	w.start(m)
	w.open("before", "timer soon 1ms")
	w.sees("before", 1, "opened; timer soon")
	w.open("while")
	<-reached
	if err := Install(t.Context(), w.pool, script(2)); err != nil {
		t.Fatal(err)
	}
	w.poke("while")
	w.open("behind")
	w.poke("behind")
	close(installed)
	livetest.Eventually(t, "it stands by, and says why", func() bool {
		p := m.Health(t.Context()).Parts[0]
		return p.Ready && p.State == "standby" && strings.Contains(p.Reason, "version 2 is installed") && strings.Contains(p.Reason, "none above 1")
	})
	if got := lines.String(); !strings.Contains(got, "a newer version of the saga is installed") || !strings.Contains(got, "newest=2 has=1") {
		t.Errorf("the log says %s", got)
	}
	if got := w.log("while", 1) + w.log("behind", 1); got != "" {
		t.Errorf("the old program has taken %q", got)
	}
	w.start(w.manager(quick(), old, script(2)))
	w.sees("while", 1, "opened; poked")
	w.sees("behind", 1, "opened; poked")
	if got := w.column("while", 1, "version") + w.column("behind", 1, "version"); got != "22" {
		t.Errorf("they began with versions %s", got)
	}
}

// A version that runs without having been installed is the newest too.
func TestVersionsThatRunAreKnown(t *testing.T) {
	t.Parallel()
	old := earlier{script(1)}
	w := newScriptWorld(t, old)
	w.start(w.manager(quick(), old))
	w.open("x")
	w.sees("x", 1, "opened")
	w.start(w.manager(quick(), script(2)))
	w.becomes("the newest", "2", "SELECT newest::text FROM daybook.saga_names")
	w.open("y")
	w.poke("y")
	w.sees("y", 1, "opened; poked")
}

// A version that does not come back leaves the events to nobody, which health says, until an operator withdraws it.
func TestWithdrawnVersions(t *testing.T) {
	t.Parallel()
	old := earlier{script(1)}
	w := newScriptWorld(t, old)
	m := w.manager(quick(), old)
	w.start(m)
	stop := w.start(w.manager(quick(), old, script(2)))
	w.becomes("the newest", "2", "SELECT newest::text FROM daybook.saga_names")
	w.open("newer", "send one")
	w.poke("newer")
	w.sees("newer", 1, "opened; poked")
	stop()
	w.open("x")
	livetest.Eventually(t, "health says that nobody takes events", func() bool {
		h := m.Health(t.Context())
		return !h.Ready && h.State == "outdated" && strings.Contains(h.Reason, "version 2 is installed") && strings.Contains(h.Reason, "daybook saga withdraw")
	})
	if got := w.log("x", 1); got != "" {
		t.Errorf("it has seen %q", got)
	}
	o := Operator{DB: w.pool, Actor: "ann", Reason: "version 2 is rolled back"}
	if err := o.Withdraw(t.Context(), "script", 1); err != nil {
		t.Fatal(err)
	}
	w.sees("x", 1, "opened")
	livetest.Eventually(t, "it is ready", func() bool { return m.Health(t.Context()).Ready })
	if got := w.value("SELECT newest || newest_by || ': ' || newest_why FROM daybook.saga_names"); got != "1ann: version 2 is rolled back" {
		t.Errorf("the store says %q", got)
	}
	// What belongs to an instance of the version is kept for it.
	w.answer(idOf("script", "newer", 1, "one", 1))
	w.becomes("stuck", "handler_missing", "SELECT stuck FROM daybook.sagas WHERE key = 'newer'")
	for _, c := range []struct {
		saga   string
		newest int
		want   string
	}{{"script", 1, "the newest version of \"script\" is 1"}, {"other", 1, "no saga \"other\" is installed"}, {"script", 0, "is no version"}, {"No", 1, "is no name"}} {
		var refused *OperatorError
		if err := o.Withdraw(t.Context(), c.saga, c.newest); err == nil || !strings.Contains(err.Error(), c.want) || strings.HasPrefix(c.want, "is ") == errors.As(err, &refused) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
	}
	// When the version runs again it is the newest again.
	w.start(w.manager(quick(), old, script(2)))
	w.sees("newer", 1, "opened; poked; answered one")
	w.becomes("the newest", "2", "SELECT newest || newest_by FROM daybook.saga_names")
}

// A version is withdrawn while a program that has it runs: it is the newest again, and nothing that it alone reads is lost,
// wherever the lease goes.
func TestVersionsThatRunCannotBeWithdrawn(t *testing.T) {
	t.Parallel()
	old := earlier{script(1)}
	w := newScriptWorld(t, old)
	patient := quick()
	patient.Lease = time.Minute
	w.start(w.manager(patient, old))
	var lines livetest.Lines
	cfg := quick()
	cfg.Logger = lines.Logger()
	w.start(w.manager(cfg, old, script(2)))
	w.becomes("the newest", "2", "SELECT newest::text FROM daybook.saga_names")
	o := Operator{DB: w.pool, Actor: "ann", Reason: "2 seems to be gone"}
	for n := range 5 {
		key := fmt.Sprint("x", n)
		w.open(key)
		w.sees(key, 1, "opened")
		if err := o.Withdraw(t.Context(), "script", 1); err != nil {
			t.Fatal(err)
		}
		w.poke(key)
		w.sees(key, 1, "opened; poked")
		w.becomes("the newest", "2", "SELECT newest || newest_by FROM daybook.saga_names")
	}
	if got := lines.String(); !strings.Contains(got, "it is the newest again") || !strings.Contains(got, "withdrawn_to=1 by=ann") || !strings.Contains(got, "2 seems to be gone") {
		t.Errorf("the log says %s", got)
	}
}

// Programs that lack a version that was withdrawn wait for those that have it, and not for longer than the lease.
func TestWithdrawnVersionsHaveTheirTime(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1), script(2))
	cfg := quick()
	cfg.Lease = time.Minute
	old, next := w.manager(cfg, script(1)).units[0], w.manager(cfg, script(1), script(2)).units[0]
	asks := func(u *unit, want string) {
		t.Helper()
		why, err := u.outdated(t.Context(), w.pool)
		if err != nil || want == "" && why != "" || !strings.Contains(why, want) {
			t.Errorf("want %q, got %q %v", want, why, err)
		}
	}
	o := Operator{DB: w.pool, Actor: "ann", Reason: "2 is rolled back"}
	asks(old, "version 2 is installed")
	asks(next, "")
	for range 2 {
		if err := o.Withdraw(t.Context(), "script", 1); err != nil {
			t.Fatal(err)
		}
		asks(old, "a version above 1 was withdrawn just now")
		w.exec("UPDATE daybook.saga_names SET newest_since = newest_since - interval '1 minute'")
		asks(old, "")
		asks(next, "")
		asks(old, "version 2 is installed")
	}
	if got := w.number("SELECT epoch FROM daybook.segments WHERE consumer = 'saga-script'"); got != 5 {
		t.Errorf("two versions, two that were withdrawn and came back: the epoch is %d", got)
	}
}

// The newest version dies whenever it has taken the events: health of the others says so all the same, until one commits.
func TestTheNewestVersionDiesAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1), script(2))
	m := w.manager(quick(), script(1))
	w.start(m)
	w.open("x")
	livetest.Eventually(t, "health says that nobody takes events", func() bool {
		w.exec(`UPDATE daybook.segments SET owner = 'dead', epoch = epoch + 1, expires_at = clock_timestamp() + interval '200 ms'
WHERE consumer = 'saga-script' AND expires_at < clock_timestamp()`)
		h := m.Health(t.Context())
		return !h.Ready && h.State == "outdated" && strings.Contains(h.Reason, "none takes them")
	})
	w.start(w.manager(quick(), script(1), script(2)))
	w.sees("x", 1, "opened")
	livetest.Eventually(t, "it is ready", func() bool { return m.Health(t.Context()).Ready })
}

// Looks at who owns the events, a second apart, with a lease of two seconds.
func TestAbsence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks string // a digit is the epoch of an owner, a point that there is none, an exclamation mark a commit before the look
		want  int    // since which look nobody takes events; -1: somebody does
	}{
		"it has always run":              {"111111", -1},
		"none runs":                      {"...", 0},
		"it ends":                        {"11...", 2},
		"an owner dies at once":          {"1.22.33.", 1},
		"it dies, and the next is there": {"1122334455", 2},
		"it commits":                     {"..2!2", -1},
		"it commits, and dies":           {"..2!2..", 4},
		"it commits and is gone before it was seen": {"..!.", -1},
		"nothing comes, and it stays":               {"..222222", -1},
		"it does not stay yet":                      {"..22222", 0},
	} {
		var a absence
		began, now, committed := time.Unix(1000, 0), time.Unix(1000, 0), time.Time{}
		for _, look := range c.looks {
			if look == '!' {
				committed = now
				continue
			}
			a.sees(now, look != '.', int64(look), committed, 2*time.Second)
			now = now.Add(time.Second)
		}
		got := -1
		if !a.alone.IsZero() {
			got = int(a.alone.Sub(began) / time.Second)
		}
		if got != c.want {
			t.Errorf("%s: want %d, got %d", name, c.want, got)
		}
	}
}

// withoutAnswers is version 1 of the script that does not read answers.
type withoutAnswers struct{ *scripted }

func (m withoutAnswers) Parts() (flow.Parts, error) { return flow.Parts{Machine: m}, nil }
func (m withoutAnswers) Types() []string {
	return slices.DeleteFunc(m.scripted.Types(), func(name string) bool { return name == "script.answered" })
}

// A program that runs since before there was a newer version keeps what comes for the instances of that version when it is
// withdrawn, also what only that version reads.
func TestAnswersOfWithdrawnVersions(t *testing.T) {
	t.Parallel()
	old := withoutAnswers{script(1)}
	w := newScriptWorld(t, old)
	w.start(w.manager(quick(), old))
	w.open("first")
	w.sees("first", 1, "opened")
	stop := w.start(w.manager(quick(), old, script(2)))
	w.becomes("the newest", "2", "SELECT newest::text FROM daybook.saga_names")
	w.open("other", "send one")
	w.sees("other", 1, "opened")
	stop()
	o := Operator{DB: w.pool, Actor: "ann", Reason: "2 is rolled back"}
	if err := o.Withdraw(t.Context(), "script", 1); err != nil {
		t.Fatal(err)
	}
	w.keepsAnswer("other")
	w.start(w.manager(quick(), old, script(2)))
	w.sees("other", 1, "opened; answered one")
}

// An owner keeps what comes for instances of an older version that it lacks from when a program has said what that reads.
func TestAnswersOfVersionsThatComeLater(t *testing.T) {
	t.Parallel()
	next := withoutAnswers{script(2)}
	w := newScriptWorld(t, next)
	w.start(w.manager(quick(), next))
	w.open("other", "send one")
	w.sees("other", 1, "opened")
	w.exec("UPDATE daybook.sagas SET version = 1")
	if err := Install(t.Context(), w.pool, script(1)); err != nil {
		t.Fatal(err)
	}
	w.keepsAnswer("other")
	w.start(w.manager(quick(), next, script(1)))
	w.sees("other", 1, "opened; answered one")
}

// keepsAnswer answers the command of an instance, whose version is not there, and waits until that is kept.
func (w *scriptWorld) keepsAnswer(key string) {
	w.t.Helper()
	w.answer(idOf("script", key, 1, "one", 1))
	w.open("behind")
	w.sees("behind", 1, "opened")
	w.becomes("what is kept", "1handler_missing", "SELECT held || stuck FROM daybook.sagas WHERE key = $1", key)
}

// Programs that are installed at the same time lose nothing of each other.
func TestEnrolledAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	types := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	var all sync.WaitGroup
	for n, name := range types {
		all.Go(func() {
			if err := enrol(t.Context(), w.pool, "daybook", "script", n+1, []string{name}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want := strings.Join(append(types, script(1).Types()...), " ") + " 8"
	if got := w.value("SELECT array_to_string(types, ' ') || ' ' || newest FROM daybook.saga_names"); got != want {
		t.Errorf("the store knows %s", got)
	}
}
