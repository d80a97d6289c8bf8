package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// head is what this process knows of the end of the log. Nothing else computes it.
//
// A writer registers, before it draws a position, that it will write somewhere above X, the last position drawn; the
// registration is a shared advisory lock that ends with its transaction. A reader takes H, the highest committed
// position, then the lowest X registered, and may read up to the lower of the two, in a later statement. Whoever owns a
// position at or below H registered before drawing it, hence before H was read: either its lock is still there, and the
// head lies below its positions, or it has ended, and PostgreSQL makes a commit visible before it releases the locks.
type head struct {
	// highest is the greatest H seen: a committed row has this position, so it can only vanish with lost commits.
	highest atomic.Int64
	// safe is the greatest safe head seen. A later reading may be lower (a writer registers a moment after X was
	// current); that is harmless, since everything at or below the maximum is decided.
	safe atomic.Int64
}

func raise(v *atomic.Int64, to int64) {
	for {
		old := v.Load()
		if to <= old || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// queueHead adds the reading of the head to a pipeline. It must not share a statement with the reading of events, which
// need a newer snapshot; the head reaches them as a setting of the transaction. H is read above the highest one known, so
// that a reading planned with that value (see pipeline) locks the newest ranges only.
func (s *Store) queueHead(p *pipeline, known int64, got *headReading) {
	p.add(s.sql.safeHead, func(rows pgx.Rows) error {
		if !rows.Next() {
			return rows.Err()
		}
		var setting string
		return rows.Scan(&got.highest, &got.safe, &setting)
	}, known)
}

type headReading struct{ highest, safe *int64 }

// take records a reading. ok is false when nothing was found at or above the highest position known, which has to be
// looked into: see lost.
func (s *Store) take(got headReading, known int64) (safe int64, ok bool) {
	if got.highest == nil {
		return 0, known == 0
	}
	raise(&s.head.highest, *got.highest)
	if got.safe != nil {
		raise(&s.head.safe, *got.safe)
	}
	return s.head.safe.Load(), true
}

// lost is the answer when the highest position known is gone.
func (s *Store) lost(known int64) error {
	return &eventstore.HistoryError{
		Reason: fmt.Sprintf("the log ended at position %d or later and now ends before it: commits were lost, "+
			"by a fail-over to a lagging standby or a restore", known),
		Remedy: "stop all programs, find out what is missing, run `daybook epoch new`, and rebuild what was ahead",
	}
}

// SafeHead returns the position at or below which nothing can appear any more, as far as a reader at this moment can
// know. It never falls during the life of a Store.
func (s *Store) SafeHead(ctx context.Context) (eventstore.Position, error) {
	known := s.head.highest.Load()
	var got headReading
	p := newPipeline()
	s.queueHead(p, known, &got)
	if err := s.run(ctx, p); err != nil {
		return eventstore.Position{}, fmt.Errorf("postgres: read safe head: %w", err)
	}
	safe, ok := s.take(got, known)
	if !ok {
		return eventstore.Position{}, s.lost(known)
	}
	return eventstore.PositionAt(safe), nil
}

// startDistance is how far below the last position drawn a process looks first for the end of the log.
const startDistance = 1_000

// startHead finds the highest committed position for the first time. The last position drawn is a hint where to look:
// only when nothing lies near it (after many rollbacks) the whole log is searched.
func (s *Store) startHead(ctx context.Context) error {
	var drawn int64
	if err := s.pool.QueryRow(ctx, s.sql.lastDrawn).Scan(&drawn); err != nil {
		return fmt.Errorf("postgres: read last position: %w", err)
	}
	for _, distance := range [...]int64{startDistance, 1_000_000, drawn} {
		var got headReading
		p := newPipeline()
		s.queueHead(p, max(drawn-distance, 0), &got)
		if err := s.run(ctx, p); err != nil {
			return fmt.Errorf("postgres: read safe head: %w", err)
		}
		if got.highest != nil {
			s.take(got, 0)
			break
		}
	}
	return nil
}

// Blocker is the transaction that holds the head of the log back.
type Blocker struct {
	// PID is the backend's process id; 0 for a prepared transaction.
	PID int
	// Prepared is the name of a prepared transaction, empty for any other.
	Prepared string
	// Application and State are what pg_stat_activity says of it.
	Application, State string
	// Age is how long its transaction has been open, or prepared.
	Age time.Duration
	// Above is the position above which it may write.
	Above eventstore.Position
}

// String is one line for people: who holds the head, since when, and what to do about it.
func (b Blocker) String() string {
	if b.PID == 0 {
		return fmt.Sprintf("prepared transaction %q (for %s) holds the head at position %s: COMMIT PREPARED or ROLLBACK PREPARED it",
			b.Prepared, b.Age.Round(time.Millisecond), b.Above)
	}
	return fmt.Sprintf("process %d (%q, %s, open for %s) holds the head at position %s: let it end, or pg_terminate_backend it",
		b.PID, b.Application, b.State, b.Age.Round(time.Millisecond), b.Above)
}

// Blocker names the oldest writer that is registered, if there is one. Every append is such a writer for a moment; one
// that stays is an append inside a transaction that does not end.
func (s *Store) Blocker(ctx context.Context) (Blocker, bool, error) {
	rows, err := s.pool.Query(ctx, s.sql.blocker, s.head.highest.Load())
	if err != nil {
		return Blocker{}, false, fmt.Errorf("postgres: look for the holder of the head: %w", err)
	}
	defer rows.Close()
	if !rows.Next() {
		return Blocker{}, false, rows.Err()
	}
	var b Blocker
	var age float64
	var above int64
	if err := rows.Scan(&b.PID, &b.Application, &b.State, &age, &above, &b.Prepared); err != nil {
		return Blocker{}, false, fmt.Errorf("postgres: look for the holder of the head: %w", err)
	}
	b.Above = eventstore.PositionAt(above)
	b.Age = max(time.Duration(age*float64(time.Second)), s.held.since(b.PID, above))
	return b, true, nil
}

// holder remembers since when this process has seen the same holder of the head: without pg_read_all_stats the server
// does not say how old the transaction of another role is.
type holder struct {
	mu    sync.Mutex
	pid   int
	above int64
	first time.Time
}

func (h *holder) since(pid int, above int64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pid != pid || h.above != above {
		h.pid, h.above, h.first = pid, above, time.Now()
	}
	return time.Since(h.first)
}

const (
	// registeredX rebuilds the position above which a writer registered from the 31 bits that its lock carries, near H.
	// An X above H (registered after H was read) comes out above H and does not matter.
	registeredX = `h.h - ((h.h - l.objid::bigint + 16777216) & 2147483647) + 16777216`

	registeredLocks = `l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = '{schema}.log_position'::regclass::oid
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())`

	// The reference to h.h inside the lateral query makes PostgreSQL read H before the locks; the other order loses
	// events.
	safeHeadSQL = `
WITH h AS MATERIALIZED (
  SELECT greatest((SELECT max(position) FROM {schema}.events WHERE position >= $1::bigint),
                  (SELECT max(first_position) FROM {schema}.outbox WHERE first_position >= $1::bigint)) AS h),
s AS MATERIALIZED (
  SELECT h.h, least(h.h, x.x) AS safe
    FROM h, LATERAL (SELECT min(` + registeredX + `) AS x FROM pg_locks l WHERE ` + registeredLocks + `) x)
SELECT s.h, s.safe, set_config('daybook.safe', coalesce(s.safe, 0)::text, true) FROM s`

	lastDrawnSQL = `SELECT coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0)`

	blockerSQL = `
SELECT coalesce(l.pid, 0), coalesce(a.application_name, ''), 
       CASE WHEN l.pid IS NULL THEN 'prepared' ELSE coalesce(a.state, 'not visible to this role without pg_read_all_stats') END,
       coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)), 0)::float8, ` + registeredX + `, coalesce(p.gid, '')
  FROM (SELECT $1::bigint AS h) h, pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN LATERAL (SELECT x.gid, x.prepared FROM pg_locks t JOIN pg_prepared_xacts x ON x.transaction = t.transactionid
                      WHERE l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid'
                        AND t.virtualtransaction = l.virtualtransaction LIMIT 1) p ON true
 WHERE ` + registeredLocks + `
 ORDER BY 5, coalesce(a.xact_start, p.prepared) LIMIT 1`
)
