package saga

import "fmt"

// DefinitionError is one fault of a definition. The program has to be changed.
type DefinitionError struct {
	Saga    string
	Version int
	Step    string // empty: the fault is not that of one step
	Reason  string
	Remedy  string
}

// Error names saga, version, step, reason and remedy.
func (e *DefinitionError) Error() string {
	at := ""
	if e.Step != "" {
		at = fmt.Sprintf("step %q: ", e.Step)
	}
	return fmt.Sprintf("saga: define %q version %d: %s%s: %s", e.Saga, e.Version, at, e.Reason, e.Remedy)
}

// ActionError says why an operator's action cannot be taken on an instance as it stands. Nothing was changed.
type ActionError struct {
	Action string // retry, answer, cancel, mark
	Saga   string
	Key    string
	Run    int
	Step   string // empty: the action is not about one step
	Reason string
	Remedy string
}

// Error names action, instance, step, reason and remedy.
func (e *ActionError) Error() string {
	at := ""
	if e.Step != "" {
		at = fmt.Sprintf(" step %q of", e.Step)
	}
	return fmt.Sprintf("saga: %s%s %s %q run %d: %s: %s", e.Action, at, e.Saga, e.Key, e.Run, e.Reason, e.Remedy)
}
