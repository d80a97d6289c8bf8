package saga

import (
	"context"
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
	// The pauses between looks double from the first to the last, each between half and all of it.
	settleFirst, settleLast = 20 * time.Millisecond, 100 * time.Millisecond
	// settledFor is how long what was found serves timers that were due before.
	settledFor = time.Second
	// A look reads so many pages of so many events at most: who is that far behind moves on, and is looked at again.
	settlePages, settlePage = 20, 100
)

// settlement is what a process knows of how far a saga has taken what concerns it.
type settlement struct {
	sources [2]Source // of events and of replies
	sql     string

	mu     sync.Mutex
	before time.Time // what was recorded before that is taken
	looked time.Time // when that was found, by the clock of the process
	waits  bool      // timers wait
}

func (s *settlement) reads(schema string, events, replies Source) {
	s.sources = [2]Source{events, replies}
	s.sql = strings.ReplaceAll(reachedSQL, "{schema}", pgx.Identifier{schema}.Sanitize())
}

// settle says which of some timers, in the order of their due times, may fire. Time decides only what nothing else has
// decided before: a timer waits until all events and replies that were recorded before it was due are taken. What comes after
// that does not hold it up, so that constant load puts off none for ever. While nobody takes events timers wait, since an
// answer cannot be taken then.
//
// It returns as soon as some may fire, else after a while with none.
func (u *unit) settle(ctx context.Context, db *pgxpool.Pool, due []timers.Timer) (ready, later []timers.Timer, err error) {
	patience := min(settlePatience, u.cfg.Lease/4)
	pause := settleFirst
	for began := time.Now(); ; pause = min(2*pause, settleLast) {
		n, cause := u.settled(ctx, db, due)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case n > 0, time.Since(began) >= patience:
			u.waiting(n == 0, cause)
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

// waiting tells when timers begin to wait for longer than a moment, and when they fire again.
func (u *unit) waiting(waits bool, cause error) {
	s := &u.settlement
	s.mu.Lock()
	changed := s.waits != waits
	s.waits = waits
	s.mu.Unlock()
	switch {
	case !changed:
	case !waits:
		u.log.Info("timers fire again")
	case cause != nil:
		u.log.Warn("timers that are due wait: it cannot be found out whether everything before them is taken", "error", cause.Error())
	default:
		u.log.Warn("timers that are due wait until the saga has taken the events and replies that were recorded before")
	}
}

// settled is how many of the timers may fire.
func (u *unit) settled(ctx context.Context, db *pgxpool.Pool, due []timers.Timer) (int, error) {
	s := &u.settlement
	s.mu.Lock()
	before, fresh := s.before, time.Since(s.looked) < settledFor
	s.mu.Unlock()
	if fresh && due[len(due)-1].Due.Before(before) {
		return len(due), nil
	}
	looked := time.Now()
	now, open, err := u.untaken(ctx, db)
	switch {
	case err != nil:
		return 0, err
	case u.cfg.Clock != nil && open != nil: // due times are by another clock than those of events
		return 0, nil
	case u.cfg.Clock != nil:
		return len(due), nil
	case open != nil:
		before = *open
	default:
		before = now
	}
	s.mu.Lock()
	s.before, s.looked = before, looked
	s.mu.Unlock()
	if open == nil {
		return len(due), nil
	}
	for n, timer := range due {
		if !timer.Due.Before(before) {
			return n, nil
		}
	}
	return len(due), nil
}

// untaken looks for what the saga has not taken of events and replies: it returns when the first was recorded, nil when there
// is nothing, and the database's time before the look.
func (u *unit) untaken(ctx context.Context, db *pgxpool.Pool) (now time.Time, open *time.Time, err error) {
	names := []string{consumerName(u.name), repliesName(u.name)}
	rows, err := db.Query(ctx, u.settlement.sql, names, consumerVersion, u.name)
	if err != nil {
		return now, nil, fmt.Errorf("saga: read how far %q is: %w", u.name, err)
	}
	var types []string // also those that a newer version reads, which is not here: a timer of it is kept behind what it answers
	places, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reached, err error) {
		var floor *int64
		var partitions []int
		var applied []int64
		if err := row.Scan(&floor, &partitions, &applied, &r.at, &types); err != nil {
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
		return now, nil, fmt.Errorf("saga: read how far %q is: %w", u.name, err)
	}
	for n, filter := range []eventstore.Filter{{Types: types}, {}} {
		at, err := places[n].untaken(ctx, u.settlement.sources[n], filter)
		if err != nil {
			return now, nil, fmt.Errorf("saga: look for what %s has not read: %w", names[n], err)
		}
		if at != nil && (open == nil || at.Before(*open)) {
			open = at
		}
	}
	return places[0].at, open, nil
}

// reached is how far a consumer is, by what is committed.
type reached struct {
	floor int64
	ahead map[int]int64 // by partition, where one is beyond the floor
	at    time.Time
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

const reachedSQL = `
SELECT (SELECT min(g.floor) FROM {schema}.segments g WHERE g.consumer = c.name AND g.version = $2),
       ARRAY(SELECT p.partition FROM {schema}.checkpoints p WHERE p.consumer = c.name AND p.version = $2 AND p.topic = '' ORDER BY p.partition),
       ARRAY(SELECT p.applied FROM {schema}.checkpoints p WHERE p.consumer = c.name AND p.version = $2 AND p.topic = '' ORDER BY p.partition),
       clock_timestamp(), (SELECT n.types FROM {schema}.saga_names n WHERE n.saga = $3)
  FROM unnest($1::text[]) WITH ORDINALITY c(name, nth) ORDER BY c.nth`
