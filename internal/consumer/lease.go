package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// lease is the right to apply, as it was when it was taken. Whether it still holds is decided by commit_batch alone.
type lease struct {
	epoch      int64
	parkedRev  int64
	applied    Progress
	first      int // the partitions of the segment, both inclusive
	last       int
	partitions int
	carries    string    // what the consumer has followed so far; see Stream
	resumed    bool      // the consumer stood still and was set running
	store      uuid.UUID // the store's epoch
	parked     *parking.Set
	filter     eventstore.Filter

	until atomic.Pointer[time.Time] // as far as this process knows
}

// takePatience bounds the wait for a statement about a lease, so that a worker that is asked to end meanwhile does so in time.
const takePatience = time.Second

// errNotInstalled: the consumer's rows are not there (any more).
var errNotInstalled = errors.New("consumer: not installed in the store")

// take tries to become the owner. Without an error and without a lease another owner lives, or the consumer is paused.
func (w *Worker) take(ctx context.Context, db *pgxpool.Pool) (*lease, State, error) {
	// Not broken off when ctx ends: a lease taken without knowing it could not be given back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(w.cfg.Lease, takePatience))
	defer cancel()
	began := time.Now()
	var (
		state, carries, store   string
		epoch, parkedRev, floor *int64
		first, last             *int
		partitions              int
		installed               bool
	)
	err := db.QueryRow(ctx, w.sql.take, w.spec.Name, w.spec.Version, w.spec.Segment, w.owner, w.cfg.Lease.Seconds()).
		Scan(&state, &epoch, &parkedRev, &floor, &first, &last, &carries, &store, &partitions, &installed)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && !installed: // not a standby of an owner that cannot exist
		return nil, Waiting, errNotInstalled
	case err != nil:
		return nil, Waiting, fmt.Errorf("consumer: take the lease of %s: %w", w.spec.Ref, err)
	case state == string(Paused):
		return nil, Paused, nil
	case epoch == nil:
		return nil, Standby, nil
	}
	partitions = cmp.Or(w.spec.Partitions, partitions)
	id, err := uuid.Parse(store)
	if err != nil {
		return nil, Waiting, fmt.Errorf("consumer: take the lease of %s: the store's epoch: %w", w.spec.Ref, err)
	}
	l := &lease{
		store: id, epoch: *epoch, parkedRev: *parkedRev, first: *first, last: *last, partitions: partitions, carries: carries,
		resumed: state == string(Stopped),
	}
	l.renewed(began, w.cfg.Lease)
	// In a statement of its own: that of the takeover may have waited for the last commit of the owner before, and would
	// see these rows as they were before it.
	l.applied, err = w.ahead(ctx, db, *floor, l)
	if err != nil {
		w.release(ctx, db, l)
		return nil, Waiting, fmt.Errorf("consumer: read the checkpoints of %s: %w", w.spec.Ref, err)
	}
	// Also behind the takeover. Who has changed something since has raised parked_rev, and this owner cannot commit.
	l.parked, err = parking.Load(ctx, db, w.spec.parkingOwner(), l.first, l.last)
	if err != nil {
		w.release(ctx, db, l)
		return nil, Waiting, fmt.Errorf("consumer: take the lease of %s: %w", w.spec.Ref, err)
	}
	return l, Running, nil
}

// ahead reads which partitions of the segment are beyond its floor.
func (w *Worker) ahead(ctx context.Context, db *pgxpool.Pool, floor int64, l *lease) (Progress, error) {
	applied := Progress{floor: floor}
	rows, err := db.Query(ctx, w.sql.ahead, w.spec.Name, w.spec.Version, l.first, l.last)
	if err != nil {
		return applied, err
	}
	var partition int
	var at int64
	_, err = pgx.ForEachRow(rows, []any{&partition, &at}, func() error {
		if partition < 0 || partition >= l.partitions {
			return fmt.Errorf("there is one for partition %d of %d", partition, l.partitions)
		}
		if applied.ahead == nil {
			applied.ahead = make([]int64, l.partitions)
		}
		applied.ahead[partition] = at
		return nil
	})
	return applied, err
}

// follow records what the consumer follows from now on. A change is refused once something is applied, unless both are
// the whole log: what the one has left out, or called otherwise, the other would not make good.
func (w *Worker) follow(ctx context.Context, db *pgxpool.Pool, l *lease) error {
	carries := CarriedBy(w.source)
	switch {
	case carries == l.carries:
		return nil
	case keeps(w.source, l.carries):
		return nil
	case !l.applied.IsZero():
		return &stopError{fmt.Errorf("consumer: %s has followed %s up to position %s and cannot go on with %s: "+
			"give it its old source back, or install a new version, which begins anew",
			w.spec.Ref, sourceText(l.carries), l.applied.Floor(), sourceText(carries))}
	}
	if _, err := db.Exec(ctx, w.sql.follow, w.spec.Name, w.spec.Version, carries); err != nil {
		return fmt.Errorf("consumer: record the source of %s: %w", w.spec.Ref, err)
	}
	return nil
}

func keeps(s Source, record string) bool {
	k, ok := s.(Keeper)
	return ok && k.Keeps(record)
}

func sourceText(carries string) string {
	if carries == "" {
		return "the log"
	}
	return carries
}

