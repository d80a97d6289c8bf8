package projection

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Querier runs queries: a *pgxpool.Pool, a pgx.Tx, a *pgx.Conn.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// WaiterConfig of a [Waiter]. The zero value works.
type WaiterConfig struct {
	// Observer is told of each wait. Default: none.
	Observer eventstore.Observer
}

// Waiter answers whether projections have seen a command. It needs the database only, so any process can wait for
// projections that another one runs. It must be the primary: a standby does not know yet what was just written.
//
// A Waiter is safe for concurrent use if its Querier is.
type Waiter struct {
	db       Querier
	observer eventstore.Observer
	patient  bool // waits also for an event that is tried again
}

// NewWaiter returns a waiter that asks db.
func NewWaiter(db Querier, cfg WaiterConfig) *Waiter {
	if cfg.Observer == nil {
		cfg.Observer = eventstore.NopObserver{}
	}
	return &Waiter{db: db, observer: cfg.Observer}
}

// WaitFor returns nil as soon as everything that token stands for has been applied by each of in. The zero token is
// met at once. It returns at once with an error when waiting is in vain: a [*StoppedError] for a projection that is
// stopped or paused before the token, a [*ParkedError] for one that has set a sequence aside which the token may concern,
// a [*eventstore.HistoryError] for a token of another history or beyond the log, a [*NotInstalledError] for an unknown
// projection, [ErrInsideHandler] for a handler that waits for itself. When ctx ends first the error is a [*StaleError].
func (w *Waiter) WaitFor(ctx context.Context, token eventstore.Token, in ...Named) error {
	if token.IsZero() || len(in) == 0 {
		return nil
	}
	began := time.Now()
	names := make([]string, len(in))
	for i, n := range in {
		names[i] = n.ConsumerRef().Name
	}
	err := w.waitFor(ctx, token, in)
	w.observer.ObserveWait(eventstore.WaitObservation{Consumers: names, Duration: time.Since(began), Err: err})
	return err
}

const (
	// firstPoll is below the time in which an idle projection can have seen a command. A worker of this process says when
	// it has moved, so that polling is only for what it cannot say.
	firstPoll = 200 * time.Microsecond
	localPoll = 5 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
)

func (w *Waiter) waitFor(ctx context.Context, token eventstore.Token, in []Named) error {
	q := newQuestion(token)
	q.patient = w.patient
	for _, n := range in {
		ref := n.ConsumerRef()
		if consumer.Inside(ctx, ref) {
			return fmt.Errorf("%w (%q version %d)", ErrInsideHandler, ref.Name, ref.Version)
		}
		if err := q.add(ref); err != nil {
			return err
		}
	}
	timer := time.NewTimer(firstPoll)
	defer timer.Stop()
	behind := &behindBy{name: q.refs[0].Name, version: q.refs[0].Version}
	asked := 0
	// The database is asked at a certain time, however often a worker moves until then: it may never reach the token.
	var next time.Time
	for delay := firstPoll; ; {
		moves, known, seen := q.local(w.db)
		if known == arrived {
			return nil
		}
		if seen != nil && asked == 0 { // the database knows of all of them
			behind = seen
		}
		if moves != nil {
			delay = max(delay, localPoll)
		}
		if known == onTheWay && next.IsZero() {
			next = time.Now().Add(delay)
		} else if known == unknown || !time.Now().Before(next) {
			now, err := q.ask(ctx, w.db)
			if err != nil {
				if ctx.Err() != nil {
					return q.stale(behind, ctx.Err())
				}
				return err
			}
			if behind = now; behind == nil {
				return nil
			}
			if asked++; asked == 2 { // the common case is over: is there anything to wait for?
				if err := q.checkHead(ctx, w.db); err != nil && ctx.Err() == nil {
					return err
				}
			}
			next, delay = time.Now().Add(delay), min(delay*3/2, lastPoll)
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return q.stale(behind, ctx.Err())
		case <-moves:
		case <-timer.C:
		}
	}
}

// question is a token and who is asked about it.
type question struct {
	token      eventstore.Token
	store      string
	partitions []int32
	positions  []int64
	want       int64
	refs       []consumer.Ref
	names      []string
	versions   []int32
	patient    bool
	looked     bool // at what is set aside, whether or not all have arrived
}

