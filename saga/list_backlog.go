package saga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// aside: the relay has set the command aside, or something before it.
func (c CommandInfo) aside() bool { return c.Where == WhereSetAside && !c.Closed }

// underWay: the command is on its way to whoever carries it out.
func (c CommandInfo) underWay() bool {
	return (c.Where == WhereOutbox || c.Where == WherePublished) && !c.Closed
}

// untold: the command has ended, and the saga has not learned of it.
func (c CommandInfo) untold() bool {
	return c.ended() && c.RepliedAt.IsZero() && !c.FinishedAt.IsZero() && !c.Closed
}

// firstCommand is the first command that is so; the zero id without any.
func (r *reading) firstCommand(is func(CommandInfo) bool) uuid.UUID {
	if n := slices.IndexFunc(r.commands, is); n >= 0 {
		return r.commands[n].ID
	}
	return uuid.Nil
}

// readPlaces reads up to where the dispatcher has come with commands, and the saga with their ends, and whether a relay publishes.
func (l *listing) readPlaces(ctx context.Context) error {
	err := l.tx.QueryRow(ctx, l.sql(listRelayedSQL), l.common.consumers[explainRelay].version).Scan(&l.relayed)
	if err != nil {
		return err
	}
	var partitions int
	if err := l.tx.QueryRow(ctx, l.sql(`SELECT s.partitions FROM {schema}.store s`)).Scan(&partitions); err != nil {
		return err
	}
	l.sent, err = l.placesOf(ctx, explainDispatcher, partitions)
	if err == nil {
		l.told, err = l.placesOf(ctx, explainReplies(l.f.Saga), partitions)
	}
	return err
}

// placesOf is by partition up to where a consumer has come.
func (l *listing) placesOf(ctx context.Context, consumer string, partitions int) ([]int64, error) {
	places := make([]int64, partitions)
	rows, err := l.tx.Query(ctx, l.sql(listPlacesSQL), consumer, l.common.consumers[consumer].version)
	if err != nil {
		return nil, err
	}
	var first, last int
	var place int64
	_, err = pgx.ForEachRow(rows, []any{&first, &last, &place}, func() error {
		for n := max(first, 0); n <= min(last, partitions-1); n++ {
			places[n] = max(places[n], place)
		}
		return nil
	})
	return places, err
}

const (
	listRelayedSQL = `SELECT EXISTS (SELECT FROM {schema}.outbox_tails t WHERE t.consumer = 'outbox-relay' AND t.version = $1 AND t.topic = 'commands')`

	listPlacesSQL = `
SELECT g.first_partition, g.last_partition, g.floor FROM {schema}.segments g WHERE g.consumer = $1 AND g.version = $2
UNION ALL
SELECT c.partition, c.partition, c.applied FROM {schema}.checkpoints c WHERE c.consumer = $1 AND c.version = $2 AND c.topic = ''`
)

// backlogStage has the instances of messages of a topic that a consumer has not come to, partition by partition. Without a topic
// it is that of the saga's replies.
func backlogStage(name, topic, command string, places func(*listing) []int64, active func(*listing) bool, is func(CommandInfo) bool) *listStage {
	sql := fmt.Sprintf(listBacklogSQL, command)
	return &listStage{
		name: name, reasons: []string{ReasonOutboxBlocked}, active: active,
		has:   func(_ *listing, r *reading) bool { return r.firstCommand(is) != uuid.Nil },
		first: func(_ *listing, r *reading, c candidate) bool { return r.firstCommand(is) == c.command },
		find: func(ctx context.Context, l *listing, after *listCursor, most int) (found []candidate, end *listCursor, err error) {
			topic := cmp.Or(topic, explainReplies(l.f.Saga))
			from := *cmp.Or(after, &listCursor{Order: name})
			for all := places(l); from.Partition < len(all); from = (listCursor{Order: name, Partition: from.Partition + 1}) {
				for {
					looked, err := l.backlog(ctx, sql, topic, from, max(from.Number, all[from.Partition]), most, &found)
					if err != nil {
						return nil, nil, err
					}
					if looked == 0 {
						break
					}
					if from.Number = looked; len(found) >= most || l.looked >= listLooked {
						return found, &from, nil
					}
				}
			}
			return found, nil, nil
		},
	}
}