// renewed notes that the lease was asked for at a time, and granted. It counts as held until its time is over by the
// clock that has run on for longer: a monotonic one may stand still while the machine sleeps, and a wall clock be set.
func (l *lease) renewed(asked time.Time, lease time.Duration) {
	until := asked.Add(lease)
	l.until.Store(&until)
}

func (l *lease) expired() bool {
	now, until := time.Now(), *l.until.Load()
	return !now.Before(until) || !now.Round(0).Before(until.Round(0))
}

// renew keeps the lease until ctx ends, and calls lose when it is gone, paused, or could not be renewed in time.
func (w *Worker) renew(ctx context.Context, db *pgxpool.Pool, l *lease, lose func(error)) {
	every := w.cfg.Lease / 3
	for next := every; pause(ctx, next); {
		err := w.renewOnce(ctx, db, l, every)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			next = every
		case errors.Is(err, errLost), errors.Is(err, errPaused), l.expired():
			lose(err)
			return
		default:
			next = min(every/4, time.Second)
		}
	}
}

// renewOnce returns nil when the lease is renewed, and errLost or errPaused when it must be given up.
func (w *Worker) renewOnce(ctx context.Context, db *pgxpool.Pool, l *lease, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := time.Now()
	var state string
	err := db.QueryRow(ctx, w.sql.renew, w.spec.Name, w.spec.Version, w.spec.Segment, l.epoch, w.cfg.Lease.Seconds()).Scan(&state)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errLost
	case err != nil:
		return fmt.Errorf("consumer: renew the lease of %s: %w", w.spec.Ref, err)
	case state == string(Paused):
		return errPaused
	}
	l.renewed(asked, w.cfg.Lease)
	return nil
}

// release lets the next owner in at once. When it fails the lease runs out by itself.
func (w *Worker) release(ctx context.Context, db *pgxpool.Pool, l *lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = db.Exec(ctx, w.sql.release, w.spec.Name, w.spec.Version, w.spec.Segment, l.epoch)
}

// writeStop records why the consumer stands still, unless another owner has taken over meanwhile, and releases the
// lease in the same statement. It is not broken off when ctx ends: the lease would stay taken by nobody.
func (w *Worker) writeStop(ctx context.Context, db *pgxpool.Pool, l *lease, reason string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(w.cfg.Lease, takePatience))
	defer cancel()
	tag, err := db.Exec(ctx, w.sql.stop, w.spec.Name, w.spec.Version, w.spec.Segment, l.epoch, reason)
	if err == nil && tag.RowsAffected() == 0 {
		return errLost
	}
	return err
}

// takeSQL is one statement, so that a consumer that stood still runs again exactly when somebody owns it. The owner's
// own name lets a worker that is unsure of its last commit begin anew without waiting for its own lease. A lease that
// ends later than any lease can was taken under a clock that has been set back since: it counts as ended, and the fence
// keeps its owner, should it live, from committing.
const takeSQL = `
WITH c AS (
  SELECT state, source FROM {schema}.consumers WHERE consumer = $1 AND version = $2),
u AS (
  UPDATE {schema}.segments AS s
     SET owner = $4, epoch = s.epoch + 1, expires_at = clock_timestamp() + make_interval(secs => $5)
    FROM c
   WHERE s.consumer = $1 AND s.version = $2 AND s.segment = $3 AND c.state <> 'paused'
     AND (s.expires_at < clock_timestamp() OR s.expires_at > clock_timestamp() + interval '25 hours' OR s.owner = $4)
  RETURNING s.epoch, s.parked_rev, s.floor, s.first_partition, s.last_partition),
r AS (
  UPDATE {schema}.consumers AS x SET state = 'running', reason = '', since = clock_timestamp()
    FROM u WHERE x.consumer = $1 AND x.version = $2 AND x.state = 'stopped')
SELECT c.state, u.epoch, u.parked_rev, u.floor, u.first_partition, u.last_partition, c.source, (SELECT epoch::text FROM {schema}.store),
       (SELECT partitions FROM {schema}.store),
       EXISTS (SELECT 1 FROM {schema}.segments s WHERE s.consumer = $1 AND s.version = $2 AND s.segment = $3)
  FROM c LEFT JOIN u ON true`

const aheadSQL = `SELECT partition, applied FROM {schema}.checkpoints WHERE consumer = $1 AND version = $2 AND topic = '' AND partition BETWEEN $3 AND $4`

const followSQL = `UPDATE {schema}.consumers SET source = $3 WHERE consumer = $1 AND version = $2`

const renewSQL = `
UPDATE {schema}.segments AS s SET expires_at = clock_timestamp() + make_interval(secs => $5)
  FROM {schema}.consumers c
 WHERE s.consumer = $1 AND s.version = $2 AND s.segment = $3 AND s.epoch = $4 AND s.owner <> ''
   AND c.consumer = s.consumer AND c.version = s.version
RETURNING c.state`

const releaseSQL = `
UPDATE {schema}.segments SET owner = '', expires_at = '-infinity'
 WHERE consumer = $1 AND version = $2 AND segment = $3 AND epoch = $4`

const stopSQL = `
WITH s AS (
  UPDATE {schema}.segments SET owner = '', expires_at = '-infinity'
   WHERE consumer = $1 AND version = $2 AND segment = $3 AND epoch = $4
  RETURNING consumer, version)
UPDATE {schema}.consumers AS c SET state = 'stopped', reason = $5, since = clock_timestamp()
  FROM s WHERE c.consumer = s.consumer AND c.version = s.version`
