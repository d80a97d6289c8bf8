package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// readSequence reads all pages of a sequence and checks what each promises.
func readSequence(t testing.TB, log *postgres.Log, key string, after, upTo eventstore.Position, f eventstore.Filter, limit int) []eventstore.RecordedEvent {
	t.Helper()
	var list []eventstore.RecordedEvent
	for pages := 0; after.Before(upTo); pages++ {
		page, err := log.ReadSequence(context.Background(), eventstore.PartitionOf(key, 64), key, after, upTo, f, limit)
		if err != nil {
			t.Fatalf("sequence %q after %s: %v", key, after, err)
		}
		if len(page.Events) > limit || !page.Through.After(after) || page.Through.After(upTo) || pages > 10_000 {
			t.Fatalf("sequence %q after %s up to %s: %d events, through %s", key, after, upTo, len(page.Events), page.Through)
		}
		for _, e := range page.Events {
			if !e.Position.After(after) || e.Position.After(page.Through) {
				t.Fatalf("%s lies outside of (%s, %s], or out of order", e.Position, after, page.Through)
			}
			after = e.Position
		}
		list, after = append(list, page.Events...), page.Through
	}
	return list
}

// A sequence is what has its key, in the order of the log, whichever streams it is in, and whatever pages it is read in.
func TestReadSequenceAgreesWithTheLog(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"one range": 10_000_000, "many ranges": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: size}))
			store := openStore(t, pool, postgres.Config{})
			rng := rand.New(rand.NewPCG(7, uint64(size)))
			// order-1 and order-2 are sequences of their own, order-1 with other streams too; "many" is one of 70 streams.
			keyOf := func(stream string) string {
				switch {
				case strings.HasPrefix(stream, "line-"):
					return "many"
				case strings.HasPrefix(stream, "bill-"):
					return "order-1"
				}
				return ""
			}
			streams := []string{"order-1", "order-2", "bill-1", "bill-2", "bill-3"}
			for i := range 70 {
				streams = append(streams, fmt.Sprint("line-", i))
			}
			appends := 400
			if testscale.Factor() < 1 {
				appends = 200
			}
			for i := range appends {
				name := streams[rng.IntN(len(streams))]
				if i%2 == 0 || i < len(streams) { // the few get most
					name = streams[i%5]
					if i < len(streams) {
						name = streams[i]
					}
				}
				id, err := eventstore.ParseStreamID(name)
				if err != nil {
					t.Fatal(err)
				}
				events := make([]eventstore.EventData, 1+rng.IntN(4))
				for k := range events {
					events[k] = newEvent(fmt.Sprint(i))
					events[k].Type = fmt.Sprint("t", rng.IntN(3))
				}
				mustAppend(t, store, eventstore.Write{Stream: id, Expected: eventstore.AnyVersion, PartitionKey: keyOf(name), Events: events})
			}
			all := logEvents(t, store, eventstore.Position{})
			end := all[len(all)-1].Position
			for _, key := range []string{"order-1", "order-2", "bill-1", "many", "nothing"} {
				for _, f := range []eventstore.Filter{{}, {Types: []string{"t1"}}, {Categories: []string{"bill", "line"}, Types: []string{"t0", "t2"}}} {
					for _, limit := range []int{1, 3, 1000} {
						after := eventstore.PositionAt(rng.Int64N(end.Ordinal()))
						upTo := eventstore.PositionAt(after.Ordinal() + 1 + rng.Int64N(end.Ordinal()-after.Ordinal()))
						if limit == 1000 {
							after, upTo = eventstore.Position{}, end
						}
						var want []eventstore.RecordedEvent
						for _, e := range all {
							if e.PartitionKey == key && e.Position.After(after) && !e.Position.After(upTo) && matches(f, e) {
								want = append(want, e)
							}
						}
						got := readSequence(t, store.Log(), key, after, upTo, f, limit)
						if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b eventstore.Position) bool { return a == b })); diff != "" {
							t.Errorf("%q in (%s, %s], %+v, limit %d:\n%s", key, after, upTo, f, limit, diff)
						}
						if limit == 1000 && len(want) == 0 && key != "nothing" && key != "bill-1" && len(f.Types) == 0 {
							t.Errorf("%q has no events: the test shows nothing", key)
						}
					}
				}
			}
		})
	}
}

func matches(f eventstore.Filter, e eventstore.RecordedEvent) bool {
	in := func(list []string, v string) bool {
		return len(list) == 0 || strings.Contains(","+strings.Join(list, ",")+",", ","+v+",")
	}
	return in(f.Types, e.Type) && in(f.Categories, e.Stream.Category)
}

