package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// subscribe makes a consumer with one segment at floor; with a topic it is a subscriber.
func subscribe(t testing.TB, pool *pgxpool.Pool, consumer, topic string, floor int64) {
	t.Helper()
	mustExec(t, pool, `INSERT INTO daybook.consumers (consumer, version, kind) VALUES ($1, 1, 'relay')`, consumer)
	mustExec(t, pool, `INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition, floor) VALUES ($1, 1, 0, 0, 63, $2)`, consumer, floor)
	if topic != "" {
		mustExec(t, pool, `INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ($1, 'group of ' || $2, $2, 1)`, topic, consumer)
	}
}

// followed makes a subscriber of every topic that has passed everything.
func followed(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	subscribe(t, pool, "reader", "", 1<<60)
	mustExec(t, pool, `INSERT INTO daybook.subscribers (topic, group_name, consumer, version)
		SELECT unnest(ARRAY['all', 'some', 'public', 'commands']), 'readers', 'reader', 1`)
}

func pass(t testing.TB, pool *pgxpool.Pool, consumer string, floor int64) {
	t.Helper()
	mustExec(t, pool, `UPDATE daybook.segments SET floor = $2 WHERE consumer = $1`, consumer, floor)
}

func mustClean(t testing.TB, store *postgres.Store) eventstore.CleanReport {
	t.Helper()
	report, err := store.Outbox().Clean(context.Background(), time.Hour)
	if err != nil {
		t.Fatalf("clean: %v", err)
	}
	return report
}

// kept counts rows of the outbox, and those of them that end at or below a position.
func kept(t testing.TB, pool *pgxpool.Pool, below int64) (all, low int) {
	t.Helper()
	return value[int](t, pool, `SELECT count(*) FROM daybook.outbox`), value[int](t, pool, `SELECT count(*) FROM daybook.outbox WHERE last_position <= $1`, below)
}

// Nothing goes that is not sent, or that somebody who follows has not passed; and the end of the log never falls.
func TestCleanTakesWhatAllHavePassed(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 5000}))
	store := openStore(t, pool, postgres.Config{Routes: routes()})
	for range 120 {
		mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(100)...))
	}
	total := func(beyond int64) int {
		return value[int](t, pool, `SELECT count(*) FROM copied WHERE last_position > $1`, beyond)
	}
	mustExec(t, pool, `CREATE TABLE copied AS SELECT last_position FROM daybook.outbox`)
	check := func(what string, cleaned int64) eventstore.CleanReport {
		t.Helper()
		report := mustClean(t, store)
		all, low := kept(t, pool, cleaned)
		if want := total(cleaned); low != 0 || report.Cleaned.Ordinal() != cleaned || all != want {
			t.Errorf("%s: %+v; %d rows kept, %d of them not beyond %d, want %d", what, report, all, low, cleaned, want)
		}
		if page, err := store.Outbox().ReadPage(t.Context(), everything); err != nil || page.Cleaned.Ordinal() != cleaned {
			t.Errorf("%s: the reader sees %s, %v", what, page.Cleaned, err)
		}
		return report
	}
	followed(t, pool)
	check("without a relay", 0)
	subscribe(t, pool, "outbox-relay", "", 2000)
	subscribe(t, pool, "view", "all", 1500)
	subscribe(t, pool, "search", "some", 1000)
	check("the last of all", 1000)
	pass(t, pool, "search", 7000)
	check("another is the last", 1500)
	pass(t, pool, "view", 9000)
	check("the relay has not sent it", 2000)
	pass(t, pool, "outbox-relay", 8000)
	if report := check("a range", 7000); report.Ranges != 0 || value[int](t, pool, `SELECT count(*) FROM daybook.outbox_1`) != 0 {
		// Range 1 ends at 5,000; the block of its last row ends at 8,191.
		t.Errorf("%+v", report)
	}
	pass(t, pool, "search", 9000)
	pass(t, pool, "outbox-relay", 9000)
	if report := check("a range", 9000); report.Ranges != 1 {
		t.Errorf("%+v", report)
	}
	if !value[bool](t, pool, `SELECT outbox_emptied FROM daybook.ranges WHERE first_position = 1`) {
		t.Error("the range is not marked")
	}
	// Everything: the greatest row stays, and with it the end.
	insertMessage(t, pool, "commands", "k", "last")
	end, err := store.SafeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"view", "search", "outbox-relay"} {
		pass(t, pool, name, end.Ordinal())
	}
	mustClean(t, store)
	if got := value[string](t, pool, `SELECT string_agg(first_position::text || ' ' || topic, ',') FROM daybook.outbox`); got != end.String()+" commands" {
		t.Errorf("what is left is %q, the end is %s", got, end)
	}
	if again := mustClean(t, store); again.Rows != 0 || again.Ranges != 0 || len(again.Lost) != 0 {
		t.Errorf("cleaning again: %+v", again)
	}
	fresh := openStore(t, pool, postgres.Config{})
	if head, err := fresh.SafeHead(t.Context()); err != nil || head != end {
		t.Errorf("the head is %s, %v; it was %s", head, err, end)
	}
	if head, err := store.SafeHead(t.Context()); err != nil || head != end {
		t.Errorf("the head is %s, %v; it was %s", head, err, end)
	}
	// Cleaned never falls.
	pass(t, pool, "view", 10)
	if report := mustClean(t, store); report.Cleaned != end {
		t.Errorf("cleaned fell to %s", report.Cleaned)
	}
	if _, err := store.Outbox().Clean(t.Context(), 0); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("without retention: %v", err)
	}
}

