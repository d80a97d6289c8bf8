package saga_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/saga"
)

// The model: any list of steps, receivers that keep to the rules for receivers, and a world that delivers everything at least
// once, in any order, with deadlines at any time. The saga must come to a known end, and the sum of what took effect must fit.

// rules that may be left out, to see that the model notices.
type rules struct {
	noTombstones bool // a receiver forgets that it was told to undo what had not come yet, and nobody asks the saga
	newIDs       bool // what is sent again has another id
	noLate       bool // answers that come late are lost
	lostReplies  bool // that a command was carried out comes late, and is lost
	patient      bool // nobody calls refused what is under way
	notAsked     bool // what was given up is carried out once more without asking the saga
}

func TestModel(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	for n := range testscale.N(10_000) {
		end, fault := play(t, uint64(n), rules{})
		if fault != "" {
			t.Fatalf("seed %d: %s", n, fault)
		}
		ends[end]++
	}
	for _, end := range []string{"completed", "compensated", "dead_letter", "compensation_failed"} {
		if ends[end] == 0 {
			t.Errorf("no run ended as %s: %v", end, ends)
		}
	}
}

func TestModelNoticesWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]rules{
		// Where it is told late, the saga undoes once more what came behind its undo.
		"tombstones": {noTombstones: true, lostReplies: true, patient: true}, "late replies": {lostReplies: true}, "ids by intent": {newIDs: true}, "late answers": {noLate: true},
		"asking": {notAsked: true},
	} {
		noticed := ""
		for n := 0; n < 20_000 && noticed == ""; n++ {
			_, noticed = play(t, uint64(n), left)
		}
		if noticed == "" {
			t.Errorf("%s: nothing is noticed", name)
		}
	}
}

func play(t *testing.T, seed uint64, left rules) (end, fault string) {
	t.Helper()
	w := &modelWorld{
		rand: rand.New(rand.NewPCG(seed, 7)), rules: left, timers: map[string]bool{}, sent: map[uuid.UUID]flow.Command{},
		outcome: map[uuid.UUID]flow.ReplyState{}, effective: map[uuid.UUID]bool{}, tombs: map[uuid.UUID]bool{}, closed: map[uuid.UUID]bool{},
		steps: map[string]saga.Step[modelState]{}, forth: map[string]bool{}, undoes: map[string]uuid.UUID{},
	}
	d := w.process()
	parts, err := d.Parts()
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	w.m = parts.Machine
	if err := w.run(); err != nil {
		return "", fmt.Sprintf("%v\n%s", err, strings.Join(w.lines, "\n"))
	}
	if w.i.State.Over() {
		return string(w.i.State), ""
	}
	return w.i.Stuck.Reason, ""
}

type (
	modelState   struct{ Answers int }
	modelStart   struct{}
	modelDone    struct{}
	modelRefused struct{}
	modelBusy    struct{}
	modelCommand struct{ Answers int }
)

var modelEvents = eventstore.NewCatalog(
	eventstore.TypeOf[modelStart]("model.start"), eventstore.TypeOf[modelDone]("model.done"),
	eventstore.TypeOf[modelRefused]("model.refused"), eventstore.TypeOf[modelBusy]("model.busy"),
)

func counted[E any](s modelState, _ saga.Event[E]) modelState { s.Answers++; return s }

func (s modelState) command() (string, modelCommand) { return "", modelCommand(s) }

type modelWorld struct {
	rules
	rand  *rand.Rand
	m     flow.Machine
	i     *flow.Instance
	steps map[string]saga.Step[modelState]
	pivot string
	late  map[string]bool // behind the pivot

	queue  []message
	timers map[string]bool
	sent   map[uuid.UUID]flow.Command
	count  int
	lines  []string

	outcome   map[uuid.UUID]flow.ReplyState // what a receiver keeps under a command's id
	effective map[uuid.UUID]bool            // commands that have taken effect, and are not undone
	tombs     map[uuid.UUID]bool            // commands that were undone before they came
	closed    map[uuid.UUID]bool            // what the saga tells who asks
	done      []string                      // steps in the order in which the saga took them as done
	// Members of a group that were being undone when the saga turned around, so as to be tried again, go on.
	forth  map[string]bool
	undoes map[string]uuid.UUID
}

// message is on its way: one of a command, an event, a reply, an effect that is about to happen outside, and a redrive.
type message struct {
	command *flow.Command
	event   any
	reply   flow.ReplyState
	outside bool
	redrive bool // an operator sends what was given up once more, when its outcome is forgotten
	origin  flow.Origin
}

func (w *modelWorld) chance(percent int) bool { return w.rand.IntN(100) < percent }

