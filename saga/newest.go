package saga

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// The store knows the newest version of each saga. A program that lacks it does not know what begins instances by now, nor all
// answers that keys find: what it would pass by is lost. So it leaves the events to programs that have that version, also when
// none runs; then they wait. Timers, replies and decisions pass nothing by, and every program sees to them.

// newestOf is the highest version of a saga among definitions, and the types of events that all of them read. A reactor has
// no versions.
func newestOf(definitions []Definition, saga string) (newest int, types []string) {
	for _, d := range definitions {
		if d.Name() != saga {
			continue
		}
		if parts, err := d.Parts(); err == nil && parts.Machine != nil {
			newest, types = max(newest, d.Version()), append(types, parts.Machine.Types()...)
		}
	}
	slices.Sort(types)
	return newest, slices.Compact(types)
}

type enroller interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// enrol tells the store what a program has of a saga. With a version that is newer than all before, or types that none has
// read, the owner of the events loses them in the same transaction: whoever lacks that version commits no batch behind it,
// and no owner passes by what comes for instances of a version that it lacks.
func enrol(ctx context.Context, db enroller, schema, saga string, newest int, types []string) error {
	if types == nil {
		types = []string{}
	}
	if _, err := db.Exec(ctx, inSchema(enrolSQL, schema), saga, types, newest, consumerName(saga), consumerVersion); err != nil {
		return fmt.Errorf("saga: note the versions of %q: %w", saga, err)
	}
	return nil
}

// elder is what a process knows of a version that is newer than all that it has.
type elder struct {
	mu    sync.Mutex
	why   string   // why it leaves the events to others; empty: it does not
	types []string // that any version has ever read
	absence
}

// absence is since when nobody has taken events.
type absence struct {
	alone     time.Time // zero: somebody takes them
	committed time.Time // what was committed last when it began
	epoch     int64     // of the owner that was seen last
	stays     time.Time // since when each look has seen that owner; zero: the last look has seen none
}

// sees notes a look: whether somebody owns the events, at which epoch, and when something was committed last. To own them
// proves nothing, since the lease of a program that dies at once lives longer than the program. To commit does, and where
// nothing comes, to stay for longer than such a lease.
func (a *absence) sees(now time.Time, owned bool, epoch int64, committed time.Time, lease time.Duration) {
	gone := !owned || !a.stays.IsZero() && a.epoch != epoch
	switch {
	case !owned:
		a.stays = time.Time{}
	case gone || a.stays.IsZero():
		a.stays, a.epoch = now, epoch
	}
	switch {
	case a.alone.IsZero() && gone:
		a.alone, a.committed = now, committed
	case !committed.Equal(a.committed), !a.stays.IsZero() && now.Sub(a.stays) > 2*lease:
		a.alone = time.Time{}
	}
}

// filter is what an owner of the events reads: also what only versions read that are not here, for what comes for their
// instances is kept. It was found behind the takeover.
func (u *unit) filter() eventstore.Filter {
	if u.reactor != nil {
		return eventstore.Filter{Types: u.types}
	}
	u.elder.mu.Lock()
	defer u.elder.mu.Unlock()
	return eventstore.Filter{Types: u.elder.types}
}

// outdated says why this process leaves the events to others; see [consumer.Spec]. A program that has a newer version than the
// store knows says so once more: that version was withdrawn although it runs. Programs that lack it wait for that for as long as
// an owner may need to notice that it was fenced off, since what only the newer version reads would be lost meanwhile.
func (u *unit) outdated(ctx context.Context, db *pgxpool.Pool) (string, error) {
	if u.reactor != nil {
		return "", nil
	}
	own := u.newest.Version()
	var newest int
	var types []string
	var by, because string
	var fresh, owned bool
	var epoch int64
	var committed *time.Time
	look := func() error {
		err := db.QueryRow(ctx, u.sql.newest, u.name, consumerName(u.name), consumerVersion, u.cfg.Lease.Seconds()).
			Scan(&newest, &types, &by, &because, &fresh, &owned, &epoch, &committed)
		if err != nil {
			return fmt.Errorf("saga: look for the newest version of %q: %w", u.name, err)
		}
		return nil
	}
	if err := look(); err != nil {
		return "", err
	}
	if newest < own {
		if err := enrol(ctx, db, u.schema, u.name, own, u.types); err != nil {
			return "", err
		}
		u.log.Warn("a version of the saga was withdrawn, but this program has it and runs: it is the newest again",
			"version", own, "withdrawn_to", newest, "by", by, "reason", because)
		if err := look(); err != nil {
			return "", err
		}
	}
	why := ""
	switch {
	case newest > own:
		why = fmt.Sprintf("version %d is installed, and this program has none above %d: it leaves the events to programs that have it", newest, own)
	case fresh:
		why = fmt.Sprintf("a version above %d was withdrawn just now: programs that have it and still run have %v to say so", newest, u.cfg.Lease)
	}
	e := &u.elder
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case why == e.why:
	case newest > own:
		u.log.Warn("a newer version of the saga is installed: its events are left to programs that have it", "newest", newest, "has", own)
	case fresh:
		u.log.Info("a newer version of the saga was withdrawn: its events are taken soon, unless a program that has it runs", "newest", newest, "by", by, "reason", because)
	default:
		u.log.Info("a newer version of the saga was withdrawn: its events are taken", "newest", newest, "has", own)
	}
	e.why, e.types = why, types
	if newest <= own {
		e.absence = absence{}
	} else {
		if committed == nil {
			committed = &time.Time{}
		}
		e.sees(time.Now(), owned, epoch, *committed, u.cfg.Lease)
	}
	return why, nil
}

