package schedule

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/timers"
)

// Locks are taken in one order: schedules, timers of firings, firings, timers that tell when to look. Only deciding and
// defining lock schedules.

// ticks is the queue of the timers that tell when to look at a schedule. Any process does, whatever jobs it knows.
const ticks = "schedules"

// queueOf is the queue of the firings of a job, which only processes that know it claim.
func queueOf(job string) string { return "schedule:" + job }

func tickOf(job, tenant string, due time.Time) timers.Setting {
	return timers.Setting{Queue: ticks, Name: job + "/" + tenant, From: due, Does: fmt.Sprintf("decides about %s", title(job, tenant))}
}

// keyOf is the schedule of a tick: names of jobs have no slash.
func keyOf(tick string) key {
	job, tenant, _ := strings.Cut(tick, "/")
	return key{job, tenant}
}

const slotForm = "2006-01-02T15:04:05Z"

func nameOf(tenant string, slot time.Time) string { return tenant + "@" + slot.UTC().Format(slotForm) }

// slotOf is the reverse of nameOf.
func slotOf(name string) (tenant string, slot time.Time, err error) {
	at := strings.LastIndexByte(name, '@')
	if at < 0 {
		return "", time.Time{}, fmt.Errorf("schedule: the timer %q is of no firing", name)
	}
	slot, err = time.Parse(slotForm, name[at+1:])
	return name[:at], slot, err
}

func title(job, tenant string) string {
	if tenant == "" {
		return job
	}
	return job + " of " + tenant
}

// key names a schedule.
type key struct{ job, tenant string }

func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(k.job, other.job), strings.Compare(k.tenant, other.tenant))
}

func columns(keys []key) (jobs, tenants []string) {
	jobs, tenants = make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		jobs[i], tenants[i] = k.job, k.tenant
	}
	return jobs, tenants
}

func in(schema, sql string) string {
	return strings.ReplaceAll(sql, "{schema}", pgx.Identifier{schema}.Sanitize())
}

// briefly is what a short transaction begins with: what it locks, others need, so the server ends it when this process
// stands still, and plans that were made for empty tables are not kept, nor compiled because they look dear.
const briefly = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL idle_in_transaction_session_timeout = 10000; SET LOCAL enable_seqscan = off; SET LOCAL jit = off`

func (r *Runner) inTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{BeginQuery: briefly}, f)
}

func (r *Runner) sql(text string) string { return in(r.cfg.Schema, text) }

// send sends a batch, and closes it.
func send(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}
