package saga_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/saga"
)

// Where the model ends at a pivot that was given up, of which nobody knows what became, an answer that comes after all leads on:
// a refusal to the end of a compensation, a failure to that or to another attempt, a success to what is behind the pivot.
func TestModelOfPivotsThatWereGivenUp(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	for n, left := 0, testscale.N(300); left > 0; n++ {
		if n == 200_000 {
			t.Fatalf("%d are missing: %v", left, found)
		}
		w := &modelWorld{
			rand: rand.New(rand.NewPCG(uint64(n), 11)), timers: map[string]bool{}, sent: map[uuid.UUID]flow.Command{},
			outcome: map[uuid.UUID]flow.ReplyState{}, effective: map[uuid.UUID]bool{}, tombs: map[uuid.UUID]bool{}, closed: map[uuid.UUID]bool{},
			steps: map[string]saga.Step[modelState]{}, forth: map[string]bool{}, undoes: map[string]uuid.UUID{},
		}
		parts, err := w.process().Parts()
		if err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}
		w.m = parts.Machine
		if pivot := w.steps[w.pivot]; len(pivot.Refused) == 0 || w.undoable(pivot) {
			continue
		}
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v\n%s", n, err, strings.Join(w.lines, "\n"))
		}
		s := w.i.Step(w.pivot)
		if s == nil || s.State != flow.Refused || w.i.State != flow.Running {
			continue
		}
		left--
		answer := []any{modelRefused{}, modelBusy{}, modelDone{}}[w.rand.IntN(3)]
		if fault := w.answersGivenUp(s, answer); fault != nil {
			t.Fatalf("seed %d, %T: %v\n%s", n, answer, fault, strings.Join(w.lines, "\n"))
		}
		found[fmt.Sprintf("%T", answer)]++
	}
	if len(found) != 3 {
		t.Errorf("there was none for some answers: %v", found)
	}
}

// answersGivenUp lets the answer come, and what follows from it.
func (w *modelWorld) answersGivenUp(s *flow.Step, answer any) error {
	in := w.event(answer)
	in.Origin = flow.Origin{ID: flow.CommandID(w.i.Ref, s.Name, flow.Do, s.Intent), Step: s.Name, Direction: flow.Do, Intent: s.Intent}
	if _, done := answer.(modelDone); done {
		w.effective[in.Origin.ID] = true // outside
	}
	attempts := s.Attempts
	w.log("event %T of %s %d, which was given up", answer, s.Name, s.Intent)
	if err := w.react(in); err != nil {
		return err
	}
	s = w.i.Step(w.pivot)
	switch answer.(type) {
	case modelRefused:
		if w.i.State == flow.Running {
			return fmt.Errorf("it is not undone")
		}
	case modelBusy:
		if s.Attempts != attempts+1 || w.i.Stuck.Step == w.pivot {
			return fmt.Errorf("it does not go on: %+v", w.i.Stuck)
		}
	default:
		if s.State != flow.Done {
			return fmt.Errorf("it is %s", s.State)
		}
	}
	for range 5_000 {
		var err error
		switch {
		case len(w.queue) > 0:
			err = w.deliver()
		case len(w.timers) > 0:
			err = w.fire()
		default:
			return w.settled()
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("there is no end")
}
