package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// unsentTooLong is how long a message may wait that no relay is there to send, before Health says so.
const unsentTooLong = 30 * time.Second

// heldTooLong is how long one transaction may hold the head of the log before Health names it.
const heldTooLong = 10 * time.Second

// Health reports whether appends and reads can work: the database answers, its epoch is settled, ranges lie ahead, and
// nothing holds the head of the log. It asks the database and ends with ctx.
//
// Where a relay is known, a part "relay" says how it is with its messages: it is not ready when one has waited for more
// than 30 seconds in a segment that no process owns. The store itself stays ready then: appends and reads work.
func (s *Store) Health(ctx context.Context) eventstore.Health { return s.health(ctx, heldTooLong) }

func (s *Store) health(ctx context.Context, patience time.Duration) eventstore.Health {
	h := eventstore.Health{Component: "store " + s.cfg.Schema, State: "ok", Ready: true}
	bad := func(state, reason string) eventstore.Health {
		h.Ready, h.State, h.Reason = false, state, reason
		return h
	}
	info, err := readEpoch(ctx, s.pool, s.cfg.Schema)
	if err != nil {
		return bad("unreachable", err.Error())
	}
	if info.standby {
		return bad("standby", ErrStandby.Error())
	}
	if err := info.check(); err != nil {
		return bad("moved", err.Error())
	}
	if info.Epoch != s.epoch {
		return bad("moved", "the epoch of the store changed while the program ran: restart it")
	}
	var drawn, count, top, size int64
	if err := s.pool.QueryRow(ctx, s.sql.lastDrawn).Scan(&drawn); err != nil {
		return bad("unreachable", err.Error())
	}
	if err := s.pool.QueryRow(ctx, s.sql.rangesTop).Scan(&count, &top, &size); err != nil {
		return bad("unreachable", err.Error())
	}
	if drawn >= top-size {
		return bad("ranges low", "less than one range of positions lies ahead: run Store.Run, or call ensure_ranges")
	}
	part, known, err := s.relayHealth(ctx)
	if err != nil {
		return bad("unreachable", err.Error())
	}
	if known {
		h.Parts = append(h.Parts, part)
	}
	blocker, held, err := s.Blocker(ctx)
	if err != nil {
		return bad("unreachable", err.Error())
	}
	if held && blocker.Age > patience {
		h.Since = time.Now().Add(-blocker.Age)
		return bad("head held", blocker.String())
	}
	if !s.cfg.TransactionPooler && !s.listening.Load() {
		h.State, h.Reason = "polling", "not listening for notifications (is Store.Run running?): events of other processes are seen by polling"
	}
	return h
}

// relayHealth is what the rows of the relays say, whether one lives or not. It reports false when none has ever run.
func (s *Store) relayHealth(ctx context.Context) (h eventstore.Health, known bool, err error) {
	var (
		state, reason    string
		since            time.Time
		segments, absent int
		unowned          *int
		age, waiting     float64 // seconds: the oldest message unsent, and the oldest that nobody is there to send
	)
	p := newPipeline()
	p.add(s.sql.sequenceSettings, nil)
	p.add(s.sql.relayHealth, func(rows pgx.Rows) error {
		known = false
		_, err := pgx.ForEachRow(rows, []any{&state, &reason, &since, &segments, &absent, &unowned, &age, &waiting}, func() error {
			known = true
			return nil
		})
		return err
	}, int64(math.MaxInt64))
	if err := s.run(ctx, p); err != nil || !known {
		return h, false, err
	}
	h = eventstore.Health{Component: "relay", State: state, Reason: reason, Since: since, Ready: state != "stopped"}
	oldest := time.Duration(age * float64(time.Second)).Round(time.Millisecond)
	switch wait := time.Duration(waiting * float64(time.Second)); {
	case state != "running":
	case unowned != nil && wait > unsentTooLong:
		h.Ready, h.State, h.Since = false, "no owner", time.Now().Add(-wait)
		h.Reason = fmt.Sprintf("no relay owns %d of %d segments (the first is %d), and the oldest message not sent there has waited for %v: run outbox.Relay",
			absent, segments, *unowned, wait.Round(time.Millisecond))
	case oldest > 0:
		h.Reason = fmt.Sprintf("the oldest message not sent has waited for %v", oldest)
	}
	return h, true, nil
}

const relayHealthSQL = `
SELECT c.state, c.reason, c.since, count(*), count(*) FILTER (WHERE x.absent), min(x.segment) FILTER (WHERE x.absent AND x.age > 0),
       coalesce(max(x.age), 0)::double precision, coalesce(max(x.age) FILTER (WHERE x.absent), 0)::double precision
  FROM {schema}.consumers c, LATERAL (
    SELECT g.segment, g.expires_at < clock_timestamp() AS absent, greatest(extract(epoch FROM clock_timestamp() -` + oldestUnsent + `), 0) AS age
      FROM {schema}.segments g WHERE g.consumer = c.consumer AND g.version = c.version) x
 WHERE c.consumer = 'outbox-relay' AND c.kind = 'relay'
 GROUP BY c.state, c.reason, c.since`
