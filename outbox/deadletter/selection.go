package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Selection says which open letters are meant. Its zero value selects nothing, and is refused.
type Selection struct {
	letter uuid.UUID
	filter *Filter
	text   string
}

// One selects a letter.
func One(letter uuid.UUID) Selection {
	return Selection{letter: letter, text: "letter " + letter.String()}
}

// Sequence selects the letter that a sequence of a consumer waits for. version 0 stands for the only version that has one;
// topic is empty but for relays.
func Sequence(consumer string, version int, topic, sequence string) Selection {
	f := Filter{Consumer: consumer, Version: version, Topic: topic, Sequence: sequence}
	return Selection{filter: &f, text: f.String()}
}

// OfGroup selects the letters of a group that wait for people; see [Letters.Groups].
func OfGroup(fingerprint string) Selection {
	return Matching(Filter{Fingerprint: fingerprint, State: Parked})
}

// Matching selects the open letters that a filter does, those that wait for people when it names no state. All must be of
// one consumer and version. After and Limit are not read.
func Matching(f Filter) Selection {
	if f.State == "" {
		f.State = Parked
	}
	f.After, f.Limit = "", 0
	return Selection{filter: &f, text: f.String()}
}

// String is the selection as people read it.
func (s Selection) String() string { return s.text }

func (s Selection) validate() error {
	switch {
	case s.filter == nil && s.letter == uuid.Nil:
		return invalid("Selection", "", "selects nothing", "use One, Sequence, OfGroup or Matching")
	case s.filter == nil:
		return nil
	case s.filter.Sequence == "" && s.text == "all" || *s.filter == (Filter{State: Parked}):
		return invalid("Selection", s.text, "selects every letter", "name the consumer at least")
	case !s.filter.open():
		return invalid("Selection", s.text, "is of closed letters", "those have ended; Undo puts a discarded one back")
	}
	return s.filter.validate()
}

// Preview is what a selection stands for now.
type Preview struct {
	Consumer string `json:"consumer"`
	Version  int    `json:"version"`
	// Letters is how many are selected, those included that cannot be acted on:
	Letters int `json:"letters"`
	// NotFirst are not the first open letter of their sequence, Planned are in a plan that is running.
	NotFirst int `json:"not_first"`
	Planned  int `json:"planned"`
	// Queued is how many messages are known behind the selected letters.
	Queued int64 `json:"queued"`
	// Examples are the first of them, by position, at most ten.
	Examples []Letter `json:"examples"`
}

// Preview says what a selection stands for now, and changes nothing. The error is [ErrNotFound] when no open letter is
// selected, and a [*RefusedError] when they belong to several consumers.
func (l *Letters) Preview(ctx context.Context, s Selection) (Preview, error) {
	var p Preview
	if err := s.validate(); err != nil {
		return p, err
	}
	err := l.read(ctx, "preview", func(tx pgx.Tx) error {
		f, letter, err := l.resolve(ctx, tx, "preview", s)
		if err != nil {
			return err
		}
		p = Preview{Consumer: f.Consumer, Version: f.Version, Examples: []Letter{}}
		var first []uuid.UUID
		sql, args := f.matchSQL(letter, `
SELECT count(*), count(*) FILTER (WHERE NOT first), count(*) FILTER (WHERE first AND planned), coalesce(sum(queued), 0)::bigint,
       (SELECT array_agg(k.letter) FROM (SELECT letter FROM m ORDER BY position, topic LIMIT 10) k) FROM m`)
		if err := tx.QueryRow(ctx, l.sql(sql), args...).Scan(&p.Letters, &p.NotFirst, &p.Planned, &p.Queued, &first); err != nil {
			return err
		}
		if p.Letters == 0 {
			return fmt.Errorf("%w: no open letter of %s", ErrNotFound, s)
		}
		rows, err := tx.Query(ctx, l.sql(examplesSQL), first)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var letter Letter
			places, filled := letter.into()
			if err := rows.Scan(places...); err != nil {
				return err
			}
			filled()
			p.Examples = append(p.Examples, letter)
		}
		return rows.Err()
	})
	return p, err
}

const examplesSQL = `SELECT ` + columns + ` FROM {schema}.letters l WHERE l.letter = ANY($1) ORDER BY l.position, l.topic`

