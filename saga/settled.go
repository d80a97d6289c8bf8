package saga

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/timers"
)

const (
	// settlePatience is how long a group of timers that must wait keeps its worker; then others may have them.
	settlePatience = 500 * time.Millisecond
	// settleWaiting is that while it is known that timers wait: thousands that are given back and claimed again cost writes.
	settleWaiting = 2 * time.Second
	// The pauses between looks double from the first to the last, each between half and all of it.
	settleFirst, settleLast = 20 * time.Millisecond, 100 * time.Millisecond
	// settledFor is how long what was found serves timers that were due before.
	settledFor = time.Second
	// A look reads so many pages of so many events at most: who is that far behind moves on, and is looked at again.
	settlePages, settlePage = 20, 100
	// A mark serves looks that follow each other, in whichever process the timers are meanwhile.
	markFor = time.Minute
	// markSpan is how many positions may have been drawn since: half of what writing_since can tell from those before.
	markSpan = 1 << 23
)

// settlement is what a process knows of how far a saga has taken what concerns it.
type settlement struct {
	sources [2]Source // of events and of replies
	sql     string

	mu     sync.Mutex
	before time.Time // what was recorded before that is taken
	looked time.Time // when that was found, by the clock of the process
	mark   *mark     // of a look at which transactions were under way that had begun to append
	waits  standing
}

// standing is what a process knows of timers that are due and wait.
type standing struct {
	since  time.Time // when the first of them was due, or free again after a failure, by the clock of the process; zero: none waits
	first  time.Time // its due time
	cause  string
	told   time.Time // when that one was last found to wait
	asWell time.Time // when any was
}

// over reports whether none has been found to wait for so long that none does: it was cancelled perhaps.
func (w standing) over(now time.Time, silence time.Duration) bool {
	return w.since.IsZero() || now.Sub(w.asWell) > silence
}

// mark is a moment of the log.
type mark struct {
	at    time.Time
	drawn int64     // the last position that was drawn at that time
	used  time.Time // when a look last took it or waited for it, by the clock of the process
}

// old reports whether a mark is of no use at another moment, so long after it or so many positions that who has begun since
// cannot be told from who had before. Then another is taken, which waits for those who had too.
func (m *mark) old(now mark) bool {
	drawn := now.drawn - m.drawn
	return drawn < 0 || drawn > markSpan || now.used.Sub(m.used) > markFor
}

func (s *settlement) reads(schema string, events, replies Source) {
	s.sources = [2]Source{events, replies}
	s.sql = strings.ReplaceAll(reachedSQL, "{schema}", pgx.Identifier{schema}.Sanitize())
}

