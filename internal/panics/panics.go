// Package panics says of a panic what may be logged: where it came from, and what kind it was. Its value may hold what was
// sent, money or the names of people, and so may the words that functions were called with, which [runtime/debug.Stack]
// prints.
package panics

import (
	"fmt"
	"runtime"
	"strings"
)

// Describe is what may be logged of a panic's value: its type, and what the runtime itself says, which has types, indexes
// and lengths alone.
func Describe(value any) string {
	if _, ok := value.(runtime.Error); ok {
		return fmt.Sprintf("%T: %v", value, value)
	}
	return fmt.Sprintf("%T", value)
}

// Stack is where the panic that is being recovered came from: functions and lines. Call it in the function that recovers.
func Stack() string {
	var text strings.Builder
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)]) // above the function that recovers
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&text, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return text.String()
}