// matchSQL makes m, the letters that f selects of one consumer and version, or the one letter, with what keeps each from
// being acted on: its sequence stands at another one, or is in a running plan. then may name the consumer as %[1]s and the version as %[2]s.
func (f Filter) matchSQL(letter uuid.UUID, then string, more ...any) (string, []any) {
	var w where
	consumer, version := w.arg(f.Consumer), w.arg(f.Version)
	if letter != uuid.Nil {
		w.add("l.letter = %s::uuid", letter)
		w.conditions = append(w.conditions, isOpen)
	} else {
		rest := f.key(&w)
		w.conditions = append(w.conditions, rest.conditions...)
	}
	names := []any{consumer, version}
	for _, m := range more {
		names = append(names, w.arg(m))
	}
	return fmt.Sprintf(`
WITH planned AS MATERIALIZED (
  SELECT i.topic, i.sequence FROM {schema}.redrives r JOIN {schema}.redrive_items i ON i.redrive = r.redrive AND i.state IN ('waiting', 'running')
   WHERE r.consumer = %[1]s AND r.version = %[2]s::int AND r.state = 'running'),
m AS MATERIALIZED (
  SELECT l.letter, l.topic, l.sequence, l.partition, l.position, (l.topic, l.sequence) IN (SELECT topic, sequence FROM planned) AS planned,
         coalesce(p.first_position = l.position, true) AS first, coalesce(p.queued, 0) AS queued
    FROM {schema}.letters l
    LEFT JOIN {schema}.parked p ON p.consumer = l.consumer AND p.version = l.version AND p.topic = l.topic AND p.sequence = l.sequence
   WHERE `, consumer, version) + w.String() + `)` + fmt.Sprintf(then+"%.0[1]s%.0[2]s", names...), w.args
}

// resolve finds the one consumer and version that a selection is of.
func (l *Letters) resolve(ctx context.Context, tx pgx.Tx, what string, s Selection) (Filter, uuid.UUID, error) {
	if s.filter == nil {
		var f Filter
		var state State
		err := tx.QueryRow(ctx, l.sql(`SELECT consumer, version, state FROM {schema}.letters WHERE letter = $1`), s.letter).Scan(&f.Consumer, &f.Version, &state)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return f, s.letter, notFound("letter", s.letter)
		case err == nil && !state.Open():
			return f, s.letter, refuse(what, s.letter, "it is %s, no longer open", state)
		}
		return f, s.letter, err
	}
	f := *s.filter
	if f.Consumer != "" && f.Version != 0 {
		return f, uuid.Nil, nil
	}
	owners, err := l.owners(ctx, tx, f)
	switch {
	case err != nil:
		return f, uuid.Nil, err
	case len(owners) == 0:
		return f, uuid.Nil, fmt.Errorf("%w: no open letter of %s", ErrNotFound, s)
	case len(owners) > 1:
		var names []string
		for _, o := range owners {
			names = append(names, fmt.Sprintf("%s v%d", o.Consumer, o.Version))
		}
		return f, uuid.Nil, refuse(what, uuid.Nil, "%s is of several consumers: name one of %s, and its version", s, strings.Join(names, ", "))
	}
	f.Consumer, f.Version = owners[0].Consumer, owners[0].Version
	return f, uuid.Nil, nil
}

type owner struct {
	Consumer string
	Version  int
}

// owners are consumers that have open letters of the group or the sequence of f, or any.
func (l *Letters) owners(ctx context.Context, tx pgx.Tx, f Filter) ([]owner, error) {
	rows, err := tx.Query(ctx, l.sql(ownersSQL), f.Consumer, f.Fingerprint, f.Topic, f.Sequence)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[owner])
}

// ownersSQL steps from one consumer and version with open letters to the next, and keeps those that have some of a group
// or a sequence.
const ownersSQL = `
WITH RECURSIVE o AS (
  (SELECT l.consumer, l.version FROM {schema}.letters l WHERE ` + isOpen + ` AND l.consumer >= $1 ORDER BY l.consumer, l.version LIMIT 1)
  UNION ALL
  SELECT n.consumer, n.version FROM o, LATERAL (
    SELECT l.consumer, l.version FROM {schema}.letters l
     WHERE ` + isOpen + ` AND (l.consumer, l.version) > (o.consumer, o.version) ORDER BY l.consumer, l.version LIMIT 1) n
   WHERE $1 = '' OR n.consumer = $1)
SELECT o.consumer, o.version FROM o
 WHERE ($1 = '' OR o.consumer = $1)
   AND ($2 = '' OR EXISTS (SELECT FROM {schema}.letters l WHERE ` + isOpen + ` AND l.consumer = o.consumer AND l.version = o.version AND l.fingerprint = $2))
   AND ($4 = '' OR EXISTS (SELECT FROM {schema}.letters l WHERE ` + isOpen + ` AND l.consumer = o.consumer AND l.version = o.version AND l.topic = $3 AND l.sequence = $4))
 LIMIT 10`
