package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Health says how the relay is doing, as this process knows it; it touches neither database nor broker. It is not ready
// while it waits for something that is away, such as a broker that does not take a message or a publisher that has not
// returned for five seconds, and when it has stopped. A relay that waits while another process publishes is ready in
// state "standby".
func (r *Relay) Health(context.Context) eventstore.Health {
	h := eventstore.Health{Component: "relay"}
	if !r.running.Load() {
		h.State, h.Reason = "not running", "call Run"
		return h
	}
	s := r.worker.Status()
	h.State, h.Reason, h.Since = string(s.State), s.Reason, s.Since
	switch s.State {
	case consumer.Standby, consumer.Paused:
		h.Ready = true
	case consumer.Running:
		if c, late := r.cfg.watch.late(); late {
			h.State, h.Reason, h.Since = string(consumer.Waiting), c.text(), c.began
			return h
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.trouble == nil {
			h.Ready = true
		} else {
			h.State, h.Reason, h.Since = string(consumer.Waiting), r.trouble.Error(), r.since
		}
	}
	return h
}

// troubled notes what the broker did not take, with a line in the log when that begins.
func (r *Relay) troubled(err *PublishError) {
	r.mu.Lock()
	first := r.trouble == nil
	r.trouble = err
	if first {
		r.since = time.Now()
	}
	r.mu.Unlock()
	if first {
		log := r.log
		if stack := stackOf(err); stack != "" {
			log = log.With("stack", stack)
		}
		log.Warn("relay waits for the broker", "reason", err.Error())
	}
}

func (r *Relay) recovered() {
	r.mu.Lock()
	was, since := r.trouble, r.since
	r.trouble = nil
	r.mu.Unlock()
	if was != nil {
		r.log.Info("relay no longer waits for the broker", "attempts", was.Attempt, "waited", time.Since(since))
	}
}

// watch notices a publisher that does not return, with a line in the log when that begins and when it is over. Nothing can
// be done about it from here. Its methods may be called on nil, which does not watch.
type watch struct {
	limit time.Duration // of one call

	mu    sync.Mutex
	log   *slog.Logger
	lanes *lanes      // whose calls they are
	timer *time.Timer // of the round; nil before the first one
	round bool        // one is under way
	said  call        // in the log, of this round
}

// watches makes lanes tell of what they do.
func (r *Relay) watches(l *lanes) {
	w := r.cfg.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log, w.lanes, l.watch = r.log, l, w
}

// late returns a call that has lasted too long.
func (w *watch) late() (call, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lanes == nil {
		return call{}, false
	}
	c, some := w.lanes.oldest()
	return c, some && time.Since(c.began) >= w.limit
}

// begin and end are called around each round of the lanes.
func (w *watch) begin() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round = true
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.look)
	} else {
		w.timer.Reset(w.limit)
	}
}

func (w *watch) end() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round = false
	w.timer.Stop()
	if was := w.said; !was.began.IsZero() {
		w.said = call{}
		w.log.Info("relay no longer waits for the publisher", "topic", was.topic, "position", was.position, "waited", time.Since(was.began))
	}
}

// look is called by the timer while a round lasts, until there is something to say.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.round {
		return
	}
	c, some := w.lanes.oldest()
	rest := w.limit
	if some {
		rest -= time.Since(c.began)
	}
	if rest > 0 {
		w.timer.Reset(rest)
		return
	}
	w.said = c
	w.log.Warn("relay waits for the publisher", "reason", c.text())
}

func (c call) text() string {
	return fmt.Sprintf("publishing position %s on topic %q has not returned for %v: give the publisher a time-out",
		c.position, c.topic, time.Since(c.began).Round(time.Millisecond))
}

// Lag says how far the publishing is behind the log.
type Lag struct {
	// State is the state kept in the database: "running", "paused" or "stopped", or "not started" before the first relay of
	// the store has run; Reason says why it does not run.
	State, Reason string
	// Owner is the process that publishes, empty when there is none.
	Owner string
	// Cursor is the position up to which everything is published, Head the safe head: what is published next lies between.
	Cursor, Head eventstore.Position
	// Behind is the distance between them: at most so many messages are still to come.
	Behind int64
	// Age is how long the first message that is not published has been stored; zero when there is none.
	Age time.Duration
}

// Lag reads from the database how far the publishing is, whichever process does it. The error is a [*NotInstalledError]
// when the store lacks the tables.
func (r *Relay) Lag(ctx context.Context) (Lag, error) {
	var (
		l      Lag
		cursor int64
		age    float64
	)
	err := r.pool.QueryRow(ctx, r.sql(lagSQL), pgx.QueryExecModeExec, r.ref.Name, r.ref.Version).
		Scan(&l.State, &l.Reason, &l.Owner, &cursor, &age)
	pg := (*pgconn.PgError)(nil)
	if l.State == notStarted || errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") { // no such table, no such schema
		if missing := r.installed(ctx, r.pool); missing != nil {
			return Lag{}, missing
		}
	}
	if err != nil {
		return Lag{}, fmt.Errorf("outbox: lag of the relay: %w", err)
	}
	if l.Head, err = r.rows.SafeHead(ctx); err != nil {
		return Lag{}, fmt.Errorf("outbox: lag of the relay: %w", err)
	}
	l.Cursor, l.Age = eventstore.PositionAt(cursor), time.Duration(age*float64(time.Second))
	l.Behind = max(l.Head.Ordinal()-cursor, 0)
	return l, nil
}

const notStarted = "not started"

// installed returns a [*NotInstalledError] when a table is not there.
func (r *Relay) installed(ctx context.Context, db *pgxpool.Pool) error {
	var missing string
	err := db.QueryRow(ctx, missingSQL, pgx.QueryExecModeExec, r.ref.Store).Scan(&missing)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("outbox: look for the tables: %w", err)
	}
	return &NotInstalledError{Schema: r.ref.Store, Missing: "table " + missing}
}

// missingSQL knows a table of the first migration, and those of the one that made relays.
const missingSQL = `
SELECT t.name FROM unnest('{consumers,outbox_tails,subscribers}'::text[]) WITH ORDINALITY AS t(name, nth)
 WHERE to_regclass(format('%I.%I', $1::text, t.name)) IS NULL ORDER BY t.nth LIMIT 1`

// lagSQL begins at the block of positions that the cursor is in: a row never crosses the border of one. It is planned
// each time, with its values.
const lagSQL = `
SELECT coalesce(c.state, 'not started'), coalesce(c.reason, ''), CASE WHEN s.expires_at > clock_timestamp() THEN s.owner ELSE '' END, f.floor,
       coalesce((SELECT greatest(extract(epoch FROM clock_timestamp() - o.recorded_at), 0) FROM {schema}.outbox o
                  WHERE o.first_position >= (f.floor >> 12) << 12 AND o.last_position > f.floor
                  ORDER BY o.first_position LIMIT 1), 0)::double precision
  FROM (SELECT $1::text AS consumer, $2::int AS version) r
  LEFT JOIN {schema}.consumers c ON c.consumer = r.consumer AND c.version = r.version
  LEFT JOIN {schema}.segments s ON s.consumer = r.consumer AND s.version = r.version AND s.segment = 0
  CROSS JOIN LATERAL (SELECT coalesce(s.floor, 0) AS floor) f`