// process makes any definition that the checks let through.
func (w *modelWorld) process() saga.Definition {
	p := saga.Process[modelState]{
		Name: "model", Version: 1, Events: modelEvents,
		Start: saga.StartOn(func(saga.Event[modelStart]) modelState { return modelState{} }), UndoRetry: saga.Retry{Attempts: 3},
	}
	w.late = map[string]bool{}
	n := 1 + w.rand.IntN(4)
	pivot := w.rand.IntN(n + 2) // may be none
	for k := range n {
		name := fmt.Sprintf("s%d", k)
		if k != pivot && w.chance(25) {
			g := saga.Step[modelState]{Name: name}
			for j := range 2 + w.rand.IntN(2) {
				g.Together = append(g.Together, w.step(fmt.Sprintf("%s-%d", name, j), k, pivot))
			}
			p.Steps = append(p.Steps, g)
			continue
		}
		p.Steps = append(p.Steps, w.step(name, k, pivot))
	}
	if w.chance(50) {
		p.Completed, p.Compensated = saga.Send(modelState.command), saga.Send(modelState.command)
	}
	return saga.Define(p)
}

func (w *modelWorld) step(name string, k, pivot int) saga.Step[modelState] {
	s := saga.Step[modelState]{Name: name, Send: saga.Send(modelState.command), Pivot: k == pivot}
	if s.Pivot {
		w.pivot = name
	}
	behind := k > pivot
	w.late[name] = behind
	if w.chance(10) {
		s.If = func(modelState) bool { return false }
	}
	switch {
	case w.chance(80) && !behind || behind && w.chance(40):
		s.Undo = saga.Send(modelState.command)
	case !s.Pivot && !behind:
		s.NothingToUndo = "reads only"
	}
	if w.chance(70) {
		s.Succeeded = []saga.Answer[modelState]{saga.On(counted[modelDone])}
		s.Failed = []saga.Answer[modelState]{saga.On(counted[modelBusy])}
		if !behind {
			s.Refused = []saga.Answer[modelState]{saga.On(counted[modelRefused])}
		}
	}
	if w.chance(50) && w.undoable(s) {
		s.Deadline = time.Minute
	}
	s.Retry.Attempts = w.rand.IntN(4)
	if behind && w.chance(50) {
		s.Retry = saga.Retry{Forever: true}
	}
	w.steps[name] = s
	return s
}

func (w *modelWorld) undoable(s saga.Step[modelState]) bool { return !isZero(s.Undo) }

func isZero(c saga.Command[modelState]) bool {
	return fmt.Sprintf("%v", c) == fmt.Sprintf("%v", saga.Command[modelState]{})
}

