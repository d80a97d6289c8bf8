package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Whereabouts is where a command is.
type Whereabouts string

// The whereabouts of commands.
const (
	WhereOutbox    Whereabouts = "outbox"    // stored, and not yet with whoever carries it out
	WherePublished Whereabouts = "published" // the relay has sent it, and the dispatcher has not come to it
	WhereRunning   Whereabouts = "running"   // it is being carried out
	WhereDone      Whereabouts = "done"      // it was carried out
	WhereRefused   Whereabouts = "refused"   // by its receiver: not done
	WhereExpired   Whereabouts = "expired"   // it never ran, and never will
	WhereFailed    Whereabouts = "failed"    // the dispatcher gave it up
	WhereSetAside  Whereabouts = "set aside" // the relay could not send it: it is a dead letter
	WhereUnknown   Whereabouts = "unknown"   // it has left the outbox, and nothing is known of its end
)

// CommandInfo is a command of the instance, and where it is.
type CommandInfo struct {
	ID         uuid.UUID   `json:"id"`
	Step       string      `json:"step"`
	Direction  string      `json:"direction"` // "do", "undo", "end"
	Intent     int         `json:"intent"`
	Undoes     uuid.UUID   `json:"undoes,omitzero"`
	Type       string      `json:"type"`
	Target     string      `json:"target,omitempty"`
	SentAt     time.Time   `json:"sent_at"`
	ResentAt   time.Time   `json:"resent_at,omitzero"` // the last time
	Where      Whereabouts `json:"where"`
	Closed     bool        `json:"closed,omitempty"`   // its step is over: it is not carried out any more
	Position   string      `json:"position,omitempty"` // in the outbox
	Behind     int         `json:"behind,omitempty"`   // how many commands are before it there, of its partition
	Code       string      `json:"code,omitempty"`     // of how it ended
	Reason     string      `json:"reason,omitempty"`
	StartedAt  time.Time   `json:"started_at,omitzero"` // when it began to be carried out, if that is known
	FinishedAt time.Time   `json:"finished_at,omitzero"`
	RepliedAt  time.Time   `json:"replied_at,omitzero"` // when the saga learned of its end
	Letter     uuid.UUID   `json:"letter,omitzero"`     // of the relay

	head explainHead
}

// explainHead is what stands at the head of a command's partition, with whoever has not passed it.
type explainHead struct {
	consumer string
	position string
	kind     string
	id       uuid.UUID
	at       time.Time
}

// sent is when it was sent last.
func (c CommandInfo) sent() time.Time {
	if c.ResentAt.After(c.SentAt) {
		return c.ResentAt
	}
	return c.SentAt
}

// ended: its end is known.
func (c CommandInfo) ended() bool {
	switch c.Where {
	case WhereDone, WhereRefused, WhereExpired, WhereFailed:
		return true
	}
	return false
}

func (r *reading) scanCommands(rows pgx.Rows) (err error) {
	r.commands, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c CommandInfo, err error) {
		var undoes *uuid.UUID
		var state, operation, code, reason string
		var resent, replied, started, finished *time.Time
		err = row.Scan(&c.ID, &c.Step, &c.Direction, &c.Intent, &undoes, &c.Type, &c.Target, &state, &c.Code, &c.Reason, &c.Closed,
			&c.SentAt, &resent, &replied, &operation, &code, &reason, &started, &finished)
		if undoes != nil {
			c.Undoes = *undoes
		}
		c.SentAt, c.ResentAt, c.RepliedAt = c.SentAt.UTC(), explainTime(resent), explainTime(replied)
		c.StartedAt, c.FinishedAt = explainTime(started), explainTime(finished)
		if c.Where = Whereabouts(state); c.ended() {
			return c, err
		}
		switch c.Where = Whereabouts(operation); {
		case c.ended():
			c.Code, c.Reason = code, reason
		case c.Where != WhereRunning:
			c.Where = ""
		}
		return c, err
	})
	return err
}

const explainCommandsSQL = `
SELECT k.command, k.step, k.direction, k.intent, k.undoes, k.type, k.target, k.state, k.code, k.reason, k.closed, k.sent_at, k.resent_at, k.replied_at,
       coalesce(o.state, ''), coalesce(o.code, ''), coalesce(o.reason, ''), o.started_at, o.finished_at
  FROM (SELECT * FROM {schema}.saga_commands c WHERE c.saga = $1 AND c.key = $2 AND c.run = $3 ORDER BY c.sent_at DESC, c.command LIMIT $4) k
  LEFT JOIN {schema}.operations o ON o.id = k.command
 ORDER BY k.sent_at, k.command`

// explainSought is how many commands are looked for in the outbox, and explainAhead how many messages of a partition are
// looked through for each.
const (
	explainSought = 10
	explainAhead  = 5000
)

