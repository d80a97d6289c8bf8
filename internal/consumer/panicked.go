package consumer

import (
	"fmt"

	"github.com/daybook-go/daybook/internal/panics"
)

// panicError is a panic of user code. Its text has the value, which is user code's own; its stack goes to the log only.
type panicError struct {
	what, text string
	value      any
	stack      string
	cause      error
}

func (e *panicError) Error() string { return e.text }
func (e *panicError) Unwrap() error { return e.cause }

// Panicked makes an error of a panic that is being recovered: call it in the function that recovers. what names what
// panicked, package first. The worker logs where it came from.
func Panicked(what string, value any) error {
	e := &panicError{what: what, value: value, stack: panics.Stack()}
	e.cause, _ = value.(error)
	e.text = fmt.Sprintf("%s panicked: %v", what, value) // survives methods that panic
	return e
}

// StackOf is where the panic in an error came from; empty when there is none.
func StackOf(err error) string {
	if p := panicOf(err); p != nil {
		return p.stack
	}
	return ""
}

// alone is the panic without the error that was its value, whose methods may panic again.
func (e *panicError) alone() error {
	return &panicError{what: e.what, text: e.text, value: e.value, stack: e.stack}
}
