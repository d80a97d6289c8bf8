package aggregate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// snapshotJob is a snapshot that is to be stored. Its state is encoded, so that nobody can change it any more.
type snapshotJob struct {
	ctx      context.Context // of the command, without its end
	stream   eventstore.StreamID
	version  eventstore.Version
	last     uuid.UUID // of the event at version
	unusable bool      // what is there must go first
	data     []byte
	takenAt  time.Time
	start    time.Time
}

// snapshotQueue stores snapshots one after the other, beside the commands that caused them. Its goroutine lives only
// while there is work, so a repository has nothing to be closed. It is safe for concurrent use.
type snapshotQueue struct {
	limit int
	store func(snapshotJob) bool // must not panic
	count atomic.Uint64          // how many were stored

	mu      sync.Mutex
	waiting map[eventstore.StreamID]*snapshotJob
	order   []eventstore.StreamID // of waiting, first come first
	running *snapshotJob          // what the goroutine is at
	done    chan struct{}         // closed when running is stored
	idle    chan struct{}         // closed when there is no work left; nil: there is no goroutine
	// stored are the last of some streams, the oldest of which are forgotten.
	stored map[eventstore.StreamID]storedSnapshot
	oldest []eventstore.StreamID
}

// storedSnapshot is what is remembered of a job.
type storedSnapshot struct {
	version eventstore.Version
	takenAt time.Time
	number  uint64 // count, when it was stored
}

func newSnapshotQueue(limit int, store func(snapshotJob) bool) *snapshotQueue {
	return &snapshotQueue{
		limit: limit, store: store,
		waiting: map[eventstore.StreamID]*snapshotJob{}, stored: map[eventstore.StreamID]storedSnapshot{},
	}
}

// offer takes a job, in the place of an older one of its stream. It is dropped, and offer returns false, when the queue
// is full. A job that is not valid, which is asked when nobody can empty the queue, is left out.
func (q *snapshotQueue) offer(j snapshotJob, valid func() bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !valid() {
		return true
	}
	if there := q.waiting[j.stream]; there != nil {
		if j.version > there.version {
			j.unusable = j.unusable || there.unusable
			*there = j
		}
		return true
	}
	if len(q.waiting) >= q.limit {
		return false
	}
	q.waiting[j.stream] = &j
	q.order = append(q.order, j.stream)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.work()
	}
	return true
}

// latest returns the version and time of the latest snapshot of a stream that who has read when count was seen cannot
// know: it is about to be stored, or was stored since. 0: none.
func (q *snapshotQueue) latest(stream eventstore.StreamID, seen uint64) (v eventstore.Version, takenAt time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if done := q.stored[stream]; done.number > seen {
		v, takenAt = done.version, done.takenAt
	}
	for _, j := range [...]*snapshotJob{q.running, q.waiting[stream]} {
		if j != nil && j.stream == stream && j.version > v {
			v, takenAt = j.version, j.takenAt
		}
	}
	return v, takenAt
}

func (q *snapshotQueue) work() {
	for done := false; ; {
		j := q.next(done)
		if j == nil {
			return
		}
		done = q.store(*j)
	}
}

// next says whether the job before was stored, and returns another; nil: there is none, and the goroutine must end.
func (q *snapshotQueue) next(stored bool) *snapshotJob {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running != nil {
		if stored {
			q.note(q.running)
		}
		close(q.done)
		q.running, q.done = nil, nil
	}
	if len(q.order) == 0 {
		close(q.idle)
		q.idle, q.order = nil, nil
		return nil
	}
	stream := q.order[0]
	q.order = q.order[1:]
	q.running, q.done = q.waiting[stream], make(chan struct{})
	delete(q.waiting, stream)
	return q.running
}

func (q *snapshotQueue) note(j *snapshotJob) {
	if _, known := q.stored[j.stream]; !known {
		if q.oldest = append(q.oldest, j.stream); len(q.oldest) > q.limit {
			delete(q.stored, q.oldest[0])
			q.oldest = q.oldest[1:]
		}
	}
	q.stored[j.stream] = storedSnapshot{j.version, j.takenAt, q.count.Add(1)}
}

// drain waits until there is no work, or ctx ends.
func (q *snapshotQueue) drain(ctx context.Context) error {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	return waitFor(ctx, idle)
}

// drop takes out what waits, of one stream or, without one, of all, and waits for what is being stored.
func (q *snapshotQueue) drop(ctx context.Context, stream *eventstore.StreamID) error {
	q.mu.Lock()
	var kept []eventstore.StreamID
	for _, s := range q.order {
		if stream != nil && s != *stream {
			kept = append(kept, s)
			continue
		}
		delete(q.waiting, s)
	}
	q.order = kept
	for s, there := range q.stored { // it remains known, with nothing to tell
		if stream == nil || s == *stream {
			there.number = 0
			q.stored[s] = there
		}
	}
	done := q.done
	if q.running != nil && stream != nil && q.running.stream != *stream {
		done = nil
	}
	q.mu.Unlock()
	return waitFor(ctx, done)
}

// waitFor waits for a channel, if there is one, to be closed.
func waitFor(ctx context.Context, c <-chan struct{}) error {
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