// What goes is what was said to go in an earlier transaction: in the same one a reader could miss a message and not see
// why.
func TestDropCleanedInTheTransactionOfRaiseIsRefused(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: routes()})
	mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(100)...))
	subscribe(t, pool, "outbox-relay", "", 100)
	followed(t, pool)
	tx := beginTx(t, pool)
	mustExec(t, tx, `SELECT daybook.raise_cleaned('1 hour')`)
	_, err := tx.Exec(t.Context(), `SELECT daybook.drop_cleaned(10)`)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "DB001" {
		t.Errorf("got %v", err)
	}
}

// A subscriber that is behind for longer than the retention is declared lost by name; others are not, however far behind.
func TestSubscribersAreDeclaredLost(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	clock := &now
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 1000}))
	store := openStore(t, pool, postgres.Config{Routes: routes(), Clock: func() time.Time { return *clock }})
	appendAt := func(at time.Time, data string) {
		now = at
		for range 3 {
			list := manyEvents(700)
			list[0] = newEvent(data)
			mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, list...))
		}
	}
	old := now
	appendAt(old, "1") // 1 to 2100
	appendAt(old.Add(90*time.Minute), "2!")
	end := value[int64](t, pool, `SELECT max(last_position) FROM daybook.outbox`)
	subscribe(t, pool, "outbox-relay", "", 0)
	subscribe(t, pool, "down", "all", 2000)    // before the last old message
	subscribe(t, pool, "slow", "all", 2100)    // all the old ones passed
	subscribe(t, pool, "done", "some", end)    // nothing is left
	subscribe(t, pool, "rare", "public", 0)    // far behind, but its topic has recent messages only
	subscribe(t, pool, "other", "no topic", 0) // nothing was ever sent to it
	subscribe(t, pool, "new", "all", 0)        // two subscribers of one group and one of another
	mustExec(t, pool, `INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ('public', 'second', 'new', 1)`)
	now = old.Add(2 * time.Hour)
	report := mustClean(t, store)
	var names []string
	for _, l := range report.Lost {
		names = append(names, l.Topic+"/"+l.Group+"/"+l.Consumer)
		if l.Version != 1 || !l.Oldest.Equal(old) || !strings.Contains(l.String(), l.Consumer) {
			t.Errorf("%+v: %s", l, l)
		}
	}
	if got := strings.Join(names, " "); got != "all/group of down/down all/group of new/new" {
		t.Errorf("lost: %s", got)
	}
	if got := value[string](t, pool, `SELECT string_agg(consumer || ' ' || topic, ', ' ORDER BY consumer) FROM daybook.subscribers WHERE state = 'lost'`); got != "down all, new all" {
		t.Errorf("lost: %s", got)
	}
	if again := mustClean(t, store); len(again.Lost) != 0 || !again.Cleaned.IsZero() {
		t.Errorf("again: %+v", again)
	}
	// Who is lost holds nothing back, nor does who follows a topic without messages; who is within a row does from its
	// first position on.
	pass(t, pool, "outbox-relay", end)
	for _, name := range []string{"slow", "rare"} {
		pass(t, pool, name, 2200)
	}
	mustExec(t, pool, `DELETE FROM daybook.subscribers WHERE consumer = 'new' AND topic = 'public'`)
	if report := mustClean(t, store); report.Cleaned.Ordinal() != 2100 {
		t.Errorf("%+v", report)
	}
}