// told is why the events are left to others, and since when nobody has taken them although it should: a deployment takes its
// time, and is not worth an alarm.
func (u *unit) told() (why string, missing time.Time) {
	e := &u.elder
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.alone.IsZero() && time.Since(e.alone) > u.patience() {
		return e.why + ", and none takes them: run one, and see that it stays; when it does not come back, `daybook saga withdraw`", e.alone
	}
	return e.why, time.Time{}
}

// patience is how long nobody may take the events before health says so.
func (u *unit) patience() time.Duration { return 6 * u.cfg.Lease }

// Withdraw decides that a version is the newest of a saga, in place of a higher one that was installed, or has run, and does
// not come back. Programs that have it take the events again, without what the higher one alone reads: it is passed by, for
// good, so do not withdraw a version that is only late. Instances that began with a higher version wait for a program that
// has it.
//
// First stop the programs that have a higher version. One that still runs, or runs again, says so with a line in its log, and
// its version is the newest again; for Config.Lease the others leave the events alone, so that nothing is lost meanwhile.
//
// Who and why are kept with the saga. The error is a [*OperatorError] when the newest version is not higher.
func (o Operator) Withdraw(ctx context.Context, saga string, newest int) error {
	if err := o.validate(); err != nil {
		return err
	}
	switch {
	case !nameForm.MatchString(saga):
		return opInvalid("saga", fmt.Sprintf("%.100q", saga), "is no name of a saga", "name one")
	case newest < 1:
		return opInvalid("newest", fmt.Sprint(newest), "is no version", "name the one that programs have, from 1")
	}
	e := o.explaining()
	const action = "withdraw"
	return e.write(ctx, o.DB, action, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, e.sql(withdrawSQL), saga, newest, o.Actor, o.Reason, consumerName(saga), consumerVersion)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		var is int
		switch err := tx.QueryRow(ctx, e.sql(`SELECT coalesce((SELECT n.newest FROM {schema}.saga_names n WHERE n.saga = $1), -1)`), saga).Scan(&is); {
		case err != nil:
			return err
		case is < 0:
			return opRefuse(action, "no saga %q is installed", saga)
		default:
			return opRefuse(action, "the newest version of %q is %d", saga, is)
		}
	})
}

const (
	// enrolSQL writes only what is new. The row is locked first: another program may add to it at the same time.
	enrolSQL = `
WITH old AS MATERIALIZED (
  SELECT n.newest, n.types FROM {schema}.saga_names n WHERE n.saga = $1 AND (n.newest < $3 OR NOT n.types @> $2::text[]) FOR UPDATE),
risen AS (
  UPDATE {schema}.saga_names n
     SET types = ARRAY(SELECT DISTINCT x.type FROM unnest(old.types || $2::text[]) x(type) ORDER BY 1), newest = greatest(old.newest, $3),
         newest_since = CASE WHEN old.newest < $3 THEN clock_timestamp() ELSE n.newest_since END,
         newest_by = CASE WHEN old.newest < $3 THEN '' ELSE n.newest_by END, newest_why = CASE WHEN old.newest < $3 THEN '' ELSE n.newest_why END
    FROM old WHERE n.saga = $1
  RETURNING n.saga)
UPDATE {schema}.segments g SET owner = '', epoch = g.epoch + 1, expires_at = '-infinity'
  FROM risen WHERE g.consumer = $4 AND g.version = $5`

	newestSQL = `
SELECT n.newest, n.types, n.newest_by, n.newest_why,
       n.newest_by <> '' AND n.newest_since BETWEEN clock_timestamp() - make_interval(secs => $4) AND clock_timestamp(),
       coalesce(g.expires_at > clock_timestamp(), false), coalesce(g.epoch, 0), g.committed_at
  FROM {schema}.saga_names n LEFT JOIN {schema}.segments g ON g.consumer = $2 AND g.version = $3
 WHERE n.saga = $1`

	// withdrawSQL raises the epoch, so that an owner that has the version comes to ask.
	withdrawSQL = `
WITH n AS (
  UPDATE {schema}.saga_names SET newest = $2, newest_since = clock_timestamp(), newest_by = $3, newest_why = $4 WHERE saga = $1 AND newest > $2
  RETURNING saga),
g AS (
  UPDATE {schema}.segments g SET owner = '', epoch = g.epoch + 1, expires_at = '-infinity'
    FROM n WHERE g.consumer = $5 AND g.version = $6)
SELECT FROM n`
)
