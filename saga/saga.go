package saga

import (
	"regexp"

	"github.com/daybook-go/daybook/internal/flow"
)

// Definition is what a manager runs: what [Define], [After] and [NewReactor] return. It is immutable and safe for concurrent
// use; keep it in a package variable.
type Definition interface {
	// Name and Version tell definitions apart.
	Name() string
	Version() int
	// Validate returns what is wrong with it, each fault as a [*DefinitionError], joined; nil when it can run. Managers ask
	// when they are made, and a test of the domain may.
	Validate() error
	// Diagram draws it as a flowchart, in the language of Mermaid. The same definition always gives the same text. A definition
	// that is not valid is drawn as far as it is understood.
	Diagram() string
	// Parts is for managers and tests of this module: its types are internal. The error is that of Validate.
	Parts() (flow.Parts, error)
}

// Spec is what [Define] makes a definition of: a [Process] or a [Flow]. No other type implements it.
type Spec interface {
	define() *definition
}

// Define checks a specification and makes it runnable. What is wrong is reported by Definition.Validate, by NewManager and by
// package sagatest, and not here, so that a package variable can hold the result.
func Define(s Spec) Definition {
	if s == nil {
		return &definition{err: &DefinitionError{Reason: "Define was given nil", Remedy: "pass a Process or a Flow"}}
	}
	return s.define()
}

// definition is a checked specification without its type parameters.
type definition struct {
	name    string
	version int
	parts   flow.Parts
	err     error
	diagram func() string
	sends   []sends
}

func (d *definition) Name() string    { return d.name }
func (d *definition) Version() int    { return d.version }
func (d *definition) Validate() error { return d.err }

func (d *definition) Diagram() string {
	if d.diagram == nil {
		return ""
	}
	return d.diagram()
}

func (d *definition) Parts() (flow.Parts, error) {
	if d.err != nil {
		return flow.Parts{}, d.err
	}
	return d.parts, nil
}

var (
	nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	stepForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,47}$`)
)
