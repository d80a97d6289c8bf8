package saga

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// explainConsumer is a consumer of the store at one moment.
type explainConsumer struct {
	name           string
	version        int
	state, reason  string
	since          time.Time
	segments, live int
	owner          string
	committedAt    time.Time // the last time that one of its segments moved
	until          time.Time // when the last lease ends, or has ended
	behind         bool      // there is something that one of its segments has not read
}

// atWork says in words who works on it.
func (c explainConsumer) atWork() string {
	switch {
	case c.name == "":
		return "has never run"
	case c.state != "running":
		text := "is " + c.state
		if c.reason != "" {
			text += " (" + explainClean(c.reason, 200) + ")"
		}
		return text
	case c.live == 0:
		return "does not run in any process"
	case c.live < c.segments:
		return fmt.Sprintf("runs for %d of %d segments", c.live, c.segments)
	}
	return "runs"
}

// stands: nobody works on some of it.
func (c explainConsumer) stands() bool {
	return c.name == "" || c.state != "running" || c.live < c.segments
}

const (
	explainDispatcher = "commands"
	explainRelay      = "outbox-relay"
)

func explainEvents(saga string) string  { return "saga-" + saga }
func explainReplies(saga string) string { return ReplyTopic(saga) }

func (r *reading) readConsumers(ctx context.Context) error {
	names := []string{explainEvents(r.row.saga), explainReplies(r.row.saga), explainDispatcher, explainRelay}
	rows, err := r.tx.Query(ctx, r.sql(explainConsumersSQL), names, r.now)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c explainConsumer, err error) {
		var committed, until *time.Time
		err = row.Scan(&c.name, &c.version, &c.state, &c.reason, &c.since, &c.segments, &c.live, &c.owner, &committed, &until, &c.behind)
		c.committedAt, c.until = explainTime(committed), explainTime(until)
		return c, err
	})
	r.consumers = map[string]explainConsumer{}
	for _, c := range all {
		r.consumers[c.name] = c // the highest version counts
	}
	return err
}

const explainConsumersSQL = `
SELECT c.consumer, c.version, c.state, c.reason, c.since, count(g.segment)::int, (count(*) FILTER (WHERE g.expires_at > $2))::int,
       coalesce(max(g.owner) FILTER (WHERE g.expires_at > $2), ''), max(g.committed_at),
       max(g.expires_at) FILTER (WHERE g.expires_at > '-infinity'),
       coalesce(min(g.floor) < pg_sequence_last_value('{schema}.log_position'::regclass), false)
  FROM {schema}.consumers c LEFT JOIN {schema}.segments g ON g.consumer = c.consumer AND g.version = c.version
 WHERE c.consumer = ANY($1) GROUP BY c.consumer, c.version ORDER BY c.consumer, c.version`

// explainOpen is an open letter of the saga's consumers, and what it is about.
type explainOpen struct {
	LetterInfo
	causation, correlation string
	sequence, tail         string // tail: of the id of its stream
	concerns               bool   // it keeps the instance, and not only others of its business transaction
}

// explainLettersMost is how many letters of each consumer are looked at: no index knows what they are about.
const explainLettersMost = 2000

// readOpen reads the open letters of the saga's consumers.
func (r *reading) readOpen(ctx context.Context) error {
	for _, name := range []string{explainEvents(r.row.saga), explainReplies(r.row.saga)} {
		c, known := r.consumers[name]
		if !known {
			continue
		}
		rows, err := r.tx.Query(ctx, r.sql(explainLettersSQL), name, c.version, explainLettersMost)
		if err != nil {
			return err
		}
		letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l explainOpen, err error) {
			err = row.Scan(&l.ID, &l.Consumer, &l.Version, &l.State, &l.Type, &l.Error, &l.FailedAt, &l.causation, &l.correlation, &l.sequence, &l.tail)
			l.FailedAt = l.FailedAt.UTC()
			return l, err
		})
		if err != nil {
			return err
		}
		r.open = append(r.open, letters...)
	}
	return nil
}

// explainLettersShown is how many letters of each consumer are told of.
const explainLettersShown = 10

// concern finds the letters that concern the instance. One that has ended is kept by nothing but what its own commands have
// caused, an answer that came late.
func (r *reading) concern() {
	caused := map[string]bool{}
	for _, c := range r.commands {
		caused[c.ID.String()] = true
	}
	var kin []explainOpen
	for _, l := range r.open {
		l.concerns = caused[l.causation] || !r.over() && (l.sequence == r.row.key || l.tail == r.row.key)
		switch {
		case l.concerns:
			r.letters = append(r.letters, l)
		case r.row.correlation != "" && l.correlation == r.row.correlation:
			kin = append(kin, l)
		}
	}
	r.letters = append(r.letters, kin...)
	shown := map[string]int{}
	r.letters = slices.DeleteFunc(r.letters, func(l explainOpen) bool {
		shown[l.Consumer]++
		return shown[l.Consumer] > explainLettersShown
	})
}

// explainLettersSQL reads by the index of open letters.
const explainLettersSQL = `
SELECT k.letter, k.consumer, k.version, k.state, k.type, k.error, k.last_failed_at, k.causation_id, k.correlation_id, k.sequence, k.tail FROM (
  SELECT l.letter, l.consumer, l.version, l.state, l.type, left(coalesce(l.errors[1], ''), 2000) AS error, l.last_failed_at, l.causation_id,
         l.correlation_id, l.sequence, substr(l.stream_id, strpos(l.stream_id, '-') + 1) AS tail, l.position
    FROM {schema}.letters l WHERE l.consumer = $1 AND l.version = $2 AND l.state IN ('retrying', 'parked')
   ORDER BY l.topic, l.sequence, l.position LIMIT $3) k
 ORDER BY k.position`
