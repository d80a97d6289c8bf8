package deadletter

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// scanned bounds how many letters one page looks at when no index knows what is asked for.
const scanned = 5_000

// Page is a part of a list.
type Page struct {
	Letters []Letter `json:"letters"`
	// Next is where the list goes on, for Filter.After; empty at its end. A page may have few letters or none although more
	// follow: what is asked for was not among those that one page looks at.
	Next string `json:"next,omitempty"`
}

// List returns a page of the letters that f selects, without their payloads. Open letters come by consumer, version,
// topic and sequence, within a sequence by position; those of one group of a named consumer and version by the time of
// their last failure; closed ones by the time when they were closed, the oldest first. What is changed between two pages
// may be missed or seen twice, nothing else is.
func (l *Letters) List(ctx context.Context, f Filter) (Page, error) {
	var page Page
	err := f.validate()
	if err != nil {
		return page, err
	}
	after, err := f.after()
	if err != nil {
		return page, err
	}
	err = l.read(ctx, "list", func(tx pgx.Tx) error {
		if after == nil || after.Order != byFailure {
			if f, err = l.narrow(ctx, tx, f); err != nil {
				return err
			}
		}
		if after != nil && after.Order != f.order() { // the group had letters of several consumers, and has no longer
			f.Version = 0
		}
		most := f.looksAt()
		sql, args := f.listSQL(after, most)
		page, err = l.page(ctx, tx, f, most, sql, args)
		return err
	})
	return page, err
}

// narrow names the consumer and the version that a group or a sequence is of, when there is one: the indexes begin with
// them.
func (l *Letters) narrow(ctx context.Context, tx pgx.Tx, f Filter) (Filter, error) {
	if f.Consumer != "" && f.Version != 0 || !f.open() || f.Fingerprint == "" && f.Sequence == "" {
		return f, nil
	}
	owners, err := l.owners(ctx, tx, f)
	if err == nil && len(owners) == 1 {
		f.Consumer, f.Version = owners[0].Consumer, owners[0].Version
	}
	return f, err
}

func (l *Letters) page(ctx context.Context, tx pgx.Tx, f Filter, most int, sql string, args []any) (Page, error) {
	page := Page{Letters: []Letter{}}
	rows, err := tx.Query(ctx, l.sql(sql), args...)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	last, more := cursor{}, false
	for rows.Next() {
		var letter Letter
		var fits bool
		var nth int
		places, filled := letter.into()
		if err := rows.Scan(append(places, &fits, &nth)...); err != nil {
			return page, err
		}
		filled()
		if fits && len(page.Letters) == f.limit() {
			more = true // this row says so
			break
		}
		last, more = f.cursorAt(letter), nth == most
		if fits {
			page.Letters = append(page.Letters, letter)
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return page, err
	}
	if more {
		page.Next = last.String()
	}
	return page, nil
}

func (f Filter) limit() int {
	if f.Limit == 0 {
		return defaultLimit
	}
	return f.Limit
}

// listSQL gives, of the next most letters that an index finds, those that fit, at most one more than the limit; and the
// last one in any case, from which to go on. Its rows end with whether they fit and their number.
func (f Filter) listSQL(after *cursor, most int) (string, []any) {
	var w where
	rest := f.key(&w)
	var order string
	switch f.order() {
	case bySequence:
		order = "l.consumer, l.version, l.topic, l.sequence, l.position"
		if after != nil {
			w.add("(l.consumer, l.version, l.topic, l.sequence, l.position) > (%s, %s::int, %s, %s, %s::bigint)",
				after.Consumer, after.Version, after.Topic, after.Sequence, after.Position)
		}
	case byFailure:
		order = "l.last_failed_at, l.letter"
		if after != nil {
			w.add("l.last_failed_at >= %s::timestamptz", after.At)
			w.add("(l.last_failed_at, l.letter) > (%s::timestamptz, %s::uuid)", after.At, after.Letter)
		}
	default:
		order = "l.closed_at, l.letter"
		if after != nil {
			w.add("l.closed_at >= %s::timestamptz", after.At)
			w.add("(l.closed_at, l.letter) > (%s::timestamptz, %s::uuid)", after.At, after.Letter)
		}
	}
	return fmt.Sprintf(`
SELECT * FROM (
  SELECT %s, (%s) AS fits, row_number() OVER (ORDER BY %[4]s) AS nth
    FROM {schema}.letters l WHERE %[3]s ORDER BY %[4]s LIMIT %[5]s::int) k
 WHERE k.fits OR k.nth = %[5]s::int ORDER BY k.nth LIMIT %[6]s::int`,
		columns, &rest, &w, order, w.arg(most), w.arg(f.limit()+1)), w.args
}

// looksAt is how many letters a page looks at.
func (f Filter) looksAt() int {
	var w where
	if rest := f.key(&w); len(rest.conditions) == 0 {
		return f.limit() + 1
	}
	return scanned
}

func (f Filter) cursorAt(l Letter) cursor {
	switch order := f.order(); order {
	case bySequence:
		return cursor{Order: order, Consumer: l.Consumer, Version: l.Version, Topic: l.Topic, Sequence: l.Sequence, Position: l.Position.Ordinal()}
	case byFailure:
		return cursor{Order: order, Consumer: l.Consumer, Version: l.Version, At: l.LastFailedAt, Letter: l.ID}
	default:
		return cursor{Order: order, At: l.ClosedAt, Letter: l.ID}
	}
}