// backlog looks through the next messages of a partition. It returns the position of the last one, 0 at the end.
func (l *listing) backlog(ctx context.Context, sql, topic string, at listCursor, after int64, most int, found *[]candidate) (last int64, err error) {
	rows, err := l.tx.Query(ctx, l.sql(sql), at.Partition, after, max(most, 500), topic, l.f.Saga)
	if err != nil {
		return 0, err
	}
	var key *string
	var run *int
	var command *uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&last, &command, &key, &run}, func() error {
		l.looked++
		if key != nil {
			at.Number = last
			*found = append(*found, candidate{place: place{*key, *run}, command: *command, at: at})
		}
		return nil
	})
	return last, err
}

// listBacklogSQL counts what is of other topics too, so that what it reads is bounded.
const listBacklogSQL = `
SELECT q.position, c.command, c.key, c.run FROM (
  SELECT o.first_position AS position, o.id, o.topic, o.causation_id FROM {schema}.outbox o
   WHERE o.partition = $1 AND o.first_position > $2 ORDER BY o.first_position LIMIT $3) q
  LEFT JOIN LATERAL (SELECT x.command, x.key, x.run FROM {schema}.saga_commands x
                      WHERE q.topic = $4 AND x.command = %s AND x.saga = $5 AND x.run > 0 OFFSET 0) c ON true
 ORDER BY q.position`

