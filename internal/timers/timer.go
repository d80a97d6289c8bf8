package timers

import (
	"context"
	"hash/fnv"
	"math/bits"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Timer is a timer as it was claimed.
type Timer struct {
	Queue, Name string
	// ID is the row's: a timer that is set under the name of one that is gone has another.
	ID int64
	// Due is what it was set to. Visible is when it could be claimed: Due, or the end of a pause, or of a lease that passed.
	Due, Visible time.Time
	// Token fences: who finishes the timer must know it.
	Token int64
	// ClaimedAt is the database's time of the claim, or the one that the claim was given.
	ClaimedAt   time.Time
	LeasedUntil time.Time
	Attempts    int    // how many have failed, as [Retry] counts them
	Does        string // for people
	Payload     []byte
}

// Setting is a timer to be set.
type Setting struct {
	// Queue and Name identify it; together at most 2,000 bytes, valid UTF-8 without NUL.
	Queue, Name string
	// After is counted from From; it may be negative. What is below a microsecond is cut off, of both.
	After time.Duration
	// From is a time of the database's clock. Zero: the time of the statement.
	From time.Time
	// Spread puts the due time up to so much later. A hash of queue and name picks the place, so that what is set for one
	// moment comes evenly over the time, and what is set again comes at the same place.
	Spread time.Duration
	// Does says what it will do, for people.
	Does    string
	Payload []byte
}

// DB is a pool, a connection or a transaction.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Set queues one statement that sets timers. One of the same queue and name is replaced, with its attempts: a claim of it
// that is under way cannot finish any more. Of two settings with one name the last counts. Tell a [Runner.Wake] of the
// process when the transaction is committed and the timer is due soon.
func Set(b *pgx.Batch, schema string, now *time.Time, settings []Setting) *pgx.QueuedQuery {
	last := make(map[[2]string]int, len(settings))
	for i, s := range settings {
		last[[2]string{s.Queue, s.Name}] = i
	}
	n := len(last)
	queues, names := make([]string, 0, n), make([]string, 0, n)
	after, from := make([]time.Duration, 0, n), make([]*time.Time, 0, n)
	does, payloads := make([]string, 0, n), make([][]byte, 0, n)
	for i, s := range settings {
		if last[[2]string{s.Queue, s.Name}] != i {
			continue
		}
		queues, names = append(queues, s.Queue), append(names, s.Name)
		after = append(after, (s.After.Truncate(time.Microsecond) + s.place()).Truncate(time.Microsecond))
		if s.From.IsZero() {
			from = append(from, nil)
		} else {
			from = append(from, micros(&s.From))
		}
		does = append(does, s.Does)
		payloads = append(payloads, s.Payload)
	}
	return b.Queue(in(schema, setSQL), micros(now), queues, names, after, from, does, payloads)
}

// place is where in its spread the timer comes.
func (s Setting) place() time.Duration {
	if s.Spread <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(s.Queue))
	h.Write([]byte{0})
	h.Write([]byte(s.Name))
	x := h.Sum64() // its high bits hardly depend on the last bytes
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	high, _ := bits.Mul64(x, uint64(s.Spread))
	return time.Duration(high)
}

// Cancel queues one statement that removes timers by their names. Names that are not set are harmless: the tag of the
// result says how many were there. A claim of one that is under way cannot finish any more; one that is being finished by
// another transaction is waited for.
func Cancel(b *pgx.Batch, schema, queue string, names []string) *pgx.QueuedQuery {
	if names == nil {
		names = []string{}
	}
	return b.Queue(in(schema, cancelSQL), queue, names)
}

// CancelPrefix queues one statement that removes all timers of the queue whose names begin with prefix, as [Cancel] does.
// With an empty prefix these are all.
func CancelPrefix(b *pgx.Batch, schema, queue, prefix string) *pgx.QueuedQuery {
	return b.Queue(in(schema, cancelPrefixSQL), queue, prefix, behind(prefix))
}

// Shift queues one statement that moves all timers of the queue whose names begin with prefix: those that wait as they
// are, those that are claimed by their due times. Claims that are under way cannot finish any more. by may be negative.
func Shift(b *pgx.Batch, schema, queue, prefix string, by time.Duration) *pgx.QueuedQuery {
	return b.Queue(in(schema, shiftSQL), queue, prefix, behind(prefix), by.Truncate(time.Microsecond))
}

// behind is the least name behind all that begin with the prefix, by bytes. UTF-8 orders as its code points do.
func behind(prefix string) string {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		if r == utf8.MaxRune {
			continue
		}
		if r++; r >= 0xD800 && r <= 0xDFFF { // no characters
			r = 0xE000
		}
		return prefix + string(r)
	}
	return strings.Repeat(string(utf8.MaxRune), 8) // no name begins so: these are no characters
}

// micros cuts a time off as PostgreSQL stores it; rounding could make it another day.
func micros(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	cut := t.Truncate(time.Microsecond)
	return &cut
}

func in(schema, sql string) string {
	return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{schema}.Sanitize())
}

const (
	setSQL = `
WITH n AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
s AS MATERIALIZED (
  SELECT s.queue, s.name, coalesce(s.since, n.now) + s.after AS due, s.does, coalesce(s.payload, '') AS payload
    FROM n, unnest($2::text[], $3::text[], $4::interval[], $5::timestamptz[], $6::text[], $7::bytea[]) AS s(queue, name, after, since, does, payload)
   ORDER BY s.queue COLLATE "C", s.name COLLATE "C")
INSERT INTO {schema}.timers AS t (queue, name, due_at, visible_at, does, payload)
SELECT queue, name, due, due, does, payload FROM s
ON CONFLICT (queue, name) DO UPDATE SET due_at = excluded.due_at, visible_at = excluded.visible_at, token = t.token + 1, owner = '',
       attempts = 0, error = '', does = excluded.does, payload = excluded.payload, set_at = excluded.set_at`

	cancelSQL       = `DELETE FROM {schema}.timers WHERE queue = $1 AND name = ANY($2::text[])`
	cancelPrefixSQL = `DELETE FROM {schema}.timers WHERE queue = $1 AND name >= $2 AND name < $3`

	shiftSQL = `
UPDATE {schema}.timers SET due_at = due_at + $4::interval, visible_at = CASE owner WHEN '' THEN visible_at ELSE due_at END + $4::interval,
       token = token + 1, owner = ''
 WHERE queue = $1 AND name >= $2 AND name < $3`
)
