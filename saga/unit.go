package saga

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/flow"
)

// unit is one saga as a manager runs it, with all versions that were passed.
type unit struct {
	name     string
	schema   string
	machines map[int]flow.Machine // by version
	newest   flow.Machine         // begins instances
	reads    map[int][]string     // types by version
	reactor  flow.Reactor         // instead of machines
	types    []string             // that these read

	cfg    Config
	sender Sender
	log    *slog.Logger
	sql    statements
	policy pausing

	settlement settlement
	elder      elder
	worker     func() *consumer.Worker // a new one for the events
	events     atomic.Pointer[consumer.Worker]
	replies    *consumer.Worker
	sum        totals
	kick       chan struct{} // something to look for
	wakeTimers func()        // a timer was set
	settings   string
	lines      lines // about instances that become stuck
}

type statements struct {
	now, lock, origins, seen, insert, update, history, commands, reacted, stored, resent, close, lockTimers, cancel, hold, marked, replied   string
	newest, look, late, inputs, taken, stuck, stuckCount, plan, item, acted, planned, pause, resume, freeze, thaw, revive, clean, cleanAlone string
}

func newStatements(schema string) statements {
	in := func(sql string) string { return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{schema}.Sanitize()) }
	return statements{
		now: in(nowSQL), lock: in(lockSQL), origins: in(originsSQL), seen: in(seenSQL), insert: in(insertSQL),
		update: in(updateSQL), history: in(historySQL), commands: in(commandsSQL), reacted: in(reactedSQL), stored: in(storedSQL),
		resent: in(resentSQL), close: in(closeSQL), lockTimers: in(lockTimersSQL), cancel: in(cancelSQL), hold: in(holdSQL), marked: in(markedSQL),
		replied: in(repliedSQL), newest: in(newestSQL), look: in(lookSQL), late: in(lateSQL), inputs: in(inputsSQL), taken: in(takenSQL), stuck: in(stuckSQL), stuckCount: in(stuckCountSQL), plan: in(planRowSQL), item: in(itemSQL),
		acted: in(actedSQL), planned: in(plannedSQL), pause: in(pauseSQL), resume: in(resumeSQL), freeze: in(freezeSQL), thaw: in(thawSQL),
		revive: in(reviveSQL), clean: in(cleanSQL), cleanAlone: in(cleanAloneSQL),
	}
}

// consumerName is under which name a saga keeps its place in the events.
func consumerName(saga string) string { return "saga-" + saga }

// repliesName is under which name a saga keeps its place in the replies.
func repliesName(saga string) string { return "saga-" + saga + "-replies" }

// consumerVersion of all sagas: their definitions have versions of their own.
const consumerVersion = 1

// counts are what one transaction has done.
type counts struct{ started, ended, reactions, ignored, held, sent, timersSet, timersFired, timersIgnored int64 }

// totals are the counts of a saga in this process.
type totals struct {
	started, ended, reactions, ignored, held, sent, timersSet, timersFired, timersIgnored, timersFailed, stuck, acted, refused, cleaned atomic.Int64
}

// committed tells of a transaction.
func (u *unit) committed(t *turn) {
	c, sum := t.counts, &u.sum
	sum.started.Add(c.started)
	sum.ended.Add(c.ended)
	sum.reactions.Add(c.reactions)
	sum.ignored.Add(c.ignored)
	sum.held.Add(c.held)
	sum.sent.Add(c.sent)
	sum.timersSet.Add(c.timersSet)
	sum.timersFired.Add(c.timersFired)
	sum.timersIgnored.Add(c.timersIgnored)
	u.alert(t.stuck)
	if c.sent > 0 {
		u.cfg.Wake()
	}
	if c.timersSet > 0 {
		u.wakeTimers()
	}
	if c.held > 0 {
		u.glance()
	}
}

// glance lets the keeper look at once.
func (u *unit) glance() {
	select {
	case u.kick <- struct{}{}:
	default:
	}
}

// versions that this program has.
func (u *unit) versions() []int32 {
	var all []int32
	for v := range u.machines {
		all = append(all, int32(v))
	}
	slices.Sort(all)
	return all
}

// transact runs f in a transaction of its own: what load queues is sent with BEGIN, what f queues with COMMIT.
func (u *unit) transact(ctx context.Context, db *pgxpool.Pool, load func(*pgx.Batch), f func(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error) error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("saga: connect for %q: %w", u.name, err)
	}
	defer conn.Release()
	first := &pgx.Batch{}
	first.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	first.Queue(u.settings)
	load(first)
	begun := conn.SendBatch(ctx, first)
	tx := begun.Tx()
	if err := begun.Close(); err != nil {
		u.rollback(ctx, conn)
		return fmt.Errorf("saga: read for %q: %w", u.name, err)
	}
	last := &pgx.Batch{}
	if err := f(ctx, tx, last); err != nil {
		u.rollback(ctx, conn)
		return err
	}
	last.Queue("commit")
	if err := conn.SendBatch(ctx, last).Close(); err != nil {
		u.rollback(ctx, conn)
		return fmt.Errorf("saga: write for %q: %w", u.name, err)
	}
	return nil
}

// rollback ends a transaction, so that its locks are gone before the next attempt. When it fails the pool closes the
// connection, which ends it too.
func (u *unit) rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}

// settingsSQL bounds what a process that stands still can hold.
func settingsSQL(lease time.Duration) string {
	ms := lease.Milliseconds()
	return fmt.Sprintf("SELECT set_config('idle_in_transaction_session_timeout', '%d', true), set_config('statement_timeout', '%d', true), "+
		"set_config('lock_timeout', '%d', true)", ms, ms, max(ms/2, 1))
}

// pausing is the policy of retries.
type pausing interface {
	Delay(attempt int, random func() float64) time.Duration
	Spent(attempts int) bool
}