func newQuestion(token eventstore.Token) *question {
	q := &question{token: token}
	for _, m := range token.Marks() {
		q.partitions = append(q.partitions, int32(m.Partition))
		q.positions = append(q.positions, m.Position.Ordinal())
	}
	q.want = slices.Max(q.positions)
	return q
}

func (q *question) add(ref consumer.Ref) error {
	if q.store != "" && q.store != ref.Store {
		return &eventstore.InvalidError{
			Field: "projections", Value: ref.Name, Reason: "belongs to another store than the one before it",
			Remedy: "wait for the projections of one store at a time",
		}
	}
	q.store, q.refs = ref.Store, append(q.refs, ref)
	q.names, q.versions = append(q.names, ref.Name), append(q.versions, int32(ref.Version))
	return nil
}

// What the workers of this process know.
type knowledge uint8

const (
	unknown  knowledge = iota
	arrived            // all of them own their projections in this very database, and have committed the token
	onTheWay           // one of them has not
)

// local asks the workers of this process: nobody needs the database to tell that they have arrived, or that they have
// not. moves is closed when one that is on the way moves; seen is how far it has come.
func (q *question) local(db Querier) (moves <-chan struct{}, known knowledge, seen *behindBy) {
	known = arrived
	for _, ref := range q.refs {
		reached, moved := consumer.ReachedBy(ref, q.token.Epoch())
		switch {
		case moved == nil:
			known = unknown
		case !q.reached(reached.Applied):
			return moved, onTheWay, &behindBy{name: ref.Name, version: ref.Version, have: q.lowest(reached.Applied)}
		case reached.Home != db || q.aside(reached.Aside): // perhaps a standby, which may not have it yet
			known = unknown
		}
	}
	return nil, known, nil
}

// aside reports whether something is set aside in one of the token's partitions: the database knows what it is.
func (q *question) aside(partitions map[int]struct{}) bool {
	if len(partitions) == 0 {
		return false
	}
	return slices.ContainsFunc(q.partitions, func(p int32) bool {
		_, ok := partitions[int(p)]
		return ok
	})
}

// lowest is how far progress has come in the partitions of the token.
func (q *question) lowest(p consumer.Progress) int64 {
	have := int64(math.MaxInt64)
	for _, partition := range q.partitions {
		have = min(have, p.At(int(partition)).Ordinal())
	}
	return have
}

// reached reports whether progress has everything that the token stands for.
func (q *question) reached(p consumer.Progress) bool {
	for i, partition := range q.partitions {
		if p.At(int(partition)).Ordinal() < q.positions[i] {
			return false
		}
	}
	return true
}

// behindBy is a projection that has not reached the token.
type behindBy struct {
	name    string
	version int
	have    int64
	idle    bool // nobody has the lease
}

// ask returns the projection that is farthest behind, or nil when all have arrived.
func (q *question) ask(ctx context.Context, db Querier) (*behindBy, error) {
	rows, err := db.Query(ctx, inStore(askSQL, q.store), q.names, q.versions, q.partitions, q.positions)
	if err != nil {
		return nil, fmt.Errorf("projection: wait: %w", err)
	}
	defer rows.Close()
	var farthest *behindBy
	var aside []consumer.Ref
	for rows.Next() {
		behind, parked, err := q.answer(rows)
		if err != nil {
			return nil, err
		}
		if parked != nil {
			aside = append(aside, *parked)
		}
		farthest = farther(farthest, behind)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("projection: wait: %w", err)
	}
	for _, ref := range aside { // looked at when they have come far enough: what is not set aside now was applied
		behind, err := q.parked(ctx, db, ref)
		if err != nil {
			return nil, err
		}
		farthest = farther(farthest, behind)
	}
	q.looked = true
	return farthest, nil
}

func farther(a, b *behindBy) *behindBy {
	if a == nil || b != nil && b.have < a.have {
		return b
	}
	return a
}

