package projection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/parking"
)

// Health says how the projections of this runner are doing, as this process knows it; it does not touch the database.
// Not ready are those that wait for something that is away, retry a failing event in place, or have stopped. A projection
// that another process works on is ready in state "standby". One that has set sequences aside is ready in state "degraded":
// everything else goes on, and to take the process from its work would help nobody; the reason counts them. Observer has
// the numbers for an alert. Handlers that ignore the end of their context, and still run, are counted in the reason too, with the
// one that has done so for longest; see Config.Timeout.
func (r *Runner) Health(context.Context) eventstore.Health {
	h := eventstore.Health{Component: "projections", Ready: r.running.Load(), State: "running"}
	if !h.Ready {
		h.State, h.Reason = "not running", "call Run"
	}
	for i, w := range r.workers {
		s := w.Status()
		part := eventstore.Health{
			Component: fmt.Sprintf("projection %s v%d", r.defined[i].ref.Name, r.defined[i].ref.Version),
			State:     string(s.State), Reason: s.Reason, Since: s.Since,
		}
		if s.Hung != "" {
			part.Reason = join(s.Hung, part.Reason)
			if h.Ready && h.Reason == "" {
				h.Reason = part.Component + ": " + s.Hung
			}
		}
		switch s.State {
		case consumer.Running, consumer.Standby, consumer.Paused:
			part.Ready = true
			if aside := s.Parked.Aside(); aside != "" {
				part.State, part.Reason, part.Since = parking.Degraded, join(s.Hung, aside), s.Parked.Oldest
				if h.State == "running" {
					h.State, h.Since, h.Reason = parking.Degraded, part.Since, part.Component+": "+part.Reason
				}
			}
		default:
			if h.Ready { // the first one stands for all; the others are in Parts
				h.State, h.Since = part.State, part.Since
				h.Reason = part.Component + " " + part.State + ": " + part.Reason
			}
			h.Ready = false
		}
		h.Parts = append(h.Parts, part)
	}
	return h
}

func join(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// Lag says how far a projection is behind the log.
type Lag struct {
	Projection string
	Version    int
	// State is the state kept in the database: "running", "paused" or "stopped"; Reason says why it does not run.
	State, Reason string
	// Owner is the process that works on it, empty when there is none.
	Owner string
	// Applied is the position up to which everything has taken effect, Head the last event stored; for a projection that
	// follows a topic without all of the log, the last message of that topic.
	Applied, Head eventstore.Position
	// Behind is the distance between them: at most so many events or messages are still to come.
	Behind int64
	// Age is how long the first of them has been stored; zero when there is none.
	Age time.Duration
	// Retrying, Parked and Draining are how many sequences are set aside below Applied: tried again by themselves, waiting
	// for people, and going on from what was queued. Oldest is since when the oldest has been; zero when there is none.
	Retrying, Parked, Draining int
	Oldest                     time.Time
}

// Lag reads from the database how far each projection of the runner is, whichever process works on it.
func (r *Runner) Lag(ctx context.Context) ([]Lag, error) {
	lags := make([]Lag, len(r.defined))
	for i, d := range r.defined {
		l := Lag{Projection: d.ref.Name, Version: d.ref.Version}
		var applied, head int64
		var age float64
		var oldest *time.Time
		err := r.pool.QueryRow(ctx, inStore(lagSQL, d.ref.Store), pgx.QueryExecModeExec, d.ref.Name, d.ref.Version).
			Scan(&l.State, &l.Reason, &l.Owner, &applied, &head, &age, &l.Retrying, &l.Parked, &l.Draining, &oldest)
		if err != nil {
			return nil, fmt.Errorf("projection: lag of %s: %w", d, err)
		}
		if oldest != nil {
			l.Oldest = *oldest
		}
		l.Applied, l.Head = eventstore.PositionAt(applied), eventstore.PositionAt(head)
		l.Behind, l.Age = head-applied, time.Duration(age*float64(time.Second))
		lags[i] = l
	}
	return lags, nil
}

// lagSQL looks at what is above the floor only, so that old ranges are not touched. The source of a consumer names the
// topic that it follows when that does not carry all of the log; its rows begin in the block of positions that the floor is
// in, and do not overlap. It is planned each time.
const lagSQL = `
SELECT c.state, c.reason, CASE WHEN s.expires_at > clock_timestamp() THEN s.owner ELSE '' END, s.floor,
       coalesce(CASE WHEN c.source LIKE 'topic %' THEN
         (SELECT o.last_position FROM {schema}.outbox o
           WHERE o.first_position >= (s.floor >> 12) << 12 AND o.last_position > s.floor AND o.topic = substr(c.source, 7)
           ORDER BY o.first_position DESC LIMIT 1)
       ELSE (SELECT max(e.position) FROM {schema}.events e WHERE e.position > s.floor) END, s.floor),
       coalesce(greatest(extract(epoch FROM clock_timestamp() - CASE WHEN c.source LIKE 'topic %' THEN
         (SELECT o.recorded_at FROM {schema}.outbox o
           WHERE o.first_position >= (s.floor >> 12) << 12 AND o.last_position > s.floor AND o.topic = substr(c.source, 7)
           ORDER BY o.first_position LIMIT 1)
       ELSE (SELECT e.recorded_at FROM {schema}.events e WHERE e.position > s.floor ORDER BY e.position LIMIT 1) END), 0), 0)::double precision,
       p.retrying, p.parked, p.draining, p.oldest
  FROM {schema}.consumers c
  JOIN {schema}.segments s ON s.consumer = c.consumer AND s.version = c.version AND s.segment = 0
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.state = 'retrying') AS retrying, count(*) FILTER (WHERE x.state = 'parked') AS parked,
           count(*) FILTER (WHERE x.state = 'draining') AS draining, min(x.since) AS oldest
      FROM {schema}.parked x WHERE x.consumer = c.consumer AND x.version = c.version) p
 WHERE c.consumer = $1 AND c.version = $2`