// Somebody reads a range for long: the cleaning neither waits for him nor lets others wait behind it.
func TestCleanWaitsForNobody(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 5000}))
	store := openStore(t, pool, postgres.Config{Routes: routes()})
	for range 60 {
		mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(200)...))
	}
	subscribe(t, pool, "outbox-relay", "", 9000)
	followed(t, pool)
	reader := beginTx(t, pool)
	mustExec(t, reader, `SELECT count(*) FROM daybook.outbox`)
	stop := make(chan struct{})
	var slowest time.Duration
	var writers sync.WaitGroup
	writers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			start := time.Now()
			if _, err := store.Append(context.Background(), eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x"))); err != nil {
				t.Errorf("append: %v", err)
				return
			}
			if _, err := store.Outbox().ReadPage(context.Background(), everything); err != nil {
				t.Errorf("read: %v", err)
				return
			}
			slowest = max(slowest, time.Since(start))
		}
	})
	var report eventstore.CleanReport
	within(t, patience, "a cleaning", func() { report = mustClean(t, store) })
	close(stop)
	writers.Wait()
	if _, low := kept(t, pool, 9000); low != 0 || report.Ranges != 0 || report.Rows == 0 {
		t.Errorf("%+v, %d rows are left below", report, low)
	}
	if slowest > 5*time.Second { // the reader stays for as long as the test
		t.Errorf("an append and a reading took %s", slowest)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report := mustClean(t, store); report.Ranges != 1 {
		t.Errorf("when nobody reads: %+v", report)
	}
}

// Readers at random places race with the cleaning: whoever misses a message sees that it may be gone.
func TestReadersSeeWhatWasCleaned(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 500}))
	store := openStore(t, pool, postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}})
	const appends, size = 120, 50
	for range appends {
		mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(size)...))
	}
	positions := make([]int64, 0, appends*size)
	for _, e := range logEvents(t, store, eventstore.Position{}) {
		positions = append(positions, e.Position.Ordinal())
	}
	end := positions[len(positions)-1]
	subscribe(t, pool, "outbox-relay", "", 0)
	followed(t, pool)
	done := make(chan struct{})
	var readers sync.WaitGroup
	missing := make([]int, 3)
	for r := range missing {
		readers.Go(func() {
			outbox, rng := store.Outbox(), rand.New(rand.NewPCG(uint64(r), 7))
			for {
				select {
				case <-done:
					return
				default:
				}
				after := positions[rng.IntN(len(positions))] - 1
				page, err := outbox.ReadPage(context.Background(), eventstore.OutboxQuery{Topic: "all", Partition: eventstore.AllPartitions, After: eventstore.PositionAt(after), Limit: 1 + rng.IntN(60)})
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				k := 0
				for _, p := range positions {
					if p <= after || p > page.Through.Ordinal() {
						continue
					}
					if k < len(page.Messages) && page.Messages[k].Position.Ordinal() == p {
						k++
						continue
					}
					missing[r]++
					if p > page.Cleaned.Ordinal() {
						t.Errorf("after %d, complete to %s, cleaned to %s: %d is missing", after, page.Through, page.Cleaned, p)
						return
					}
				}
			}
		})
	}
	for floor := int64(100); floor <= end; floor += 197 {
		pass(t, pool, "outbox-relay", floor)
		mustClean(t, store)
	}
	close(done)
	readers.Wait()
	if total := missing[0] + missing[1] + missing[2]; total == 0 {
		t.Error("no reader ever missed anything: the race was not run")
	}
	if ranges := value[int](t, pool, `SELECT count(*) FROM daybook.ranges WHERE outbox_emptied`); ranges < 5 {
		t.Errorf("%d ranges emptied", ranges)
	}
}