// answer reads what is known of one projection: nothing when it has arrived, how far it is when it has not, or which one
// has set something aside below the token.
func (q *question) answer(rows pgx.Rows) (behind *behindBy, aside *consumer.Ref, err error) {
	var (
		epoch, name, kind, state, reason string
		version                          int
		since                            time.Time
		reached, owned, parked           bool
		have                             int64
	)
	if err := rows.Scan(&epoch, &name, &version, &kind, &state, &reason, &since, &reached, &have, &owned, &parked); err != nil {
		return nil, nil, fmt.Errorf("projection: wait: %w", err)
	}
	switch {
	case epoch != q.token.Epoch().String():
		return nil, nil, &eventstore.HistoryError{
			Reason: fmt.Sprintf("the token is of epoch %s, the store of %s", q.token.Epoch(), epoch),
			Remedy: "drop the token and read again what it stood for",
		}
	case kind == "":
		return nil, nil, &NotInstalledError{name, version, missingRow}
	case kind == kindInline:
		return nil, nil, nil
	case state != "running" && !reached:
		return nil, nil, &StoppedError{Projection: name, Version: version, State: state, Reason: reason, Since: since}
	}
	// Who is in vain is told at once. After that it is looked at again when the projection has come far enough, not each time
	// that it is asked how far it is.
	if parked && (reached || !q.looked) {
		aside = &consumer.Ref{Store: q.store, Name: name, Version: version}
	}
	if !reached {
		behind = &behindBy{name, version, have, !owned}
	}
	return behind, aside, nil
}

// checkHead asks whether the log reaches as far as the token. The query is planned with its value, so that it touches
// the newest ranges only.
func (q *question) checkHead(ctx context.Context, db Querier) error {
	rows, err := db.Query(ctx, inStore(headSQL, q.store), pgx.QueryExecModeExec, q.want)
	if err != nil {
		return fmt.Errorf("projection: wait: %w", err)
	}
	exists, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return fmt.Errorf("projection: wait: %w", err)
	}
	if !exists {
		return &eventstore.HistoryError{
			Reason: fmt.Sprintf("the token asks for position %d, which is beyond the log", q.want),
			Remedy: "the log has lost commits, or this is not the primary: look before going on, then drop the token",
		}
	}
	return nil
}

func (q *question) stale(b *behindBy, cause error) error {
	return &StaleError{
		Projection: b.name, Version: b.version, Want: eventstore.PositionAt(q.want), Have: eventstore.PositionAt(b.have),
		Behind: max(q.want-b.have, 0), Idle: b.idle, Err: cause,
	}
}

const askSQL = `
SELECT (SELECT epoch::text FROM {schema}.store), r.consumer, r.version, coalesce(c.kind, ''), coalesce(c.state, ''), coalesce(c.reason, ''),
       coalesce(c.since, 'epoch'), coalesce(a.reached, false), coalesce(a.have, 0),
       coalesce(a.owned, false),
       EXISTS (SELECT FROM {schema}.parked p JOIN unnest($3::int[], $4::bigint[]) AS m(partition, position)
                           ON m.partition = p.partition AND p.first_position <= m.position
                WHERE p.consumer = r.consumer AND p.version = r.version)
  FROM unnest($1::text[], $2::int[]) AS r(consumer, version)
  LEFT JOIN LATERAL (SELECT * FROM {schema}.consumers c WHERE c.consumer = r.consumer AND c.version = r.version LIMIT 1) c ON true
  LEFT JOIN LATERAL (
    SELECT bool_and(greatest(s.floor, k.applied, 0) >= m.position) AS reached, min(greatest(s.floor, k.applied, 0)) AS have,
           bool_and(s.expires_at > clock_timestamp()) AS owned
      FROM unnest($3::int[], $4::bigint[]) AS m(partition, position)
      LEFT JOIN {schema}.segments s ON s.consumer = r.consumer AND s.version = r.version
           AND m.partition BETWEEN s.first_partition AND s.last_partition
      LEFT JOIN {schema}.checkpoints k ON k.consumer = r.consumer AND k.version = r.version AND k.topic = '' AND k.partition = m.partition) a ON true`

// headSQL looks at every table that positions are drawn for, as the head of the log does. With max the planner takes the
// index from its end; with EXISTS it may read a table that was never analysed from its beginning.
const headSQL = `
SELECT (SELECT max(position) FROM {schema}.events WHERE position >= $1::bigint) IS NOT NULL
    OR (SELECT max(first_position) FROM {schema}.outbox WHERE first_position >= $1::bigint) IS NOT NULL`