func (w *modelWorld) log(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// run delivers what there is until nothing is left, and looks at the end.
func (w *modelWorld) run() error {
	in := w.event(modelStart{})
	var err error
	var fx flow.Effects
	w.i, fx, err = w.m.Begin(context.Background(), plain{}, flow.Ref{Saga: "model", Key: "1", Run: 1}, in)
	if err != nil {
		return err
	}
	if err := w.take(fx); err != nil {
		return err
	}
	helps, hasty := w.rand.IntN(3), w.chance(25)
	for range 5_000 {
		if hasty && !w.patient && w.chance(10) {
			if err := w.refuse(); err != nil {
				return err
			}
		}
		if len(w.queue) > 0 && (len(w.timers) == 0 || !w.chance(10)) {
			if err := w.deliver(); err != nil {
				return err
			}
			continue
		}
		if len(w.timers) > 0 {
			if err := w.fire(); err != nil {
				return err
			}
			continue
		}
		if w.i.Stuck.Reason == "" || helps == 0 {
			return w.settled()
		}
		helps--
		if err := w.help(); err != nil {
			return err
		}
	}
	return fmt.Errorf("there is no end")
}

// help is somebody who looks at what is stuck. A pivot that was given up has no effect here, so that it may be called refused.
func (w *modelWorld) help() error {
	act := &flow.Action{Name: flow.ActionRetry, Step: w.i.Stuck.Step, Actor: "ada", Reason: "again"}
	if s := w.i.Step(act.Step); act.Step == w.pivot && s.State == flow.Refused && w.i.State == flow.Running {
		cancel := *act
		cancel.Name, cancel.Step = flow.ActionCancel, ""
		if _, err := w.m.React(context.Background(), plain{}, w.i, flow.Input{Now: noon, Action: &cancel}); err == nil {
			return fmt.Errorf("it is cancelled, and nobody knows what became of the pivot")
		}
		if act.Refuse = w.chance(50); act.Refuse {
			act.Name = flow.ActionAnswer
		}
	}
	w.log("%s %s by hand, refused: %v", act.Name, act.Step, act.Refuse)
	return w.react(flow.Input{Action: act})
}

// refuse is somebody who calls a step refused while its command is under way, or carried out and its reply is.
func (w *modelWorld) refuse() error {
	for _, s := range w.i.Steps {
		step, sends := w.steps[s.Name]
		if !sends || s.State != flow.Waiting || w.i.State != flow.Running || w.late[s.Name] || !w.undoable(step) {
			continue
		}
		w.log("%s is refused by hand", s.Name)
		return w.react(flow.Input{Action: &flow.Action{Name: flow.ActionAnswer, Step: s.Name, Refuse: true, Actor: "bob", Reason: "hasty"}})
	}
	return nil
}

func (w *modelWorld) event(payload any) flow.Input {
	w.count++
	data, _ := modelEvents.Encode(payload)
	return flow.Input{Now: noon, Payload: payload, Event: &eventstore.RecordedEvent{
		EventData: data, Stream: eventstore.NewStreamID("model", "1"), Version: eventstore.Version(w.count), RecordedAt: noon,
	}}
}

func (w *modelWorld) react(in flow.Input) error {
	in.Now = noon
	data, form, steps, err := w.m.Encode(w.i)
	if err != nil {
		return err
	}
	if err := w.m.Restore(w.i, data, form, steps); err != nil {
		return err
	}
	fx, err := w.m.React(context.Background(), plain{}, w.i, in)
	if err != nil {
		return err
	}
	return w.take(fx)
}

// take carries out effects, and looks at what they say.
func (w *modelWorld) take(fx flow.Effects) error {
	for _, e := range fx.History {
		w.log("  %s %s: %s", e.Kind, e.Step, e.Text)
		if e.Kind == "answered" && w.steps[e.Step].Name != "" && !slices.Contains(w.done, e.Step) {
			w.done = append(w.done, e.Step)
		}
	}
	for _, id := range fx.Closed {
		w.closed[id] = true
	}
	if fx.CancelAll {
		clear(w.timers)
	}
	for _, name := range fx.Cancel {
		delete(w.timers, name)
	}
	for _, t := range fx.Timers {
		w.timers[t.Name] = true
	}
	for _, c := range fx.Commands {
		before, known := w.sent[c.ID]
		if known != c.Again {
			return fmt.Errorf("%s %s %d: sent before: %v, but again: %v", c.Direction, c.Step, c.Intent, known, c.Again)
		}
		if c.Again {
			c = before
		}
		w.sent[c.ID] = c
		if err := w.inOrder(c); err != nil {
			return err
		}
		w.queue = append(w.queue, message{command: &c})
	}
	return nil
}

// inOrder looks at an undo that compensation sends: it is the only one, and nothing that was done later is left.
func (w *modelWorld) inOrder(c flow.Command) error {
	s := w.i.Step(c.Step)
	if c.Direction == flow.Undo && w.i.State == flow.Running {
		w.forth[c.Step] = true
	}
	if c.Direction != flow.Undo || w.i.State != flow.Compensating || c.Intent != s.UndoIntent || w.forth[c.Step] && c.Undoes == w.undoes[c.Step] {
		w.undoes[c.Step] = c.Undoes
		return nil
	}
	w.undoes[c.Step] = c.Undoes
	for _, other := range w.i.Steps {
		if _, sends := w.steps[other.Name]; sends && other.Name != c.Step && !w.forth[other.Name] && (other.State == flow.Undoing || other.State == flow.UndoLater || other.State == flow.UndoFailed) {
			return fmt.Errorf("%s is undone while %s is %s", c.Step, other.Name, other.State)
		}
	}
	for n := len(w.done) - 1; n >= 0 && w.done[n] != c.Step && slices.Contains(w.done, c.Step); n-- {
		if w.i.Step(w.done[n]).State == flow.Done {
			return fmt.Errorf("%s is undone before %s, which was done later", c.Step, w.done[n])
		}
	}
	w.done = slices.DeleteFunc(w.done, func(name string) bool { return name == c.Step })
	return nil
}

func (w *modelWorld) fire() error {
	names := make([]string, 0, len(w.timers))
	for name := range w.timers {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[w.rand.IntN(len(names))]
	delete(w.timers, name)
	w.log("timer %s", name)
	return w.react(flow.Input{Timer: name})
}

// settled looks at the end, when nothing is under way any more.
func (w *modelWorld) settled() error {
	if !w.i.State.Over() {
		if w.i.Stuck.Reason == "" || w.m.Awaits(w.i) == "" {
			return fmt.Errorf("the saga is %s, and nothing is under way", w.i.State)
		}
		return nil
	}
	if w.i.Stuck != (flow.Stuck{}) || w.m.Awaits(w.i) != "" {
		return fmt.Errorf("the saga is %s, and stuck: %+v", w.i.State, w.i.Stuck)
	}
	for name, step := range w.steps {
		s := w.i.Step(name)
		effects := 0
		for id, is := range w.effective {
			if c := w.sent[id]; is && c.Step == name && c.Direction == flow.Do {
				effects++
			}
		}
		if step.NothingToUndo != "" {
			continue
		}
		want := 0
		if w.i.State == flow.Completed && s.State == flow.Done {
			want = 1
		}
		if effects != want {
			return fmt.Errorf("the saga is %s, and %s took effect %d times, want %d", w.i.State, name, effects, want)
		}
		if w.i.State == flow.Completed && s.State != flow.Done && s.State != flow.Skipped {
			return fmt.Errorf("the saga is completed, and %s is %s", name, s.State)
		}
	}
	return nil
}