// The role of a program cleans, and cannot take away anything else.
func TestRoleCleansTheOutbox(t *testing.T) {
	t.Parallel()
	const schema = "Day-Book"
	owner := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{Schema: schema, RangeSize: 100}))
	pool := rolePool(t, owner, schema)
	store := openStore(t, pool, postgres.Config{Schema: schema, Routes: routes()})
	for range 30 {
		mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(300)...))
	}
	mustExec(t, pool, `INSERT INTO "Day-Book".consumers (consumer, version, kind) VALUES ('outbox-relay', 2, 'relay')`)
	mustExec(t, pool, `INSERT INTO "Day-Book".segments (consumer, version, segment, first_partition, last_partition, floor) VALUES ('outbox-relay', 2, 0, 0, 63, 8500)`)
	mustExec(t, pool, `INSERT INTO "Day-Book".outbox_tails (consumer, version, topic, partition, position) VALUES ('outbox-relay', 2, 't', 0, 5)`)
	mustExec(t, pool, `INSERT INTO "Day-Book".subscribers (topic, group_name, consumer, version) SELECT unnest(ARRAY['all', 'some', 'public']), 'g', 'outbox-relay', 2`)
	report := mustClean(t, store)
	if report.Ranges < 40 || report.Cleaned.Ordinal() != 8500 {
		t.Errorf("%+v", report)
	}
	if _, _, err := store.Outbox().Epochs(t.Context()); err != nil {
		t.Error(err)
	}
	for _, sql := range []string{
		`DELETE FROM "Day-Book".outbox`, `TRUNCATE "Day-Book".outbox_9001`, `UPDATE "Day-Book".outbox SET topic = 'x'`,
		`UPDATE "Day-Book".store SET outbox_cleaned = 99999`, `DELETE FROM "Day-Book".epochs`, `UPDATE "Day-Book".ranges SET outbox_emptied = true`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
			t.Errorf("%s: got %v, want no permission", sql, err)
		}
	}
	stranger := "Stranger-" + fmt.Sprint(rand.Int())
	mustExec(t, owner, `CREATE ROLE `+pgx.Identifier{stranger}.Sanitize())
	t.Cleanup(func() {
		mustExec(t, owner, `DROP OWNED BY `+pgx.Identifier{stranger}.Sanitize()+`; DROP ROLE `+pgx.Identifier{stranger}.Sanitize(), pgx.QueryExecModeSimpleProtocol)
	})
	mustExec(t, owner, `GRANT USAGE ON SCHEMA "Day-Book" TO `+pgx.Identifier{stranger}.Sanitize())
	for _, f := range []string{"declare_lost(interval, timestamptz)", "raise_cleaned(interval, timestamptz)", "drop_cleaned(int)"} {
		if value[bool](t, owner, `SELECT has_function_privilege($1::text, '"Day-Book".' || $2::text, 'execute')`, stranger, f) {
			t.Errorf("anybody may run %s", f)
		}
	}
}

