package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/owner"
)

// Member is one process's part in a consumer of several segments: who is there has a row with a name and a time, renewed
// at a third of the lease, and everybody works out from the same rows who owns what. A segment that falls to another is
// released when the page in hand is done. The leases alone decide who may commit; members only decide who tries.
//
// Workers become the member's own with [Member.Add]; [Member.Run] runs them. Missing is safe for concurrent use.
type Member struct {
	ref     Ref
	cfg     Config
	name    string
	sql     memberStatements
	workers []*Worker

	mu      sync.Mutex
	names   []string  // who is there, sorted; empty when this process is not
	asked   time.Time // when that was asked for
	err     error     // why it could not be
	left    bool      // for good: a worker has stopped
	changed chan struct{}
	missing []Missing
}

// Missing is a segment that nobody owns although somebody should.
type Missing struct {
	Segment int
	// Since is when this process has noticed.
	Since time.Time
}

type memberStatements struct{ beat, look, leave string }

// NewMember returns a member of ref that does nothing until it is run. cfg must be valid.
func NewMember(ref Ref, cfg Config) *Member {
	cfg = cfg.withDefaults()
	schema := pgx.Identifier{ref.Store}.Sanitize()
	in := func(sql string) string { return strings.ReplaceAll(sql, "{schema}", schema) }
	return &Member{
		ref: ref, cfg: cfg, name: owner.Name(), changed: make(chan struct{}),
		sql: memberStatements{in(beatSQL), in(lookSQL), in(leaveSQL)},
	}
}

// Add makes workers the member's own, one for each segment of the consumer, from 0.
func (m *Member) Add(workers ...*Worker) {
	for _, w := range workers {
		w.member, w.owner = m, m.name
	}
	m.workers = append(m.workers, workers...)
}

// Run runs the workers until ctx ends; see [Run].
func (m *Member) Run(ctx context.Context, db *pgxpool.Pool) error {
	m.mu.Lock()
	m.names, m.err, m.left, m.missing = nil, nil, false, nil
	m.asked = time.Time{}
	m.mu.Unlock()
	return runBeside(ctx, db, func() { m.beat(ctx, db) }, m.workers...)
}

// Lease is that of the workers.
func (m *Member) Lease() time.Duration { return m.cfg.Lease }

// Missing are segments that nobody has owned for a while.
func (m *Member) Missing() []Missing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.missing)
}

// ownerOf says to which of some members a segment falls: they take turns in the order of their names. It is the same in
// every process, and no member gets two segments more than another.
func ownerOf(segment int, sorted []string) string {
	if len(sorted) == 0 {
		return ""
	}
	return sorted[segment%len(sorted)]
}

// falls reports whether a segment is this process's. What is not known, or no longer, is not: a process that stood still
// looks first. The reason says why nothing is known; it is empty when all is well. changed is closed by the next change.
func (m *Member) falls(segment int) (mine bool, why string, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := !m.asked.IsZero() && time.Since(m.asked) < m.cfg.Lease
	switch {
	case m.left:
	case m.err != nil && !known:
		why = m.err.Error()
	case known:
		mine = ownerOf(segment, m.names) == m.name
	}
	return mine, why, m.changed
}

// moved reports whether a segment falls to another member that lives. Not knowing is no reason to let go.
func (m *Member) moved(segment int) (gone bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	owner := ownerOf(segment, m.names)
	return m.left || owner != "" && owner != m.name, m.changed
}

