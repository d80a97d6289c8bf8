package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// prepareSegment makes a consumer with one segment at epoch 1, whose partition 3 is at position 5.
func prepareSegment(t testing.TB, pool *pgxpool.Pool, consumer string, floor int64) {
	t.Helper()
	mustExec(t, pool, `INSERT INTO daybook.consumers (consumer, version, kind) VALUES ($1, 1, 'projection')`, consumer)
	mustExec(t, pool, `INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition, epoch, floor) VALUES ($1, 1, 0, 0, 63, 1, $2)`, consumer, floor)
	mustExec(t, pool, `INSERT INTO daybook.checkpoints (consumer, version, partition, applied) VALUES ($1, 1, 3, 5)`, consumer)
}

const commitBatchSQL = `SELECT daybook.commit_batch('view', 1, 0, $1, $2, $3, $4, $5, $6, $7, $8, false)`

// The fence: a batch of a worker that was replaced has no effect, though its COMMIT is on the way already.
func TestCommitBatch(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	mustExec(t, pool, `CREATE TABLE effects (i int)`)
	none := []any{[]string{}, []int32{}, []int64{}, []int64{}}
	one := func(from, to int64) []any { return []any{[]string{""}, []int32{3}, []int64{from}, []int64{to}} }
	many := func(n int) []any { // every partition; the row of partition 3 moves, the others are new
		topics, partitions, from, to := make([]string, n), make([]int32, n), make([]int64, n), make([]int64, n)
		for i := range n {
			partitions[i], to[i] = int32(i), 11
		}
		from[3], to[3] = 5, 12
		return []any{topics, partitions, from, to}
	}
	for name, c := range map[string]struct {
		epoch, parked, from, to int64
		rows                    []any
		gone                    bool // the row of partition 3
		more                    int  // rows that are new
		isolation               pgx.TxIsoLevel
		code                    string
	}{
		"good":                             {epoch: 1, to: 10, rows: none},
		"good with checkpoint":             {epoch: 1, to: 10, rows: one(5, 12)},
		"row at the floor goes":            {epoch: 1, to: 10, rows: one(5, 10), gone: true},
		"row named by where it is goes":    {epoch: 1, to: 10, rows: one(5, 5), gone: true},
		"new row":                          {epoch: 1, to: 10, rows: []any{[]string{"t", ""}, []int32{3, 3}, []int64{0, 5}, []int64{11, 12}}, more: 1},
		"new row not beyond the floor":     {epoch: 1, to: 10, rows: []any{[]string{"", "t"}, []int32{3, 3}, []int64{5, 0}, []int64{12, 10}}},
		"many":                             {epoch: 1, to: 10, rows: many(64), more: 63},
		"new row that is there":            {epoch: 1, to: 10, rows: one(0, 12), code: "DB003"},
		"row to go is elsewhere":           {epoch: 1, to: 10, rows: one(4, 10), code: "DB003"},
		"row to go is not there":           {epoch: 1, to: 10, rows: []any{[]string{"t"}, []int32{3}, []int64{5}, []int64{6}}, code: "DB003"},
		"no row, but one is there":         {epoch: 1, to: 10, rows: one(0, 10), code: "DB003"},
		"one of many does not fit":         {epoch: 1, to: 10, rows: []any{[]string{"", "t"}, []int32{3, 3}, []int64{5, 7}, []int64{12, 13}}, code: "DB003"},
		"a partition twice":                {epoch: 1, to: 10, rows: []any{[]string{"", ""}, []int32{3, 3}, []int64{5, 5}, []int64{12, 13}}, code: "DB003"},
		"a new partition twice":            {epoch: 1, to: 10, rows: []any{[]string{"t", "t"}, []int32{3, 3}, []int64{0, 0}, []int64{12, 13}}, code: "DB003"},
		"good, nothing moves":              {epoch: 1, rows: one(5, 5)},
		"stale epoch":                      {epoch: 0, to: 10, rows: none, code: "DB002"},
		"epoch of the future":              {epoch: 2, to: 10, rows: none, code: "DB002"},
		"stale parked revision":            {epoch: 1, parked: 1, to: 10, rows: none, code: "DB002"},
		"stale floor":                      {epoch: 1, from: 1, to: 10, rows: none, code: "DB003"},
		"floor going back":                 {epoch: 1, from: 0, to: -1, rows: none, code: "DB003"},
		"stale checkpoint":                 {epoch: 1, to: 10, rows: one(4, 12), code: "DB003"},
		"checkpoint going back":            {epoch: 1, to: 10, rows: one(5, 4), code: "DB003"},
		"no such checkpoint":               {epoch: 1, to: 10, rows: []any{[]string{"t"}, []int32{3}, []int64{5}, []int64{12}}, code: "DB003"},
		"arrays of different length":       {epoch: 1, to: 10, rows: []any{[]string{""}, []int32{3, 4}, []int64{5}, []int64{6}}, code: "DB001"},
		"repeatable read":                  {epoch: 1, to: 10, rows: none, isolation: pgx.RepeatableRead, code: "DB001"},
		"serializable, though stale epoch": {epoch: 0, to: 10, rows: none, isolation: pgx.Serializable, code: "DB001"},
	} {
		t.Run(name, func(t *testing.T) {
			mustExec(t, pool, `TRUNCATE effects, daybook.checkpoints, daybook.segments, daybook.consumers CASCADE`)
			prepareSegment(t, pool, "view", 0)
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: c.isolation})
			if err != nil {
				t.Fatal(err)
			}
			// Effects, the fence and the commit in one round trip.
			b := &pgx.Batch{}
			var commit string
			b.Queue(`INSERT INTO effects VALUES (1)`)
			b.Queue(commitBatchSQL, append([]any{c.epoch, c.parked, c.from, c.to}, c.rows...)...)
			b.Queue(`COMMIT`).Exec(func(tag pgconn.CommandTag) error { commit = tag.String(); return nil })
			err = tx.SendBatch(t.Context(), b).Close()
			effects := value[int](t, pool, `SELECT count(*) FROM effects`)
			floor := value[int64](t, pool, `SELECT floor FROM daybook.segments`)
			applied := value[int64](t, pool, `SELECT coalesce((SELECT applied FROM daybook.checkpoints WHERE topic = '' AND partition = 3), 0)`)
			others := value[int](t, pool, `SELECT count(*) FROM daybook.checkpoints WHERE NOT (topic = '' AND partition = 3) AND applied = 11`)
			rows := value[int](t, pool, `SELECT count(*) FROM daybook.checkpoints`)
			if wantRows := c.more + 1; c.gone && rows != 0 || !c.gone && rows != wantRows || others != c.more {
				t.Errorf("%d rows of checkpoints, %d of them new", rows, others)
			}
			if c.code == "" {
				want := int64(5)
				for i, topic := range c.rows[0].([]string) {
					if c.rows[1].([]int32)[i] == 3 && topic == "" {
						want = c.rows[3].([]int64)[i]
					}
				}
				if c.gone {
					want = 0
				}
				if err != nil || commit != "COMMIT" || effects != 1 || floor != c.to || applied != want {
					t.Errorf("%v, %s, %d effects, floor %d, applied %d", err, commit, effects, floor, applied)
				}
				return
			}
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != c.code || !strings.HasPrefix(pgErr.Message, "daybook: ") {
				t.Errorf("got %v, want %s", err, c.code)
			}
			if effects != 0 || floor != 0 || applied != 5 {
				t.Errorf("%d effects, floor %d, applied %d after a refusal", effects, floor, applied)
			}
			// A COMMIT that follows in a statement of its own is answered by a rollback.
			if err := conn.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)); err == nil {
				t.Error("the transaction that failed takes statements")
			}
			if tag, err := conn.Exec(t.Context(), `COMMIT`); err != nil || tag.String() != "ROLLBACK" {
				t.Errorf("COMMIT is answered by %s, %v", tag, err)
			}
		})
	}
}