// settle says which of some timers, in the order of their due times, may fire. Time decides only what nothing else has
// decided before: a timer waits until all events and replies that were recorded before it was due are taken, also those that
// are not committed, or that readers do not see because a transaction that appended before them has not ended. What comes after
// that does not hold it up, so that constant load puts off none for ever. While nobody takes events timers wait, since an
// answer cannot be taken then. What is set aside as a letter counts as taken.
//
// It returns as soon as some may fire, else after a while with none.
func (u *unit) settle(ctx context.Context, db *pgxpool.Pool, due []timers.Timer) (ready, later []timers.Timer, err error) {
	patience := settlePatience
	if since, _ := u.waitsSince(); !since.IsZero() {
		patience = settleWaiting
	}
	patience = min(patience, u.cfg.Lease/4)
	pause := settleFirst
	for began := time.Now(); ; pause = min(2*pause, settleLast) {
		n, cause := u.settled(ctx, db, due)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case n > 0, time.Since(began) >= patience:
			u.waiting(due, n, cause)
			return due[:n], due[n:], nil
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// waiting notes what a group of timers in the order of their due times has found: that n of them may fire, or that they wait,
// and for what. It tells when timers begin to wait for longer than a moment, and when they fire again.
func (u *unit) waiting(due []timers.Timer, n int, cause error) {
	why := "the saga has not taken all events and replies that were recorded before: see its other parts, here or where it is at work"
	if cause != nil {
		why = cause.Error()
	}
	switch begins, ends := u.settlement.note(due, n, why, time.Now(), u.silence()); {
	case ends:
		u.log.Info("timers fire again")
	case begins && cause != nil:
		u.log.Warn("timers that are due wait: it cannot be found out whether everything before them is taken", "error", cause.Error())
	case begins:
		u.log.Warn("timers that are due wait until the saga has taken the events and replies that were recorded before")
	}
}

// silence is how soon timers that wait are looked at again, by far: what was given back is claimed with the next poll.
func (u *unit) silence() time.Duration { return 2 * (settleWaiting + u.cfg.Poll) }

func (s *settlement) note(due []timers.Timer, n int, why string, now time.Time, silence time.Duration) (begins, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.waits
	over := w.over(now, silence)
	if n > 0 {
		// One that is tried again may fire before those that wait.
		if !w.since.IsZero() && !due[n-1].Due.Before(w.first) {
			*w = standing{}
			return false, true
		}
		return false, false
	}
	first := due[0]
	since := now.Add(-max(first.ClaimedAt.Sub(first.Visible), 0)) // that the clocks differ does not matter
	switch {
	case over, first.Due.Before(w.first), now.Sub(w.told) > silence:
		w.since, w.first, w.told = since, first.Due, now
	case first.Due.Equal(w.first):
		w.told = now
		if since.Before(w.since) {
			w.since = since
		}
	}
	w.cause, w.asWell = why, now
	return over, false
}

// waitsSince says since when timers wait that are due, and for what. Zero: none does, as far as this process knows.
func (u *unit) waitsSince() (time.Time, string) {
	s := &u.settlement
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits.over(time.Now(), u.silence()) {
		return time.Time{}, ""
	}
	return s.waits.since, s.waits.cause
}

// settled is how many of the timers may fire.
func (u *unit) settled(ctx context.Context, db *pgxpool.Pool, due []timers.Timer) (int, error) {
	s := &u.settlement
	s.mu.Lock()
	before, fresh, earlier := s.before, time.Since(s.looked) < settledFor, s.mark
	s.mu.Unlock()
	if fresh && due[len(due)-1].Due.Before(before) {
		return len(due), nil
	}
	looked := time.Now()
	o, err := u.outlook(ctx, db, earlier)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.mark = o.next
	if o.known {
		s.before, s.looked = o.before, looked
	}
	s.mu.Unlock()
	switch {
	case !o.known:
		return 0, errWriting
	case u.cfg.Clock != nil && o.open: // due times are by another clock than those of events
		return 0, nil
	case u.cfg.Clock != nil:
		return len(due), nil
	}
	for n, timer := range due {
		if !timer.Due.Before(o.before) {
			return n, nil
		}
	}
	return len(due), nil
}

var errWriting = errors.New("a transaction that has appended has not ended: `daybook status` says whose it is")

// outlook is what a look has found.
type outlook struct {
	known  bool      // everything that was recorded until some time can be read
	before time.Time // what was recorded before that is taken
	open   bool      // something is not taken
	next   *mark     // for the next look
}

// outlook looks for what the saga has not taken of events and replies. While transactions that had begun to append at the
// earlier look are under way, and at this one, nothing is known.
func (u *unit) outlook(ctx context.Context, db *pgxpool.Pool, earlier *mark) (o outlook, err error) {
	names := []string{consumerName(u.name), repliesName(u.name)}
	var drawn *int64
	if earlier != nil {
		drawn = &earlier.drawn
	}
	rows, err := db.Query(ctx, u.settlement.sql, names, consumerVersion, u.name, drawn)
	if err != nil {
		return o, fmt.Errorf("saga: read how far %q is: %w", u.name, err)
	}
	var types []string // also those that a newer version reads, which is not here: a timer of it is kept behind what it answers
	var now mark
	var writing, still bool
	places, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reached, err error) {
		var floor *int64
		var partitions []int
		var applied []int64
		if err := row.Scan(&floor, &partitions, &applied, &types, &now.at, &now.drawn, &writing, &still); err != nil {
			return r, err
		}
		if floor == nil {
			return r, &NotInstalledError{Schema: u.schema, Saga: u.name}
		}
		r.floor, r.ahead = *floor, map[int]int64{}
		for n, partition := range partitions {
			r.ahead[partition] = applied[n]
		}
		return r, nil
	})
	if err != nil {
		return o, fmt.Errorf("saga: read how far %q is: %w", u.name, err)
	}
	now.used = time.Now()
	if earlier != nil && earlier.old(now) {
		earlier = nil
	}
	switch {
	case !writing:
		o.known, o.before = true, now.at
	case earlier == nil:
		o.next = &now
	case still:
		o.next = &mark{earlier.at, earlier.drawn, now.used}
	default:
		o.known, o.before, o.next = true, earlier.at, &now
	}
	for n, filter := range []eventstore.Filter{{Types: types}, {}} {
		if !o.known {
			break
		}
		at, err := places[n].untaken(ctx, u.settlement.sources[n], filter)
		if err != nil {
			return o, fmt.Errorf("saga: look for what %s has not read: %w", names[n], err)
		}
		if at != nil {
			o.open = true
			if at.Before(o.before) {
				o.before = *at
			}
		}
	}
	return o, nil
}

// reached is how far a consumer is, by what is committed.
type reached struct {
	floor int64
	ahead map[int]int64 // by partition, where one is beyond the floor
}

// untaken reads the source as the consumer will. What a page leaves out because it has reached the end is not there yet; a
// consumer that is too far behind to see that has everything before it.
func (r reached) untaken(ctx context.Context, source Source, filter eventstore.Filter) (*time.Time, error) {
	after := eventstore.PositionAt(r.floor)
	for range settlePages {
		page, err := source.ReadPage(ctx, after, filter, settlePage)
		if err != nil {
			return nil, err
		}
		var first *time.Time
		for n := range page.Events {
			e := &page.Events[n]
			if e.Position.Ordinal() > r.ahead[e.Partition] && (first == nil || e.RecordedAt.Before(*first)) {
				first = &e.RecordedAt
			}
		}
		if first != nil || !page.Through.After(after) {
			return first, nil
		}
		after = page.Through
	}
	return &time.Time{}, nil
}

// reachedSQL reads the clock first, then the last position drawn, and then who has registered to write until then.
const reachedSQL = `
WITH m AS MATERIALIZED (
  SELECT d.at, d.drawn, {schema}.writing_since(d.drawn) AS writing, coalesce({schema}.writing_since($4), false) AS still
    FROM (SELECT n.at, coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0) AS drawn
            FROM (SELECT clock_timestamp() AS at OFFSET 0) n OFFSET 0) d)
SELECT (SELECT min(g.floor) FROM {schema}.segments g WHERE g.consumer = c.name AND g.version = $2),
       ARRAY(SELECT p.partition FROM {schema}.checkpoints p WHERE p.consumer = c.name AND p.version = $2 AND p.topic = '' ORDER BY p.partition),
       ARRAY(SELECT p.applied FROM {schema}.checkpoints p WHERE p.consumer = c.name AND p.version = $2 AND p.topic = '' ORDER BY p.partition),
       (SELECT n.types FROM {schema}.saga_names n WHERE n.saga = $3), m.at, m.drawn, m.writing, m.still
  FROM unnest($1::text[]) WITH ORDINALITY c(name, nth), m ORDER BY c.nth`