// findAside has the instances of commands that the relay has set aside, and of those behind them.
func findAside(ctx context.Context, l *listing, after *listCursor, most int) (found []candidate, end *listCursor, err error) {
	from := *cmp.Or(after, &listCursor{Order: "aside"})
	relay := l.common.consumers[explainRelay].version
	for {
		// The sequence that is under way, or the next one.
		var sequence string
		var partition int
		var position int64
		var recorded time.Time
		err := l.tx.QueryRow(ctx, l.sql(listAsideSQL), relay, from.Name, from.Number > 0).Scan(&sequence, &partition, &position, &recorded)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return found, nil, nil
		case err != nil:
			return nil, nil, err
		}
		if sequence != from.Name {
			from = listCursor{Order: "aside", Name: sequence, Number: position - 1}
		}
		if from.Number == position-1 { // the letter itself may be in the outbox no more
			if err := l.asideLetters(ctx, relay, from, &found); err != nil {
				return nil, nil, err
			}
		}
		rows, err := l.tx.Query(ctx, l.sql(listBehindSQL), partition, from.Number, max(most, 500), sequence, l.f.Saga)
		if err != nil {
			return nil, nil, err
		}
		n := 0
		var last int64
		var command *uuid.UUID
		var key *string
		var run *int
		_, err = pgx.ForEachRow(rows, []any{&last, &command, &key, &run}, func() error {
			n++
			l.looked++
			if from.Number = last; key != nil {
				found = append(found, candidate{place: place{*key, *run}, command: *command, at: from})
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		if n < max(most, 500) {
			from = listCursor{Order: "aside", Name: sequence} // its end
		}
		if l.looked++; len(found) >= most || l.looked >= listLooked {
			return found, &from, nil
		}
	}
}

func (l *listing) asideLetters(ctx context.Context, relay int, at listCursor, found *[]candidate) error {
	rows, err := l.tx.Query(ctx, l.sql(listLettersAsideSQL), relay, at.Name, l.f.Saga)
	if err != nil {
		return err
	}
	var command uuid.UUID
	var p place
	_, err = pgx.ForEachRow(rows, []any{&command, &p.key, &p.run}, func() error {
		*found = append(*found, candidate{place: p, command: command, at: at})
		return nil
	})
	return err
}

const (
	// By the index of open letters, a sequence at a time.
	listAsideSQL = `
SELECT l.sequence, {schema}.partition_of(l.sequence, s.partitions), l.position, l.recorded_at FROM {schema}.store s, LATERAL (
  SELECT l.sequence, l.position, l.recorded_at FROM {schema}.letters l
   WHERE l.consumer = 'outbox-relay' AND l.version = $1 AND l.topic = 'commands' AND l.state IN ('retrying', 'parked')
     AND l.sequence >= $2 AND (l.sequence > $2 OR $3) ORDER BY l.sequence, l.position LIMIT 1) l`

	listLettersAsideSQL = `
SELECT x.command, x.key, x.run FROM (
  SELECT l.id FROM {schema}.letters l WHERE l.consumer = 'outbox-relay' AND l.version = $1 AND l.topic = 'commands' AND l.sequence = $2
     AND l.state IN ('retrying', 'parked') ORDER BY l.position LIMIT 100) l
 CROSS JOIN LATERAL (SELECT c.command, c.key, c.run FROM {schema}.saga_commands c WHERE c.command = l.id AND c.saga = $3 AND c.run > 0 OFFSET 0) x`

	listBehindSQL = `
SELECT q.position, c.command, c.key, c.run FROM (
  SELECT o.first_position AS position, o.id, o.topic, o.key FROM {schema}.outbox o
   WHERE o.partition = $1 AND o.first_position > $2 ORDER BY o.first_position LIMIT $3) q
  LEFT JOIN LATERAL (SELECT x.command, x.key, x.run FROM {schema}.saga_commands x
                      WHERE q.topic = 'commands' AND q.key = $4 AND x.command = q.id AND x.saga = $5 AND x.run > 0 OFFSET 0) c ON true
 ORDER BY q.position`
)

// findLetters has the instances that letters of the saga's own consumers concern: all of them, and goes on by key.
func findLetters(ctx context.Context, l *listing, after *listCursor, most int) (found []candidate, end *listCursor, err error) {
	var causes, keys []string
	for _, o := range l.common.open {
		if _, err := uuid.Parse(o.causation); err == nil {
			causes = append(causes, o.causation)
		}
		for _, key := range []string{o.sequence, o.tail} {
			if key != "" {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	rows, err := l.tx.Query(ctx, l.sql(listLettersSQL), l.f.Saga, causes, slices.Compact(keys))
	if err != nil {
		return nil, nil, err
	}
	places, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p place, err error) {
		err = row.Scan(&p.key, &p.run)
		return p, err
	})
	if err != nil {
		return nil, nil, err
	}
	byPlace := func(x, y place) int { return cmp.Or(strings.Compare(x.key, y.key), cmp.Compare(x.run, y.run)) }
	slices.SortFunc(places, byPlace)
	for _, p := range slices.Compact(places) {
		at := listCursor{Order: "letters", Key: p.key, Run: p.run}
		switch {
		case after != nil && byPlace(p, place{after.Key, after.Run}) <= 0:
		case len(found) == most:
			return found, &found[most-1].at, nil
		default:
			found = append(found, candidate{place: p, at: at})
		}
	}
	return found, nil, nil
}

// listLettersSQL: of a key at most a few of its last runs have not ended.
const listLettersSQL = `
SELECT c.key, c.run FROM unnest($2::text[]) u(id)
 CROSS JOIN LATERAL (SELECT x.key, x.run FROM {schema}.saga_commands x WHERE x.command = u.id::uuid AND x.saga = $1 AND x.run > 0 OFFSET 0) c
UNION
SELECT s.key, s.run FROM unnest($3::text[]) u(key)
 CROSS JOIN LATERAL (SELECT x.key, x.run, x.ended_at FROM {schema}.sagas x WHERE x.saga = $1 AND x.key = u.key ORDER BY x.run DESC LIMIT 20) s
 WHERE s.ended_at IS NULL`
