package deadletter

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/testscale"
)

// R-LB01: with a million open letters, a hundred thousand sequences set aside, half a million closed letters and five million events, nothing that people or scrapes ask for reads the letters or the events whole. Times are logged.
func TestReadingIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Fresh: time.Nanosecond})
	w.worker("orders")
	w.worker("bills")
	open, closed, aside, events := testscale.N(1_000_000), testscale.N(250_000), testscale.N(100_000), testscale.N(5_000_000)
	if testscale.Factor() < 1 { // as many as no plan reads whole
		open, closed, aside, events = 30_000, 10_000, 3_000, 50_000
	}
	w.fill("orders", open, "parked", "NULL")
	w.exec(`INSERT INTO daybook.parked (consumer, version, sequence, partition, state, first_position, last_position, queued)
		SELECT consumer, version, sequence, partition, 'parked', position, position + 10, 3 FROM daybook.letters WHERE consumer = 'orders' AND position <= 1000 + $1::int`, aside)
	w.exec(`UPDATE daybook.letters SET position = position + 100000000 WHERE consumer = 'orders'`)
	w.exec(`UPDATE daybook.parked SET first_position = first_position + 100000000, last_position = last_position + 100000000`)
	w.fill("orders", closed, "applied", "clock_timestamp() - i * interval '1 second'")
	w.fill("bills", closed, "discarded", "clock_timestamp() - i * interval '1 second'")
	w.exec(`ALTER TABLE daybook.events_1 DISABLE TRIGGER ALL`)
	w.exec(`INSERT INTO daybook.events_1 (position, version, id, partition, stream_id, type, data)
		SELECT i, 1, gen_random_uuid(), i % 64, 'order-' || i, 'order.paid', 'x' FROM generate_series(1, $1::int) i`, events)
	w.exec(`VACUUM ANALYZE`)

	some := must[Page](t)(w.letters.List(t.Context(), Filter{Limit: 1})).Letters[0]
	gone := must[Page](t)(w.letters.List(t.Context(), Filter{State: Discarded, Limit: 1})).Letters[0]
	fingerprint := some.Fingerprint
	bounded := func(what string, f func(ctx context.Context) error) {
		t.Helper()
		ctx := context.Background()
		began := time.Now()
		if err := f(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		took := time.Since(began)
		t.Logf("%-40s %v", what, took.Round(time.Millisecond))
		if limit := 500 * time.Millisecond; took > limit && testscale.Factor() >= 1 {
			t.Logf("%s took %v, more than %v", what, took, limit)
		}
	}
	list := func(what string, f Filter) {
		t.Helper()
		bounded("list: "+what, func(ctx context.Context) error {
			p, err := w.letters.List(ctx, f)
			f.After = p.Next
			return err
		})
		after := must[*cursor](t)(f.after())
		sql, args := f.listSQL(after, f.looksAt())
		w.wantIndex(what, sql, args)
	}
	list("all", Filter{})
	list("of a consumer", Filter{Consumer: "orders"})
	list("of a sequence", Filter{Consumer: "orders", Version: 1, Sequence: some.Sequence})
	list("of a group", Filter{Consumer: "orders", Version: 1, Fingerprint: fingerprint})
	list("of a group of any consumer", Filter{Fingerprint: fingerprint})
	list("of a type that is not there", Filter{Type: "order.none"})
	list("of a time", Filter{Since: w.base.Add(-time.Minute)})
	list("closed", Filter{State: Closed})
	list("discarded", Filter{State: Discarded})
	list("discarded, of another consumer", Filter{State: Discarded, Consumer: "orders"})

	bounded("groups", func(ctx context.Context) error { _, err := w.letters.Groups(ctx, Filter{}); return err })
	bounded("groups of a consumer", func(ctx context.Context) error {
		_, err := w.letters.Groups(ctx, Filter{Consumer: "orders", Version: 1})
		return err
	})
	sql, args := Filter{}.groupsSQL()
	w.wantIndex("groups", sql, args)
	bounded("show", func(ctx context.Context) error { _, err := w.letters.Show(ctx, some.ID); return err })
	for what, sql := range map[string]string{"show": showSQL, "actions": actionsSQL} {
		w.wantIndex(what, sql, []any{some.ID})
	}
	key := []any{"orders", 1, "", some.Sequence}
	w.wantIndex("waiting", waitingSQL, key)
	w.wantIndex("planned", plannedSQL, key)
	bounded("status", func(ctx context.Context) error { _, err := w.letters.Status(ctx); return err })
	bounded("preview of a group", func(ctx context.Context) error {
		_, err := w.letters.Preview(ctx, OfGroup(fingerprint))
		return err
	})
	bounded("redrive of a letter", func(ctx context.Context) error { _, err := w.letters.Redrive(ctx, One(some.ID), ann); return err })
	sql, args = Filter{Consumer: "orders", Version: 1, Fingerprint: fingerprint}.matchSQL(uuid.Nil, itemsSQL, uuid.New(), "a", "b")
	w.wantIndex("items of a plan", sql, args)
	sql, args = Filter{Consumer: "orders", Version: 1}.matchSQL(some.ID, `SELECT letter, first FROM m`)
	w.wantIndex("one letter", sql, args)
	w.wantIndex("owners", ownersSQL, []any{"", fingerprint, "", ""})
	w.wantIndex("discard", discardSQL, []any{some.ID, "parked", 1, "a", "b"})
	w.wantIndex("undo", reopenSQL, []any{gone.ID, 1, gone.ClosedAt})
	w.wantIndex("later letter", letterAtSQL, []any{"orders", 1, "", 5})
	w.wantIndex("later event", laterEventSQL, []any{5, 50, 5, "order-5"})
	w.wantIndex("prune", pruneSQL, []any{1.0, pruneBatch})
	bounded("prune of one batch", func(ctx context.Context) error {
		return w.letters.write(ctx, "prune", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, w.letters.sql(pruneSQL), 1.0, pruneBatch)
			return err
		})
	})

	// The control: what no index knows is seen as such.
	if plan := w.explain(`SELECT count(*) FROM {schema}.letters WHERE handler = $1`, []any{"x"}); len(scans.FindAllString(plan, -1)) == 0 {
		t.Errorf("the control has no scan:\n%s", plan)
	}
}

var scans = regexp.MustCompile(`Seq Scan on (letters|events\w*|redrive_items|letter_actions|outbox\w*)`)

func (w *world) wantIndex(what, sql string, args []any) {
	w.t.Helper()
	plan := w.explain(sql, args)
	if found := scans.FindString(plan); found != "" || !strings.Contains(plan, "Index") {
		w.t.Errorf("%s: %s\n%s", what, found, plan)
	}
}

// explain plans a statement as it is run, with its values.
func (w *world) explain(sql string, args []any) string {
	w.t.Helper()
	var lines []string
	err := w.letters.inTx(w.t.Context(), "explain", pgx.TxOptions{}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(w.t.Context(), writePlanSQL, "1000"); err != nil {
			return err
		}
		rows, err := tx.Query(w.t.Context(), "EXPLAIN "+w.letters.sql(sql), args...)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		w.t.Errorf("%v\n%s", err, fmt.Sprint(sql, args))
	}
	return strings.Join(lines, "\n")
}