// find looks in the outbox for the commands of which nothing else is known, the last ones first.
func (r *reading) find(ctx context.Context) error {
	sought := 0
	for i := len(r.commands) - 1; i >= 0; i-- {
		c := &r.commands[i]
		if c.Where != "" {
			continue
		}
		c.Where = WhereUnknown
		if sought++; sought > explainSought {
			continue
		}
		if err := r.findCommand(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (r *reading) findCommand(ctx context.Context, c *CommandInfo) error {
	key := c.Target
	if key == "" {
		key = c.ID.String()
	}
	relay := r.consumers[explainRelay].version
	var partition int
	var published bool
	var dispatched, relayed int64
	if err := r.tx.QueryRow(ctx, r.sql(explainPlaceSQL), key, relay).Scan(&partition, &published, &dispatched, &relayed); err != nil {
		return err
	}
	if published {
		err := r.tx.QueryRow(ctx, r.sql(explainAsideSQL), explainRelay, relay, key, c.sent()).Scan(&c.Letter)
		if err == nil {
			c.Where = WhereSetAside
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	position, looked, err := r.look(ctx, c, explainDispatcher, partition, dispatched)
	switch {
	case err != nil:
		return err
	case position == 0 && looked == explainAhead: // further back than is looked
		c.Where, c.Behind = WhereOutbox, looked
	case position == 0:
	case published && position <= relayed:
		c.Where = WherePublished
	case published:
		c.Where = WhereOutbox
		_, _, err = r.look(ctx, c, explainRelay, partition, relayed)
	default:
		c.Where = WhereOutbox
	}
	return err
}

// look finds a command among the messages of its partition that a consumer has not passed, and what stands at their head.
func (r *reading) look(ctx context.Context, c *CommandInfo, consumer string, partition int, after int64) (position int64, looked int, err error) {
	var at, headAt *int64
	var kind *string
	var id *uuid.UUID
	var recorded *time.Time
	err = r.tx.QueryRow(ctx, r.sql(explainAheadSQL), partition, after, explainAhead, c.ID).Scan(&looked, &at, &c.Behind, &headAt, &kind, &id, &recorded)
	if err != nil || at == nil {
		c.Behind = 0
		return 0, looked, err
	}
	c.Position, c.head = explainPosition(*at), explainHead{consumer: consumer}
	if headAt != nil && *headAt != *at {
		c.head = explainHead{consumer, explainPosition(*headAt), *kind, *id, recorded.UTC()}
	}
	return *at, looked, nil
}

const (
	// A relay that has sent messages of the topic is what the dispatcher reads from.
	explainPlaceSQL = `
SELECT p.partition,
       EXISTS (SELECT FROM {schema}.outbox_tails t WHERE t.consumer = 'outbox-relay' AND t.version = $2 AND t.topic = 'commands'),
       coalesce(d.place, 0), coalesce(l.place, 0)
  FROM (SELECT {schema}.partition_of($1, s.partitions) AS partition FROM {schema}.store s) p
  LEFT JOIN LATERAL (
    SELECT greatest(g.floor, c.applied) AS place FROM {schema}.segments g
      LEFT JOIN {schema}.checkpoints c ON c.consumer = g.consumer AND c.version = g.version AND c.topic = '' AND c.partition = p.partition
     WHERE g.consumer = 'commands' AND p.partition BETWEEN g.first_partition AND g.last_partition ORDER BY g.version DESC LIMIT 1) d ON true
  LEFT JOIN LATERAL (
    SELECT greatest(g.floor, c.applied) AS place FROM {schema}.segments g
      LEFT JOIN {schema}.checkpoints c ON c.consumer = g.consumer AND c.version = g.version AND c.topic = '' AND c.partition = p.partition
     WHERE g.consumer = 'outbox-relay' AND g.version = $2 AND p.partition BETWEEN g.first_partition AND g.last_partition LIMIT 1) l ON true`

	explainAheadSQL = `
WITH q AS MATERIALIZED (
  SELECT o.first_position AS position, o.id, o.topic, o.type, o.recorded_at FROM {schema}.outbox o
   WHERE o.partition = $1 AND o.first_position > $2 ORDER BY o.first_position LIMIT $3)
SELECT (SELECT count(*)::int FROM q), f.position, (SELECT count(*)::int FROM q WHERE q.topic = 'commands' AND q.position < f.position),
       h.position, h.type, h.id, h.recorded_at
  FROM (SELECT (SELECT q.position FROM q WHERE q.topic = 'commands' AND q.id = $4 ORDER BY q.position LIMIT 1) AS position) f
  LEFT JOIN LATERAL (SELECT * FROM q WHERE q.topic = 'commands' ORDER BY q.position LIMIT 1) h ON true`

	explainAsideSQL = `
SELECT l.letter FROM {schema}.letters l WHERE l.consumer = $1 AND l.version = $2 AND l.topic = 'commands' AND l.sequence = $3
   AND l.recorded_at <= $4 AND l.state IN ('retrying', 'parked') ORDER BY l.position LIMIT 1`
)

// WhereText says where the command is, for people: "is in the outbox at position 77, before the dispatcher". It is safe for
// a terminal.
func (c CommandInfo) WhereText(now time.Time) string {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return " at " + explainMoment(t)
	}
	why := ""
	if c.Code != "" || c.Reason != "" {
		why = " (" + explainWhy(c.Code, c.Reason) + ")"
	}
	switch c.Where {
	case WhereOutbox:
		text := "is in the outbox"
		if c.Position != "" {
			text += " at position " + c.Position
		}
		if c.Behind > 0 {
			text += fmt.Sprintf(" behind %s", explainCount(c.Behind, "other command"))
		}
		if c.head.consumer == explainRelay {
			return text + ", before the relay"
		}
		return text + ", before the dispatcher"
	case WherePublished:
		return "is published (position " + c.Position + "), and the dispatcher has not come to it"
	case WhereRunning:
		return "is being carried out since " + explainSince(c.StartedAt, now)
	case WhereDone:
		return "was carried out" + at(c.FinishedAt)
	case WhereRefused:
		return "was refused" + at(c.FinishedAt) + why
	case WhereExpired:
		return "has expired" + at(c.FinishedAt) + why
	case WhereFailed:
		return "was given up by the dispatcher" + at(c.FinishedAt) + why
	case WhereSetAside:
		return "was set aside by the relay as letter " + c.Letter.String()
	}
	return "has left the outbox, and its end is not known"
}
