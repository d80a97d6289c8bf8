package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Health says how the relay is doing, as this process knows it; it touches neither database nor broker. It is not ready
// while it waits for something that is away, such as a broker that does not take a message, and when it has stopped. A
// relay that waits while another process publishes is ready in state "standby".
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

// Lag says how far the publishing is behind the log.
type Lag struct {
	// State is the state kept in the database: "running", "paused" or "stopped"; Reason says why it does not run.
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

// Lag reads from the database how far the publishing is, whichever process does it. It is a [*NotInstalledError] before
// any relay has run.
func (r *Relay) Lag(ctx context.Context) (Lag, error) {
	var (
		l      Lag
		cursor int64
		age    float64
	)
	err := r.pool.QueryRow(ctx, r.sql(lagSQL), pgx.QueryExecModeExec, r.ref.Name, r.ref.Version).
		Scan(&l.State, &l.Reason, &l.Owner, &cursor, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return Lag{}, &NotInstalledError{Schema: r.ref.Store, Missing: "the relay's row, which the first relay makes"}
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

// lagSQL begins at the block of positions that the cursor is in: a row never crosses the border of one. It is planned
// each time, with its values.
const lagSQL = `
SELECT c.state, c.reason, CASE WHEN s.expires_at > clock_timestamp() THEN s.owner ELSE '' END, s.floor,
       coalesce((SELECT greatest(extract(epoch FROM clock_timestamp() - o.recorded_at), 0) FROM {schema}.outbox o
                  WHERE o.first_position >= (s.floor >> 12) << 12 AND o.last_position > s.floor
                  ORDER BY o.first_position LIMIT 1), 0)::double precision
  FROM {schema}.consumers c
  JOIN {schema}.segments s ON s.consumer = c.consumer AND s.version = c.version AND s.segment = 0
 WHERE c.consumer = $1 AND c.version = $2`
