package saga

import (
	"context"
	"fmt"
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

// readLetters finds dead letters of the saga's consumers that concern the instance: what its commands have caused, what
// belongs to the same business transaction, and what is of a stream with its key.
func (r *reading) readLetters(ctx context.Context) error {
	ids := []string{}
	for _, c := range r.commands {
		ids = append(ids, c.ID.String())
	}
	for _, name := range []string{explainEvents(r.row.saga), explainReplies(r.row.saga)} {
		c, known := r.consumers[name]
		if !known {
			continue
		}
		rows, err := r.tx.Query(ctx, r.sql(explainLettersSQL), name, c.version, ids, r.row.correlation, r.row.key)
		if err != nil {
			return err
		}
		letters, err := pgx.CollectRows(rows, explainLetter)
		if err != nil {
			return err
		}
		r.letters = append(r.letters, letters...)
	}
	return nil
}

func explainLetter(row pgx.CollectableRow) (l LetterInfo, err error) {
	err = row.Scan(&l.ID, &l.Consumer, &l.Version, &l.State, &l.Type, &l.Error, &l.FailedAt)
	l.FailedAt = l.FailedAt.UTC()
	return l, err
}

// No index knows what a letter is about; so many are looked at.
const explainLettersSQL = `
SELECT l.letter, l.consumer, l.version, l.state, l.type, coalesce(l.errors[1], ''), l.last_failed_at FROM (
  SELECT * FROM {schema}.letters l WHERE l.consumer = $1 AND l.version = $2 AND l.state IN ('retrying', 'parked')
   ORDER BY l.topic, l.sequence, l.position LIMIT 2000) l
 WHERE l.causation_id = ANY($3) OR $4 <> '' AND l.correlation_id = $4 OR l.sequence = $5 OR substr(l.stream_id, strpos(l.stream_id, '-') + 1) = $5
 ORDER BY l.position LIMIT 10`
