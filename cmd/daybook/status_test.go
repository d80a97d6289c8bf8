package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/projection"
)

type opened struct{ Cents int64 }

var accountEvents = eventstore.NewCatalog(eventstore.TypeOf[opened]("account.opened"))

type balance struct{ Cents int64 }

func balances(name string, inline bool) projection.View[string, balance] {
	return projection.View[string, balance]{
		Name: name, Version: 3, Events: accountEvents, Inline: inline,
		Folds: []projection.Fold[string, balance]{projection.On(projection.ByStream,
			func(b balance, e projection.Event[opened]) balance { return balance{b.Cents + e.Payload.Cents} })},
	}
}

// consumerRow returns a consumer's row of the table that status prints, by the names of its columns. Columns end where
// the next one's name begins.
func consumerRow(t *testing.T, url, name string) map[string]string {
	t.Helper()
	out, err := run(t, "status", "--database", url)
	if err != nil {
		t.Fatal(err)
	}
	var head string
	for line := range strings.Lines(out) {
		switch first, _, _ := strings.Cut(line, " "); first {
		case "CONSUMER":
			head = strings.TrimSpace(line)
		case name:
			row := map[string]string{}
			columns := strings.Fields(head)
			for i, column := range columns {
				from, to := strings.Index(head, column), len(line)
				if i+1 < len(columns) {
					to = strings.Index(head, columns[i+1])
				}
				row[column] = strings.TrimSpace(line[from:to])
			}
			return row
		}
	}
	t.Fatalf("status does not show %q:\n%s", name, out)
	return nil
}

func wantRow(t *testing.T, row, want map[string]string) {
	t.Helper()
	for column, text := range want {
		if row[column] != text {
			t.Errorf("%s is %q, want %q, in %q", column, row[column], text, row)
		}
	}
}

func TestStatusShowsConsumers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := postgrestest.New(t)
	url := pool.Config().ConnString()
	followed, inline := balances("balances", false), balances("limits", true)
	if err := projection.Install(ctx, pool, followed, inline); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.New(ctx, pool, postgres.Config{Hooks: []postgres.Hook{projection.Inline(inline)}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var tokens []eventstore.Token
	for i := range 10 {
		event, err := accountEvents.Encode(opened{int64(i)})
		if err != nil {
			t.Fatal(err)
		}
		result, err := store.Append(ctx, eventstore.To(eventstore.NewStreamID("account", fmt.Sprint(i)), eventstore.NoStream, event))
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, result.Token)
	}
	wantRow(t, consumerRow(t, url, "balances"), map[string]string{"VERSION": "3", "KIND": "projection", "STATE": "running",
		"APPLIED": "0", "BEHIND": "10 positions", "OWNER": "-", "REASON": ""})

	runner, err := projection.NewRunner(pool, store.Log(), projection.Config{}, followed)
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.CatchUp(ctx, tokens[5]); err != nil {
		t.Fatal(err)
	}
	row := consumerRow(t, url, "balances")
	wantRow(t, row, map[string]string{"STATE": "running", "APPLIED": "6", "BEHIND": "4 positions", "OWNER": "-", "REASON": ""})
	if !strings.HasSuffix(row["OLDEST"], "s") {
		t.Errorf("OLDEST is %q, want the age of the event at position 7", row["OLDEST"])
	}
	// An inline projection is part of every append: there is nothing that it could be behind.
	wantRow(t, consumerRow(t, url, "limits"), map[string]string{"VERSION": "3", "KIND": "inline", "STATE": "running",
		"APPLIED": "10", "BEHIND": "0 positions", "OLDEST": "-", "OWNER": "-", "REASON": ""})

	const pause = `UPDATE daybook.consumers SET state = 'paused', reason = $2, since = clock_timestamp() WHERE consumer = $1`
	if _, err := pool.Exec(ctx, pause, "balances", "the disk is being changed"); err != nil {
		t.Fatal(err)
	}
	wantRow(t, consumerRow(t, url, "balances"), map[string]string{"STATE": "paused", "APPLIED": "6", "BEHIND": "4 positions",
		"REASON": "the disk is being changed"})

	// Who works on it now.
	const own = `UPDATE daybook.segments SET owner = 'host-1', expires_at = clock_timestamp() + interval '1 hour' WHERE consumer = $1`
	if tag, err := pool.Exec(ctx, own, "balances"); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%v, %v", tag, err)
	}
	wantRow(t, consumerRow(t, url, "balances"), map[string]string{"OWNER": "host-1"})
}

