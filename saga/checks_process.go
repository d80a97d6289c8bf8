package saga

import (
	"reflect"
)

// checkProcess finds what would keep a saga from coming to an end that is known.
func checkProcess[S any](c *checks, p *Process[S]) {
	c.named()
	checkState[S](c)
	checkStart(c, p.Start)
	checkCommand(c, "", "Completed", p.Completed)
	checkCommand(c, "", "Compensated", p.Compensated)
	checkRetry(c, "", "UndoRetry", p.UndoRetry)
	checkDuration(c, "", "UndoDeadline", p.UndoDeadline)
	if len(p.Steps) == 0 {
		c.fault("", "declare a step", "field Steps is empty")
	}
	s := stepChecks[S]{checks: c, names: map[string]bool{}, byKey: map[reflect.Type]string{}, pivot: pivotOf(p)}
	for n := range p.Steps {
		if step := &p.Steps[n]; step.Together != nil {
			s.group(n, step)
		} else {
			s.step(n, step)
		}
	}
}

// pivotOf is the place of the pivot in the list; behind its end when there is none.
func pivotOf[S any](p *Process[S]) int {
	for n := range p.Steps {
		if p.Steps[n].Pivot {
			return n
		}
	}
	return len(p.Steps)
}

type stepChecks[S any] struct {
	*checks
	names map[string]bool
	byKey map[reflect.Type]string // the step that an event answers by key
	pivot int
}

func (c *stepChecks[S]) name(step *Step[S]) {
	switch {
	case !stepForm.MatchString(step.Name):
		c.fault(step.Name, "use 1 to 48 of a-z, 0-9 and dashes", "field Name: %q is no name", step.Name)
	case reserved(step.Name):
		c.fault(step.Name, "use another name", "field Name: %q is what the last command is called", step.Name)
	case c.names[step.Name]:
		c.fault(step.Name, "give each step a name of its own", "field Name: %q is there twice", step.Name)
	}
	c.names[step.Name] = true
}

// group checks steps that begin together. n is its place in the list.
func (c *stepChecks[S]) group(n int, g *Step[S]) {
	c.name(g)
	if len(g.Together) == 0 {
		c.fault(g.Name, "put steps into it, or leave Together out", "field Together is empty")
	}
	if g.Send.isSet() || g.Undo.isSet() || g.Succeeded != nil || g.Refused != nil || g.Failed != nil || g.Deadline != 0 ||
		g.Retry != (Retry{}) || g.NothingToUndo != "" {
		c.fault(g.Name, "set it at the steps inside", "a group has no other field than Name, If and Together")
	}
	if g.Pivot {
		c.fault(g.Name, "make a single step the pivot", "field Pivot: a group is done bit by bit, so it cannot be where there is no way back")
	}
	for k := range g.Together {
		member := &g.Together[k]
		if member.Pivot {
			c.fault(member.Name, "put the step after the group "+g.Name, "field Pivot: the pivot is inside of a group")
		}
		if member.Together != nil {
			c.name(member)
			c.fault(member.Name, "put its steps into "+g.Name, "field Together: it is a group inside of a group")
			continue
		}
		c.step(n, member)
	}
}

func (c *stepChecks[S]) step(n int, step *Step[S]) {
	c.name(step)
	if !step.Send.isSet() {
		c.fault(step.Name, "set it with saga.Send", "field Send is empty")
	}
	checkCommand(c.checks, step.Name, "Send", step.Send)
	checkCommand(c.checks, step.Name, "Undo", step.Undo)
	checkRetry(c.checks, step.Name, "Retry", step.Retry)
	checkDuration(c.checks, step.Name, "Deadline", step.Deadline)
	c.answers(step)
	c.turning(n, step)
}

// turning checks what follows from where a step stands.
func (c *stepChecks[S]) turning(n int, step *Step[S]) {
	way := step.Undo.isSet() || step.NothingToUndo != ""
	if n < c.pivot && !way {
		c.fault(step.Name, "set Undo, or say in NothingToUndo why none is needed, or make it the Pivot", "it is before the pivot and has neither Undo nor NothingToUndo")
	}
	if step.Undo.isSet() && step.NothingToUndo != "" {
		c.fault(step.Name, "leave one of them out", "it has both Undo and NothingToUndo")
	}
	if step.Deadline > 0 && !step.Undo.isSet() {
		remedy := "set Undo, or leave Deadline out"
		if step.NothingToUndo != "" {
			remedy = "set Undo in place of NothingToUndo, or leave Deadline out"
		}
		c.fault(step.Name, remedy, "it has a Deadline and no Undo: its answer may come after all")
	}
	if n > c.pivot && len(step.Refused) > 0 {
		c.fault(step.Name, "put the step before the pivot, or take Refused out", "it is behind the pivot and can be refused, where there is no way back")
	}
	if n < c.pivot && step.Retry.Forever {
		c.fault(step.Name, "set Attempts, or put the step behind the pivot", "field Retry: Forever before the pivot: the saga might never end")
	}
	if n > c.pivot && step.Pivot {
		c.fault(step.Name, "keep one pivot", "field Pivot: there is a pivot before it")
	}
}

func (c *stepChecks[S]) answers(step *Step[S]) {
	seen := map[reflect.Type]bool{}
	for _, some := range answersOf(step) {
		for _, a := range some.answers {
			if !c.event(step.Name, some.field, a.event) {
				continue
			}
			if a.fold == nil {
				c.fault(step.Name, "pass a function that returns the state", "field %s: %s has no function", some.field, a.event)
			}
			if seen[a.event] {
				c.fault(step.Name, "keep one", "field %s: %s answers it twice", some.field, a.event)
			}
			seen[a.event] = true
			if a.key == nil {
				continue
			}
			c.keyed(step.Name, some.field, a.event, a.key)
			if other, taken := c.byKey[a.event]; taken && other != step.Name {
				c.fault(step.Name, "use On in one of them, or events of two types", "field %s: %s answers step %q by key too, and nothing tells which is meant", some.field, a.event, other)
			}
			c.byKey[a.event] = step.Name
		}
	}
	if len(step.Succeeded) == 0 && len(step.Refused)+len(step.Failed) > 0 {
		c.fault(step.Name, "name the event of success in Succeeded", "it has Refused or Failed and no Succeeded: that its command was carried out would count as success, also when its answer is a refusal")
	}
}
