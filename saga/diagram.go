package saga

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// chart is a flowchart that is being written.
type chart struct{ lines []string }

func newChart() *chart { return &chart{lines: []string{"flowchart TD"}} }

func (c *chart) add(format string, args ...any) {
	c.lines = append(c.lines, "  "+fmt.Sprintf(format, args...))
}

func (c *chart) String() string { return strings.Join(c.lines, "\n") + "\n" }

// label makes a quoted label of lines of text.
func label(lines ...string) string {
	kept := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return s == "" })
	for n := range kept {
		kept[n] = escaped(kept[n])
	}
	return `"` + strings.Join(kept, "<br/>") + `"`
}

// escaped writes what has a meaning in Mermaid, or in the HTML that it makes, by its number.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < ' ' {
			r = ' '
		}
		if strings.ContainsRune("\"#&;<>`\\[]{}()|", r) {
			b.WriteString("#" + strconv.Itoa(int(r)) + ";")
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// wires are the events of one outcome, sorted.
func wires(s *stepPlan, o outcome) string {
	var names []string
	for wire, a := range s.answers {
		if a.outcome == o {
			names = append(names, wire)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " or ")
}

func (s *stepPlan) attempts() string {
	switch {
	case s.retry.Forever:
		return "tried without end"
	case s.retry.Attempts > 1:
		return fmt.Sprintf("%d attempts", s.retry.Attempts)
	}
	return ""
}

// processChart draws a Process: forth on one side, back on the other.
type processChart struct {
	*chart
	m    *processMachine
	node map[*stepPlan]string // steps
	undo map[*stepPlan]string // what undoes them, where something does
	back map[*stepPlan]string // where it goes on from a step that was not done
}

const (
	completedNode   = "completed"
	compensatedNode = "compensated"
)

func (m *processMachine) diagram() string {
	c := &processChart{chart: newChart(), m: m, node: map[*stepPlan]string{}, undo: map[*stepPlan]string{}, back: map[*stepPlan]string{}}
	for n, s := range m.steps {
		c.node[s] = fmt.Sprintf("s%d", n+1)
		if s.undo.isSet() && !s.behind {
			c.undo[s] = fmt.Sprintf("u%d", n+1)
		}
	}
	c.add("begin([%s])", label(strings.Join(slices.Sorted(maps.Keys(m.starts)), " or ")))
	for n := range m.entries {
		c.entry(n)
	}
	c.add("%s([%s])", completedNode, label("completed", m.completed.name))
	c.way()
	if len(c.undo) > 0 || m.pivot == nil || len(m.steps) > 0 && m.steps[0] != m.pivot {
		c.backward()
	}
	return c.String()
}

func (c *processChart) entry(n int) {
	e := c.m.entries[n]
	if !e.group {
		c.step("", e.steps[0])
		return
	}
	title := e.name + ", together"
	if e.cond != nil {
		title += ", if its condition holds"
	}
	c.add("subgraph g%d[%s]", n+1, label(title))
	for _, s := range e.steps {
		c.step("  ", s)
	}
	c.add("end")
}

func (c *processChart) step(indent string, s *stepPlan) {
	condition := ""
	if s.cond != nil {
		condition = "if its condition holds"
	}
	shape := [2]string{"[", "]"}
	pivot := ""
	if s.pivot {
		shape, pivot = [2]string{"{{", "}}"}, "no way back from here"
	}
	c.add("%s%s%s%s%s", indent, c.node[s], shape[0], label(s.name, s.send.name, condition, s.attempts(), pivot), shape[1])
}

// at is where arrows to and from an entry begin and end.
func (c *processChart) at(n int) string {
	if e := c.m.entries[n]; !e.group {
		return c.node[e.steps[0]]
	}
	return fmt.Sprintf("g%d", n+1)
}

// way draws the arrows from the beginning to the end.
func (c *processChart) way() {
	from := "begin"
	for n, e := range c.m.entries {
		if n == 0 {
			c.add("%s --> %s", from, c.at(n))
		}
		to := completedNode
		if n+1 < len(c.m.entries) {
			to = c.at(n + 1)
		}
		text := "all are done"
		if !e.group {
			if text = wires(e.steps[0], succeeded); text == "" {
				text = "carried out"
			}
		}
		c.add("%s -->|%s| %s", c.at(n), label(text), to)
	}
}

// backward draws what undoes what, in the order in which it happens.
func (c *processChart) backward() {
	to := compensatedNode // where the way back goes on from what comes next
	for _, e := range c.m.entries {
		// Members of a group are undone one after the other, whichever of them was refused.
		before := to
		for _, s := range e.steps {
			if u := c.undo[s]; u != "" {
				c.add("%s[/%s/]", u, label("undo "+s.name, s.undo.name))
				c.add("%s --> %s", u, to)
				to = u
			} else if s.nothingToUndo != "" {
				c.add("n%s>%s]", c.node[s], label("nothing to undo", s.nothingToUndo))
				c.add("%s -.- n%s", c.node[s], c.node[s])
			}
		}
		for _, s := range e.steps {
			if c.back[s] = before; e.group {
				c.back[s] = to
			}
		}
	}
	c.add("%s([%s])", compensatedNode, label("compensated", c.m.compensated.name))
	for _, s := range c.m.steps {
		if s.behind {
			continue
		}
		text := "refused"
		if names := wires(s, refused); names != "" {
			text = names
		}
		if names := wires(s, failed); names != "" {
			text += ", or " + names + " once too often"
		}
		c.add("%s -.->|%s| %s", c.node[s], label(text), c.back[s])
		if s.deadline > 0 {
			own := c.undo[s]
			if own == "" || s.group != "" { // the others are undone too
				own = c.back[s]
			}
			c.add("%s -.->|%s| %s", c.node[s], label("no outcome within "+s.deadline.String()), own)
		}
	}
}

// diagram draws what a Flow reacts to; what its reactions do, only they know.
func (m *flowMachine) diagram() string {
	c := newChart()
	c.add("begin([%s])", label(strings.Join(slices.Sorted(maps.Keys(m.starts)), " or ")))
	c.add("flow[%s]", label(m.name, "version "+strconv.Itoa(m.version)))
	c.add("begin --> flow")
	for n, wire := range slices.Sorted(maps.Keys(m.caused)) {
		c.add("e%d([%s]) -->|%s| flow", n+1, label(wire), label("caused by its commands"))
	}
	for n, wire := range slices.Sorted(maps.Keys(m.byKey)) {
		c.add("k%d([%s]) -->|%s| flow", n+1, label(wire), label("by key"))
	}
	for n, timer := range slices.Sorted(maps.Keys(m.timers)) {
		c.add("t%d((%s)) -->|%s| flow", n+1, label(timer), label("timer"))
	}
	c.add("flow --> commands[%s]", label("commands"))
	c.add("flow --> ends([%s])", label("completed or compensated"))
	return c.String()
}

func (m *afterMachine) diagram() string {
	c := newChart()
	spread := ""
	if m.spread > 0 {
		spread = "and up to " + m.spread.String()
	}
	c.add("begin([%s]) --> wait((%s))", label(slices.Sorted(maps.Keys(m.starts))...), label(m.wait.String(), spread))
	name := ""
	if m.when.payload != nil {
		name = m.when.payload.Name()
	}
	c.add("wait --> send[%s]", label(name))
	for n, wire := range slices.Sorted(maps.Keys(m.keys)) {
		c.add("wait -->|%s| not%d([%s])", label(wire), n+1, label("not sent"))
	}
	return c.String()
}

func (m *reactorMachine) diagram() string {
	c := newChart()
	n := 0
	for e, wire := range m.types {
		c.add("e%d([%s])", e+1, label(wire))
		for _, t := range m.when[wire] {
			n++
			name := "any number of commands"
			if !t.many && t.payload != nil {
				name = t.payload.Name()
			}
			c.add("e%d --> c%d[%s]", e+1, n, label(name))
		}
	}
	return c.String()
}