// What is set aside shows with the segment that owns its partitions, and in a last line that says where to look.
func TestStatusShowsWhatIsSetAside(t *testing.T) {
	t.Parallel()
	f := letters(t, "x", "x", "x")
	f.exec(`INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('quiet', 1, 'projection')`)
	f.exec(`INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition) VALUES ('quiet', 1, 0, 0, 63), ('orders', 1, 1, 32, 63)`)
	f.exec(`UPDATE daybook.segments SET last_partition = 31 WHERE consumer = 'orders' AND segment = 0`)
	f.exec(`UPDATE daybook.parked SET partition = CASE sequence WHEN 'order-1' THEN 31 ELSE 32 END`)
	out, err := run(t, "status", "--database", f.url)
	if err != nil || !strings.HasSuffix(out, "\n\n3 sequences are set aside: see daybook deadletter status\n") {
		t.Errorf("%v\n%s", err, out)
	}
	wantRow(t, consumerRow(t, f.url, "quiet"), map[string]string{"PARKED": "0"})
	wantRow(t, consumerRow(t, f.url, "orders"), map[string]string{"SEGMENT": "0", "PARKED": "1"})
	f.exec(`DELETE FROM daybook.segments WHERE consumer = 'orders' AND segment = 0`)
	wantRow(t, consumerRow(t, f.url, "orders"), map[string]string{"SEGMENT": "1", "PARKED": "2"})
	f.exec(`DELETE FROM daybook.parked`)
	if out, err := run(t, "status", "--database", f.url); err != nil || strings.Contains(out, "set aside") {
		t.Errorf("with nothing: %v\n%s", err, out)
	}
}

// 36,000 behind with 1,000 arriving each second: what handles 1,200 a second needs 180 s, what handles 1,500 needs 72, and
// what handles 1,000 never comes up. An inbox's positions are those of another store.
func TestStatusEstimatesTheTimeLeft(t *testing.T) {
	t.Parallel()
	at := eventstore.PositionAt
	row := func(name string, applied, behind int64) postgres.ConsumerStatus {
		return postgres.ConsumerStatus{Consumer: name, Kind: "projection", Version: 1, Applied: at(applied), Positions: behind}
	}
	before := postgres.Status{SafeHead: at(90_000), Consumers: []postgres.ConsumerStatus{row("twelve", 52_000, 38_000), row("fifteen", 49_000, 41_000), row("ten", 54_000, 36_000), row("even", 90_000, 0)}}
	after := postgres.Status{SafeHead: at(100_000), Consumers: []postgres.ConsumerStatus{
		row("twelve", 64_000, 36_000), row("fifteen", 64_000, 36_000), row("ten", 64_000, 36_000), row("even", 100_000, 0), row("new", 0, 100_000),
		{Consumer: "stock", Kind: "inbox", Version: 1, Applied: at(7)},
	}, Slots: []postgres.SlotStatus{{Name: "search", Kept: 5 << 29}}}
	left := timeLeft(before, after, 10*time.Second)
	for name, want := range map[string]string{"twelve": "180 s", "fifteen": "72 s", "ten": "never, 1 worker short", "even": "0 s", "new": "", "stock": ""} {
		if got := left[place{name, 1, 0}]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var out strings.Builder
	if err := printStatus(&out, after, left, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`slot        "search" keeps 2.5 GB of write-ahead log, and nobody reads it`, "LEFT", "180 s", "never, 1 worker short"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	pool := postgrestest.New(t)
	url := pool.Config().ConnString()
	if text, err := run(t, "status", "--database", url, "--over", "1ms"); err != nil || !strings.Contains(text, "consumers   none") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := run(t, "status", "--database", url, "--over=-1s"); err == nil || !strings.Contains(err.Error(), "--over") {
		t.Errorf("%v", err)
	}
}
