package postgres

import "testing"

// What is broadcast between a reader's look at the head and its wait must end the wait at once: nothing else may come for
// long.
func TestNoBroadcastFallsBetweenReadingAndWaiting(t *testing.T) {
	t.Parallel()
	var s signal
	var n noted
	over := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	before := s.now()
	s.broadcast() // while the reader reads
	n.note(7, before)
	if !over(s.after(n.count(7, s.now()))) {
		t.Error("the reader waits for what it was told already")
	}
	n.note(7, s.now())
	waiting := s.after(n.count(7, s.now()))
	if over(waiting) {
		t.Error("a reader that has looked since does not wait")
	}
	s.broadcast()
	if !over(waiting) {
		t.Error("a reader that waits is not woken")
	}
	if over(s.after(n.count(8, s.now()))) {
		t.Error("a reader that nobody knows does not wait")
	}
	for i := range int64(10 * maxNoted) {
		n.note(i, 0)
		if len(n.ends) > maxNoted {
			t.Fatalf("%d ends are remembered", len(n.ends))
		}
	}
}
