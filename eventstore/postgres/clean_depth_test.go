package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// publish writes n messages of 1,000 keys as appends of one event do, a row each, but for the events, which cleaning does
// not look at. It returns the last position.
func publish(t testing.TB, pool *pgxpool.Pool, n int) (last int64) {
	t.Helper()
	mustExec(t, pool, `SELECT daybook.ensure_ranges((3 + $1::int / range_size)::int) FROM daybook.store`, n)
	mustExec(t, pool, `
		INSERT INTO daybook.outbox (first_position, last_position, from_version, to_version, partition, topic, key, stream_id)
		SELECT p, p, i, i, k.partition, 'all', k.key, k.key
		  FROM (SELECT nextval('daybook.log_position') AS p, i FROM generate_series(1, $1::int) i) x
		  JOIN (SELECT k, 'order-' || k AS key, daybook.partition_of('order-' || k, 64) AS partition FROM generate_series(0, 999) k) k ON k.k = x.i % 1000 ORDER BY p`, n)
	return value[int64](t, pool, `SELECT last_value FROM daybook.log_position`)
}

// outboxSize is that of all tables and indexes of the outbox, and how many ranges are empty for good.
func outboxSize(t testing.TB, pool *pgxpool.Pool) (bytes, emptied int64) {
	t.Helper()
	return value[int64](t, pool, `SELECT sum(pg_total_relation_size(i.inhrelid))::bigint FROM pg_inherits i WHERE i.inhparent = 'daybook.outbox'::regclass`),
		value[int64](t, pool, `SELECT count(*) FROM daybook.ranges WHERE outbox_emptied`)
}

// R-OB05: ten million messages through leave tables and indexes no larger than one million. A tenth of what is sent at a
// time is cleaned behind it, in one range that is never full, and in ranges that are emptied one after the other. While a
// relay has a message set aside the outbox grows by what comes after it; the release gives all of it back.
func TestTheOutboxStaysAsSmallAsWhatIsUnderway(t *testing.T) {
	t.Parallel()
	step, rounds := testscale.N(10_000), 40 // 40,000 messages, with the usual scale
	if testscale.Factor() >= 1 {
		step, rounds = 100_000, 100
	}
	total := step * rounds
	for name, size := range map[string]int64{"one range": 10 * int64(total), "many ranges": int64(2 * step)} {
		t.Run(name, func(t *testing.T) {
			pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: size}))
			store := openStore(t, pool, postgres.Config{})
			relays(t, pool, 0)
			subscribe(t, pool, "view", "all", 0)
			var last int64
			// round sends one step; the relays have sent all of it, and the follower is one step behind.
			round := func() {
				before := last
				last = publish(t, pool, step)
				pass(t, pool, "outbox-relay", last)
				pass(t, pool, "view", before)
				mustClean(t, store)
				mustExec(t, pool, `VACUUM daybook.outbox`) // as autovacuum does, which nobody waits for here
			}
			for range 10 {
				round()
			}
			tenth, _ := outboxSize(t, pool)
			for range rounds - 15 {
				round()
			}
			through, _ := outboxSize(t, pool)
			setAside(t, pool, "order-7", last+1)
			from := last
			for range 5 {
				round()
			}
			held, _ := outboxSize(t, pool)
			if n := value[int](t, pool, `SELECT count(*) FROM daybook.outbox WHERE first_position > $1`, from); n != 5*step {
				t.Errorf("%d messages are kept behind the one that is set aside, want %d", n, 5*step)
			}
			q := eventstore.OutboxQuery{Topic: "all", Partition: eventstore.PartitionOf("order-7", 64), After: eventstore.PositionAt(from), PartitionKey: "order-7", Limit: 10}
			if _, err := store.Outbox().ReadPage(t.Context(), q); err != nil {
				t.Error(err)
			}
			release(t, pool, "order-7")
			pass(t, pool, "view", last)
			mustClean(t, store)
			mustExec(t, pool, `VACUUM daybook.outbox`)
			round() // the last range that was full goes when something beyond the block of its last row has been passed
			round()
			after, emptied := outboxSize(t, pool)
			t.Logf("%s: %d bytes after %d messages, %d after all but %d of %d, %d while %d were held, %d after the release, when %d ranges were empty",
				name, tenth, 10*step, through, 5*step, total, held, 5*step, after, emptied)
			// An empty range keeps the first pages of its indexes. One whose rows were deleted keeps its pages, and uses them again.
			// Half-filled pages of an index count for more the fewer there are.
			limit := tenth*2 + emptied*25_000
			if testscale.Factor() >= 1 {
				limit = tenth*3/2 + emptied*25_000
			}
			if through > limit || size < int64(total) && after > limit || after > max(limit, held*11/10) {
				t.Errorf("%d and %d bytes, %d after %d messages", through, after, tenth, 10*step)
			}
			if rows := value[int](t, pool, `SELECT count(*) FROM daybook.outbox`); rows > 2*step+1 {
				t.Errorf("%d rows are left", rows)
			}
		})
	}
}
