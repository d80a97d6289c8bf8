package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// relays makes the consumer of the relays with its four segments at floor.
func relays(t testing.TB, pool *pgxpool.Pool, floor int64) {
	t.Helper()
	mustExec(t, pool, `INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('outbox-relay', 2, 'relay')`)
	mustExec(t, pool, `INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition, floor)
		SELECT 'outbox-relay', 2, i, 16 * i, 16 * i + 15, $1 FROM generate_series(0, 3) i`, floor)
}

// setAside does what a relay does, in the transaction of its cursor.
func setAside(t testing.TB, db execer, key string, first int64) {
	t.Helper()
	mustExec(t, db, `INSERT INTO daybook.parked (consumer, version, topic, sequence, partition, state, first_position, last_position)
		VALUES ('outbox-relay', 2, 'all', $1, $2, 'parked', $3, $3)`, key, eventstore.PartitionOf(key, 64), first)
}

func release(t testing.TB, db execer, key string) {
	t.Helper()
	mustExec(t, db, `DELETE FROM daybook.parked WHERE sequence = $1`, key)
}

// What a relay has set aside stays, with what is behind it, until the release; what another consumer has set aside, which
// has it in a letter, holds nothing.
func TestCleanKeepsWhatARelayHasSetAside(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 5000}))
	store := openStore(t, pool, postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}})
	for i := range 300 {
		mustAppend(t, store, eventstore.To(eventstore.NewStreamID("order", fmt.Sprint(i)), eventstore.NoStream, manyEvents(100)...))
	}
	followed(t, pool)
	relays(t, pool, 25_000)
	mustExec(t, pool, `INSERT INTO daybook.parked (consumer, version, topic, sequence, partition, state, first_position, last_position)
		VALUES ('reader', 1, 'all', 'order-3', 0, 'parked', 10, 10)`)
	setAside(t, pool, "order-90", 9001)
	setAside(t, pool, "order-120", 12_001)
	first := mustClean(t, store)
	if first.Cleaned.Ordinal() != 9000 || first.Ranges != 1 {
		t.Errorf("%+v", first)
	}
	if all, low := kept(t, pool, 9000); low != 0 || all < 210 {
		t.Errorf("%d rows are left, %d of them were to go", all, low)
	}
	// The relay reads again what is queued.
	q := eventstore.OutboxQuery{Topic: "all", Partition: eventstore.PartitionOf("order-90", 64), PartitionKey: "order-90", Limit: 1000}
	if n := len(readOutbox(t, store.Outbox(), q)); n != 100 {
		t.Errorf("%d messages of the sequence, want 100", n)
	}
	release(t, pool, "order-90")
	if again := mustClean(t, store); again.Cleaned.Ordinal() != 12_000 || again.Ranges != 0 {
		t.Errorf("after the first release: %+v", again)
	}
	release(t, pool, "order-120")
	if last := mustClean(t, store); last.Cleaned.Ordinal() != 25_000 || last.Ranges != 3 {
		t.Errorf("after the last release: %+v", last)
	}
	if _, low := kept(t, pool, 25_000); low != 0 {
		t.Errorf("%d rows are left", low)
	}
}

// A relay sets a sequence aside and moves its cursor while the cleaning reads the cursors: what it has seen of the one it
// also sees of the other.
func TestARelaySetsAsideWhileTheCursorsAreRead(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}})
	mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(100)...))
	followed(t, pool)
	relays(t, pool, 20)
	tx := beginTx(t, pool)
	mustExec(t, tx, `LOCK TABLE daybook.segments IN ACCESS EXCLUSIVE MODE`)
	cleaned := make(chan int64, 1)
	go func() {
		var to int64
		if err := pool.QueryRow(context.Background(), `SELECT daybook.raise_cleaned('1 hour')`).Scan(&to); err != nil {
			t.Error(err)
		}
		cleaned <- to
	}()
	awaitBlocked(t, pool, 1)
	setAside(t, tx, "order-1", 50)
	mustExec(t, tx, `UPDATE daybook.segments SET floor = 100 WHERE consumer = 'outbox-relay'`)
	mustCommit(t, tx)
	if to := <-cleaned; to >= 50 {
		t.Errorf("cleaned up to %d, and the message at 50 is set aside", to)
	}
}

// Relays set aside and release at random while several clean: nothing of what is set aside ever goes.
func TestSettingAsideRacesWithTheCleaning(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 500}))
	store := openStore(t, pool, postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}})
	const appends, size = 100, 50
	for range appends {
		mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(size)...))
	}
	followed(t, pool)
	mustExec(t, pool, `CREATE TABLE copied AS SELECT last_position FROM daybook.outbox`)
	end := value[int64](t, pool, `SELECT max(last_position) FROM copied`)
	relays(t, pool, 0)
	done := make(chan struct{})
	var cleaners sync.WaitGroup
	for range 2 {
		cleaners.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					mustClean(t, store)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(11, 4))
	aside, most := map[string]int64{}, 0
	for floor := int64(20); floor <= end; floor += 20 {
		tx := beginTx(t, pool)
		mustExec(t, tx, `UPDATE daybook.segments SET floor = $1 WHERE consumer = 'outbox-relay'`, floor)
		key := fmt.Sprint("order-", floor)
		if rng.IntN(3) > 0 {
			setAside(t, tx, key, floor-rng.Int64N(20))
			aside[key] = value[int64](t, tx, `SELECT first_position FROM daybook.parked WHERE sequence = $1`, key)
		}
		mustCommit(t, tx)
		for key, first := range aside {
			held := value[bool](t, pool, `SELECT s.outbox_cleaned < $1 AND
				(SELECT count(*) FROM daybook.outbox WHERE last_position >= $1) = (SELECT count(*) FROM copied WHERE last_position >= $1) FROM daybook.store s`, first)
			if !held {
				t.Fatalf("what %s has set aside at %d is gone", key, first)
			}
			if rng.IntN(8) == 0 || len(aside) > 6 {
				release(t, pool, key)
				delete(aside, key)
			}
		}
		most = max(most, len(aside))
	}
	close(done)
	cleaners.Wait()
	for key := range aside {
		release(t, pool, key)
	}
	mustExec(t, pool, `UPDATE daybook.segments SET floor = $1 WHERE consumer = 'outbox-relay'`, end)
	mustClean(t, store)
	if got := value[int64](t, pool, `SELECT outbox_cleaned FROM daybook.store`); got != end || most < 2 {
		t.Errorf("cleaned up to %d of %d, with at most %d set aside at a time", got, end, most)
	}
}
