package retry_test

import (
	"container/heap"
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/retry"
	"github.com/daybook-go/daybook/internal/retry/retrytest"
)

// worker is a consumer with a stepped clock that treats failures as consumers do. Handling takes no time, so whatever a
// message waits is a decision of the components.
type worker struct {
	policy   retry.Policy
	budget   *retry.Budget
	breaker  retry.Breaker
	classify eventstore.Classifier
	handle   func(m message, attempt int, now time.Time) error
	random   func(m message, failed int) float64
	blocking bool // wrong on purpose: waits in place

	now       time.Time
	ready     queue
	sequences map[int]*sequence
	order     int

	tally    *retrytest.Tally
	log      []attempt
	putOff   int
	parked   []*sequence
	deferred time.Duration // the longest pause of the breaker that was waited out
	lasts    map[int]attempt
}

type message struct {
	id, key int
	arrives time.Time
}

// attempt is a line of the log: what reached the handler.
type attempt struct {
	message message
	number  int
	at      time.Time
	first   bool
}

// sequence has its messages in order. Only its head is tried; failed belongs to the head.
type sequence struct {
	queue    []message
	failed   int
	attempts map[int]int // of each message, over redrives too
	parked   bool
}

type turn struct {
	due   time.Time
	order int
	seq   *sequence
	new   *message
}

type queue []turn

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].due.Before(q[j].due) || q[i].due.Equal(q[j].due) && q[i].order < q[j].order
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(turn)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newWorker(seed uint64) *worker {
	return &worker{
		budget: new(retry.Budget), now: start, sequences: map[int]*sequence{}, tally: new(retrytest.Tally),
		breaker:  retry.Breaker{Random: func() float64 { return 0.5 }},
		classify: func(error) eventstore.FailureKind { return eventstore.Transient },
		handle:   func(m message, attempt int, _ time.Time) error { return retrytest.Fate(seed, m.id, attempt) },
		random:   func(m message, failed int) float64 { return retrytest.Chance(seed+1e6, m.id, failed) },
	}
}

func (w *worker) at(due time.Time, seq *sequence, m *message) {
	w.order++
	heap.Push(&w.ready, turn{due, w.order, seq, m})
}

func (w *worker) arrive(messages ...message) {
	for _, m := range messages {
		w.at(m.arrives, nil, &m)
	}
}

// run goes on until nothing is left to do before the end, and for at most a million steps.
func (w *worker) run(end time.Time) error {
	for range 1_000_000 {
		if len(w.ready) == 0 || !w.ready[0].due.Before(end) {
			return nil
		}
		if due := w.ready[0].due; due.After(w.now) {
			w.now = due
		}
		if !w.breaker.Probe(w.now) {
			wait := w.breaker.Wait(w.now)
			w.deferred = max(w.deferred, wait)
			w.now = w.now.Add(wait)
			continue
		}
		next := heap.Pop(&w.ready).(turn)
		if next.new == nil {
			w.try(next.seq)
			continue
		}
		w.breaker.Undecided()
		seq := w.sequences[next.new.key]
		if seq == nil {
			seq = &sequence{attempts: map[int]int{}}
			w.sequences[next.new.key] = seq
		}
		seq.queue = append(seq.queue, *next.new)
		if len(seq.queue) == 1 && !seq.parked {
			w.at(w.now, seq, nil)
		}
	}
	return errors.New("a million steps and no end")
}

// try makes the next attempt at the head of a sequence, or puts it off.
func (w *worker) try(seq *sequence) {
	m := seq.queue[0]
	if seq.failed == 0 {
		w.budget.First(w.now, 1)
	} else if ok, wait := w.budget.Retry(w.now); !ok {
		w.putOff++
		w.breaker.Undecided()
		w.at(w.now.Add(wait), seq, nil)
		return
	}
	number := seq.attempts[m.id] + 1
	w.log = append(w.log, attempt{m, number, w.now, seq.failed == 0})
	err := w.handle(m, number, w.now)
	kind := eventstore.Transient
	if err != nil {
		kind = w.classify(err)
	}
	if err != nil && kind == eventstore.Environment {
		w.breaker.Failed(w.now)
		w.at(w.now, seq, nil)
		return
	}
	w.breaker.Succeeded()
	seq.attempts[m.id] = number
	if err == nil {
		w.tally.Delivered(m.id, seq.failed+1, w.now.Sub(m.arrives))
		seq.queue, seq.failed = seq.queue[1:], 0
		if len(seq.queue) > 0 {
			w.at(w.now, seq, nil)
		}
		return
	}
	seq.failed++
	if kind == eventstore.Permanent || w.policy.Spent(seq.failed) {
		w.tally.Parked(m.id, seq.failed, w.now.Sub(m.arrives))
		seq.parked = true
		w.parked = append(w.parked, seq)
		return
	}
	pause := w.policy.Delay(seq.failed, func() float64 { return w.random(m, seq.failed) })
	if w.blocking {
		w.now = w.now.Add(pause)
		pause = 0
	}
	w.at(w.now.Add(pause), seq, nil)
}

// redrive gives what is parked a round of attempts more, and counts in a new tally, as if all had just arrived.
func (w *worker) redrive() {
	parked := w.parked
	w.parked, w.tally = nil, new(retrytest.Tally)
	for _, seq := range parked {
		seq.parked, seq.failed = false, 0
		for i := range seq.queue {
			seq.queue[i].arrives = w.now
		}
		w.at(w.now, seq, nil)
	}
}

// load is n messages over the keys, one after the other with the gap between them.
func load(n, keys int, gap time.Duration) []message {
	messages := make([]message, n)
	for i := range messages {
		messages[i] = message{i, i % keys, start.Add(time.Duration(i) * gap)}
	}
	return messages
}

// inOrder says whether every key's messages reached the handler in order, none before its predecessor was done.
func inOrder(log []attempt) error {
	last := map[int]int{}
	for _, a := range log {
		if before, ok := last[a.message.key]; ok && a.message.id < before {
			return fmt.Errorf("key %d: message %d after %d", a.message.key, a.message.id, before)
		}
		last[a.message.key] = a.message.id
	}
	return nil
}