// A zero upTo is the safe head, and nothing is read beyond it, whatever is asked for.
func TestReadSequenceStaysBelowTheSafeHead(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	id := newStream("order")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1"), newEvent("2")))
	tx := beginTx(t, pool)
	mustAppend(t, store.WithTx(tx), eventstore.To(newStream("other"), eventstore.NoStream, newEvent("x")))
	mustAppend(t, store, eventstore.To(id, eventstore.Exactly(2), newEvent("3")))
	key := id.String()
	read := func(upTo int64) eventstore.Page {
		t.Helper()
		page, err := store.Log().ReadSequence(t.Context(), eventstore.PartitionOf(key, 64), key, eventstore.Position{}, eventstore.PositionAt(upTo), eventstore.Filter{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	for _, upTo := range []int64{0, 2, 4, 100} {
		if page := read(upTo); len(page.Events) != 2 || page.Through.Ordinal() != 2 {
			t.Errorf("up to %d: %d events through %s, while position 3 is open", upTo, len(page.Events), page.Through)
		}
	}
	mustCommit(t, tx)
	if page := read(0); len(page.Events) != 3 || page.Through.Ordinal() != 4 {
		t.Errorf("%d events through %s", len(page.Events), page.Through)
	}
	var history *eventstore.HistoryError
	if _, err := store.Log().ReadSequence(t.Context(), 0, "k", eventstore.PositionAt(9), eventstore.Position{}, eventstore.Filter{}, 1); !errors.As(err, &history) {
		t.Errorf("beyond the end: %v", err)
	}
	for field, call := range map[string]func() error{
		"limit": func() error {
			_, err := store.Log().ReadSequence(t.Context(), 0, "k", eventstore.Position{}, eventstore.Position{}, eventstore.Filter{}, 0)
			return err
		},
		"sequence": func() error {
			_, err := store.Log().ReadSequence(t.Context(), 0, "", eventstore.Position{}, eventstore.Position{}, eventstore.Filter{}, 1)
			return err
		},
		"partition": func() error {
			_, err := store.Log().ReadSequence(t.Context(), 64, "k", eventstore.Position{}, eventstore.Position{}, eventstore.Filter{}, 1)
			return err
		},
	} {
		var invalid *eventstore.InvalidError
		if err := call(); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A page of a stream with a long history behind it, and with much else between its events, touches little: the same few
// pages of memory with ten times as much of both, with plans made with and without the values.
func TestReadSequenceCostsWhatItReads(t *testing.T) {
	t.Parallel()
	touched := func(rows int, mode string) int {
		pool := postgrestest.New(t)
		store := openStore(t, pool, postgres.Config{})
		long := eventstore.NewStreamID("order", "1")
		mustAppend(t, store, eventstore.To(long, eventstore.NoStream, manyEvents(rows)...))
		from := value[int64](t, pool, `SELECT max(position) FROM daybook.events`)
		mustAppend(t, store, eventstore.To(newStream("other"), eventstore.NoStream, manyEvents(rows)...))
		mustAppend(t, store, eventstore.To(long, eventstore.AnyVersion, newEvent("a"), newEvent("b")))
		end := value[int64](t, pool, `SELECT max(position) FROM daybook.events`)
		mustExec(t, pool, `VACUUM ANALYZE`)
		conn, err := store.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		statements := postgres.Statements("daybook")
		mustExec(t, tx, statements["sequenceSettings"])
		mustExec(t, tx, `SET LOCAL plan_cache_mode = `+mode)
		mustExec(t, tx, `PREPARE explained (bigint, bigint, bigint, text, bigint, text[], text[], bigint) AS `+statements["sequence"], pgx.QueryExecModeSimpleProtocol)
		rowsOf, err := tx.Query(t.Context(), fmt.Sprintf(`EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE explained(%d, %d, 100, 'order-1', %d, '{}', '{}', 500)`,
			from, end, eventstore.PartitionOf("order-1", 64)), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rowsOf, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		if tables := forbiddenScans(plan); len(tables) > 0 {
			t.Errorf("%s: reads all of %v:\n%s", mode, tables, plan)
		}
		var hit, read int
		for _, line := range lines {
			if strings.Contains(line, "Buffers: shared") {
				for _, word := range strings.Fields(line) {
					_, _ = fmt.Sscanf(word, "hit=%d", &hit)
					_, _ = fmt.Sscanf(word, "read=%d", &read)
				}
				break
			}
		}
		if hit+read == 0 || !strings.Contains(plan, "rows=2") {
			t.Fatalf("%s: nothing was read:\n%s", mode, plan)
		}
		return hit + read
	}
	for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
		small, large := touched(1000, mode), touched(10_000, mode)
		t.Logf("%s: %d buffers, %d with ten times as much", mode, small, large)
		if large > small+80 || large > 300 { // the bisection takes four steps more
			t.Errorf("%s: %d buffers, %d with ten times as much", mode, small, large)
		}
	}
}