// A topic that nobody follows keeps its messages for a while, so that whoever is deployed with the relay finds them.
func TestATopicThatNobodyFollowsIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	var later atomic.Int64
	store := openStore(t, pool, postgres.Config{
		Routes: []eventstore.Route{{Topic: "all"}, {Topic: "some"}},
		Clock:  func() time.Time { return time.Now().Add(time.Duration(later.Load())) },
	})
	for range 10 {
		mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x")))
	}
	end := safeHead(t, store).Ordinal()
	subscribe(t, pool, "outbox-relay", "", end)
	subscribe(t, pool, "view", "all", end)
	clean := func() int64 {
		report, err := store.Outbox().Clean(t.Context(), 7*24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return report.Cleaned.Ordinal()
	}
	if cleaned := clean(); cleaned != 0 {
		t.Errorf("cleaned up to %d although nobody has followed one of the topics yet", cleaned)
	}
	mustExec(t, pool, `INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ('some', 'g', 'view', 1)`)
	if cleaned := clean(); cleaned != end {
		t.Errorf("cleaned up to %d of %d when both are followed", cleaned, end)
	}
	mustExec(t, pool, `DELETE FROM daybook.subscribers`)
	mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x")))
	last := safeHead(t, store).Ordinal()
	pass(t, pool, "outbox-relay", last)
	if cleaned := clean(); cleaned != end {
		t.Errorf("cleaned up to %d at once", cleaned)
	}
	later.Store(int64(2 * time.Hour))
	if cleaned := clean(); cleaned != last {
		t.Errorf("cleaned up to %d of %d after two hours", cleaned, last)
	}
}

// A follower of a quiet topic holds nothing of the others back, however long it is away, and what was cleaned of one topic
// is not missing to a new follower of another.
func TestTopicsAreCleanedByTheirOwnFollowers(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: []eventstore.Route{{Topic: "busy"}, {Topic: "late", Types: []string{"test.late"}}}})
	for range 20 {
		mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x")))
	}
	end := safeHead(t, store).Ordinal()
	subscribe(t, pool, "outbox-relay", "", end)
	subscribe(t, pool, "view", "busy", end)
	subscribe(t, pool, "gone", "quiet", 0)
	if report := mustClean(t, store); report.Cleaned.Ordinal() != end || len(report.Lost) != 0 {
		t.Errorf("%+v, want all up to %d cleaned and nobody lost", report, end)
	}
	cleaned := func(topic string) int64 {
		page, err := store.Outbox().ReadPage(t.Context(), eventstore.OutboxQuery{Topic: topic, Partition: eventstore.AllPartitions, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return page.Cleaned.Ordinal()
	}
	if busy, late, all := cleaned("busy"), cleaned("late"), cleaned(""); busy != end || late != 0 || all != end {
		t.Errorf("cleaned of busy up to %d, of late up to %d, of all up to %d; want %d, 0, %d", busy, late, all, end, end)
	}
}

// A subscriber that was lost and has come up again holds messages back again; one that cannot come up does not.
func TestALostSubscriberFollowsAgain(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}})
	mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(20)...))
	subscribe(t, pool, "outbox-relay", "", 20)
	subscribe(t, pool, "up", "all", 0)
	subscribe(t, pool, "down", "all", 0)
	mustExec(t, pool, `UPDATE daybook.subscribers SET state = 'lost'`)
	clean := func() string {
		if _, err := store.Outbox().Clean(t.Context(), time.Nanosecond); err != nil {
			t.Fatal(err)
		}
		return value[string](t, pool, `SELECT string_agg(consumer || ' ' || state, ', ' ORDER BY consumer) FROM daybook.subscribers`)
	}
	if got := clean(); got != "down lost, up lost" {
		t.Errorf("states %s", got)
	}
	pass(t, pool, "up", 20)
	if got := clean(); got != "down lost, up following" {
		t.Errorf("states %s", got)
	}
}
