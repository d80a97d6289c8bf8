package commands

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// settleUnheard is settle for a command whose handler cannot be asked, because there is none here, or because the command
// does not get to it: another program may have carried it out, or be in its midst. It is ended by its key alone. What it came
// to before is read from the store, whatever was asked: there is one command under its id. The verdict is v, unless it had
// succeeded or been refused before.
func (d *Dispatcher) settleUnheard(ctx context.Context, c bus.Command, v verdict) (settled, error) {
	for attempt := 1; ; {
		budget, cancel := context.WithTimeout(ctx, sealPatience)
		reply, err := d.callBy(budget, c, d.bury)
		buried := errors.Is(err, bus.ErrExpired) && reply.Settled
		unable := errors.Is(err, bus.ErrExpired) && !reply.Settled // no bus.Idempotent, or no key
		found, known := verdict{}, false
		if !buried {
			var lookErr error
			if found, known, lookErr = d.outcome(budget, c); lookErr != nil {
				err, unable = lookErr, false
			}
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return settled{}, context.Cause(ctx)
		case known:
			return settled{verdict: found, ok: true, stored: true}, nil
		case buried, err == nil: // or it expired before, or what it came to is forgotten by now
			return settled{verdict: v, ok: true, stored: true}, nil
		case unable:
			return settled{verdict: v, ok: true}, nil
		}
		switch waited, err := d.waitOut(ctx, err); {
		case err != nil:
			return settled{}, err
		case waited:
			continue
		}
		if attempt++; attempt > d.cfg.Attempts {
			return settled{err: err}, nil
		}
		if !rest(ctx, firstPause) {
			return settled{}, context.Cause(ctx)
		}
	}
}

// outcome is what the store has under the key of a command that was carried out or refused.
func (d *Dispatcher) outcome(ctx context.Context, c bus.Command) (verdict, bool, error) {
	var kind eventstore.OutcomeKind
	var code, reason, stream string
	var version int64
	err := d.db.QueryRow(ctx, d.sql.outcome, scopeOf(c), keyOf(c)).Scan(&kind, &code, &reason, &stream, &version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return verdict{}, false, nil
	case err != nil:
		return verdict{}, false, err
	}
	v := verdict{stored: true}
	if id, err := eventstore.ParseStreamID(stream); err == nil {
		v.stream, v.version = id, eventstore.Version(version)
	}
	switch kind {
	case eventstore.OutcomeDone:
		v.state, v.reason = bus.OperationDone, "it had been carried out before by another program; its result is left out, as this one does not get it from a handler"
	case eventstore.OutcomeRefused:
		v.state, v.code, v.reason = bus.OperationRefused, code, (&aggregate.RefusedError{Code: code, Text: reason}).Error()
	default:
		return verdict{}, false, nil
	}
	return v, true, nil
}

// outcomeSQL reads by the primary key. The stream is told when there is one.
const outcomeSQL = `
SELECT o.kind, o.code, o.reason, CASE WHEN cardinality(o.streams) = 1 THEN o.streams[1] ELSE '' END,
       CASE WHEN cardinality(o.streams) = 1 THEN o.versions[1] ELSE 0 END
  FROM {schema}.outcomes o WHERE o.scope = $1 AND o.key = $2 LIMIT 1`
