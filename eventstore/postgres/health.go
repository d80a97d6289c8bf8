package postgres

import (
	"context"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// heldTooLong is how long one transaction may hold the head of the log before Health names it.
const heldTooLong = 10 * time.Second

// Health reports whether appends and reads can work: the database answers, its epoch is settled, ranges lie ahead, and
// nothing holds the head of the log. It asks the database and ends with ctx.
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
