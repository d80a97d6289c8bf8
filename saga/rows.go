package saga

import (
	"strconv"
	"strings"

	"github.com/daybook-go/daybook/internal/flow"
)

// timerQueue is the queue of the timers of a saga.
func timerQueue(saga string) string { return "saga:" + saga }

// timerPrefix begins the names of the timers of one run of an instance, and of no other. Part of the stored form.
func timerPrefix(ref flow.Ref) string {
	return strconv.Itoa(len(ref.Key)) + ":" + ref.Key + ":" + strconv.Itoa(ref.Run) + ":"
}

// timerName is the name of a timer of an instance within its saga's queue.
func timerName(ref flow.Ref, name string) string { return timerPrefix(ref) + name }

// timersAfter is the first name, in the order of their bytes, that is behind all timers of an instance: they are from
// [timerPrefix], this one not included.
func timersAfter(ref flow.Ref) string {
	p := timerPrefix(ref)
	return p[:len(p)-1] + string(':'+1)
}

// parseTimer is the opposite of timerName, for a saga.
func parseTimer(saga, text string) (ref flow.Ref, name string, ok bool) {
	length, rest, ok := strings.Cut(text, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || len(rest) < n+1 || rest[n] != ':' {
		return ref, "", false
	}
	run, name, ok := strings.Cut(rest[n+1:], ":")
	ref = flow.Ref{Saga: saga, Key: rest[:n]}
	if ref.Run, err = strconv.Atoi(run); err != nil || !ok {
		return ref, "", false
	}
	return ref, name, true
}