// The partition of a key is the same in SQL and Go, or a reader would look for a stream's events in the wrong place.
func TestPartitionOfInSQLAndGo(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMaxConns(1))
	in := func(key string, n int) int {
		return value[int](t, pool, `SELECT daybook.partition_of($1, $2)`, key, n)
	}
	for key, want := range map[string]int{"": 37, "a": 12, "foobar": 40} { // FNV-1a: cbf29ce484222325, af63dc4c8601ec8c, 85944171f73967e8
		if got, also := in(key, 64), eventstore.PartitionOf(key, 64); got != want || also != want {
			t.Errorf("partition of %q is %d in SQL and %d in Go, want %d", key, got, also, want)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		key := strings.ReplaceAll(rapid.String().Draw(rt, "key"), "\x00", "")
		n := rapid.IntRange(1, 4096).Draw(rt, "n")
		if got, want := in(key, n), eventstore.PartitionOf(key, n); got != want {
			rt.Fatalf("partition of %q of %d is %d in SQL and %d in Go", key, n, got, want)
		}
	})
	for _, key := range []string{strings.Repeat("é", 256), "account-ü", fmt.Sprint(1<<62 - 1)} {
		if got, want := in(key, 4096), eventstore.PartitionOf(key, 4096); got != want {
			t.Errorf("partition of %q is %d in SQL and %d in Go", key, got, want)
		}
	}
}