// turn waits until the worker may try to take its segment. It returns false when ctx ended first.
func (w *Worker) turn(ctx context.Context) bool {
	for w.member != nil && ctx.Err() == nil {
		mine, why, changed := w.member.falls(w.spec.Segment)
		if mine {
			break
		}
		if why != "" {
			w.become(Waiting, why)
		} else {
			w.become(Standby, "")
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return ctx.Err() == nil
}

// untilMoved waits until the worker's segment falls to another process, and returns false when ctx ended first.
func (w *Worker) untilMoved(ctx context.Context) bool {
	if w.member == nil {
		<-ctx.Done()
		return false
	}
	for {
		gone, changed := w.member.moved(w.spec.Segment)
		if gone {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// leave says that the worker has stopped for good: a process that cannot do one segment lets others do them all.
func (w *Worker) leave() {
	if m := w.member; m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.left = true
		m.change()
	}
}

// change wakes who waits; the lock is held.
func (m *Member) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// beat keeps the member's row until ctx ends or a worker has stopped, and removes it then, while the workers still end.
// Between two heartbeats it looks who is there, so that a process that leaves is followed soon.
func (m *Member) beat(ctx context.Context, db *pgxpool.Pool) {
	every := m.cfg.Lease / 3
	var next time.Time // of the heartbeat
	for ctx.Err() == nil {
		began := time.Now()
		rest := jitter(min(m.cfg.Lease/4, time.Second))
		switch beats, err := m.once(ctx, db, !began.Before(next), every); {
		case err != nil:
			rest = min(every/4, time.Second)
		case beats:
			next = began.Add(every)
		}
		if m.rest(ctx, min(rest, max(time.Until(next), 0))) {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = db.Exec(ctx, m.sql.leave, m.ref.Name, m.ref.Version, m.name) // when it fails the row runs out
}

// rest returns true when a worker has stopped.
func (m *Member) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		m.mu.Lock()
		left, changed := m.left, m.changed
		m.mu.Unlock()
		if left {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-changed:
		}
	}
}

// once renews the row, if that is due, and looks who is there.
func (m *Member) once(ctx context.Context, db *pgxpool.Pool, beats bool, patience time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var (
		names  []string
		orphan []int
		err    error
	)
	asked := time.Now()
	if beats {
		_, err = db.Exec(ctx, m.sql.beat, m.ref.Name, m.ref.Version, m.name, m.cfg.Lease.Seconds())
	}
	if err == nil {
		err = db.QueryRow(ctx, m.sql.look, m.ref.Name, m.ref.Version).Scan(&names, &orphan)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.err
	if m.err = err; err != nil {
		m.err = fmt.Errorf("consumer: look who else works on %s: %w", m.ref, err)
		if was == nil || time.Since(m.asked) >= m.cfg.Lease {
			m.change()
		}
		return false, m.err
	}
	fresh := was != nil || m.asked.IsZero() || time.Since(m.asked) >= m.cfg.Lease
	m.asked = asked
	m.note(orphan, asked)
	if fresh || !slices.Equal(m.names, names) {
		m.names = names
		m.change()
	}
	return beats, nil
}

// note keeps since when segments are without an owner; the lock is held.
func (m *Member) note(orphans []int, now time.Time) {
	var missing []Missing
	for _, segment := range orphans {
		since := now
		if i := slices.IndexFunc(m.missing, func(o Missing) bool { return o.Segment == segment }); i >= 0 {
			since = m.missing[i].Since
		}
		missing = append(missing, Missing{segment, since})
	}
	m.missing = missing
}

const (
	// beatSQL also removes who is gone. A row that ends later than any can was written under a clock that has been set back
	// since.
	beatSQL = `
WITH gone AS (
  DELETE FROM {schema}.members d USING (
    SELECT m.member FROM {schema}.members m
     WHERE m.consumer = $1 AND m.version = $2 AND m.member <> $3
       AND (m.expires_at < clock_timestamp() OR m.expires_at > clock_timestamp() + interval '25 hours')
     ORDER BY m.member FOR UPDATE SKIP LOCKED) g
   WHERE d.consumer = $1 AND d.version = $2 AND d.member = g.member)
INSERT INTO {schema}.members (consumer, version, member, expires_at) VALUES ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))
ON CONFLICT (consumer, version, member) DO UPDATE SET expires_at = excluded.expires_at`

	lookSQL = `
SELECT ARRAY(SELECT m.member FROM {schema}.members m
              WHERE m.consumer = $1 AND m.version = $2 AND m.expires_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '25 hours'
              ORDER BY m.member),
       ARRAY(SELECT s.segment FROM {schema}.segments s JOIN {schema}.consumers c USING (consumer, version)
              WHERE s.consumer = $1 AND s.version = $2 AND c.state = 'running' AND s.expires_at < clock_timestamp() ORDER BY s.segment)`

	leaveSQL = `DELETE FROM {schema}.members WHERE consumer = $1 AND version = $2 AND member = $3`
)
