package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// routes has a topic of everything, one of the events that say "x" anywhere, and one of messages made of some.
func routes() []eventstore.Route {
	return []eventstore.Route{
		{Topic: "all"},
		{Topic: "some", Where: func(_ eventstore.StreamID, e eventstore.EventData) bool { return strings.Contains(string(e.Data), "x") }},
		{
			Topic: "public", Categories: []string{"order"}, Types: []string{"test.happened"},
			Where: func(_ eventstore.StreamID, e eventstore.EventData) bool {
				return strings.HasSuffix(string(e.Data), "!")
			},
			Map: func(s eventstore.StreamID, e eventstore.EventData) (eventstore.EventData, error) {
				if string(e.Data) == "bad!" {
					return eventstore.EventData{}, errBad
				}
				return eventstore.EventData{Type: "public." + e.Type, ContentType: "text/plain", Data: []byte(s.ID + ":" + string(e.Data))}, nil
			},
		},
	}
}

var errBad = errors.New("cannot be mapped")

// readOutbox reads everything that q selects in pages of q.Limit, and checks what holds for every page.
func readOutbox(t testing.TB, outbox *postgres.Outbox, q eventstore.OutboxQuery) []eventstore.OutboxMessage {
	t.Helper()
	var all []eventstore.OutboxMessage
	for pages := 0; ; pages++ {
		page, err := outbox.ReadPage(context.Background(), q)
		if err != nil {
			t.Fatalf("read page: %v", err)
		}
		checkPage(t, q, page)
		all = append(all, page.Messages...)
		if page.Through == q.After {
			return all
		}
		q.After = page.Through
		if pages > 100_000 {
			t.Fatal("the outbox has no end")
		}
	}
}

func checkPage(t testing.TB, q eventstore.OutboxQuery, page eventstore.OutboxPage) {
	t.Helper()
	last := q.After
	for i, m := range page.Messages {
		if m.Position.Before(last) || m.Position == q.After {
			t.Errorf("after %s: message %d at %s comes after %s", q.After, i, m.Position, last)
		}
		if i > 0 && m.Position == last && m.Topic <= page.Messages[i-1].Topic {
			t.Errorf("topic %q after %q at %s", m.Topic, page.Messages[i-1].Topic, m.Position)
		}
		if i >= q.Limit && m.Position != last {
			t.Errorf("message %d of a page of %d", i+1, q.Limit)
		}
		last = m.Position
	}
	if page.Through.Before(last) || len(page.Messages) >= q.Limit && page.Through != last {
		t.Errorf("%d messages to %s, complete to %s", len(page.Messages), last, page.Through)
	}
}

// lines are messages in short: topic, position, stream and version or key, data.
func lines(list []eventstore.OutboxMessage) []string {
	texts := make([]string, len(list))
	for i, m := range list {
		place := m.PartitionKey
		if m.IsEvent() {
			place = fmt.Sprintf("%s/%d", m.Stream, m.Version)
		}
		texts[i] = fmt.Sprintf("%s %s %s %s %q", m.Position, m.Topic, place, m.Type, m.Data)
	}
	return texts
}

// withoutPositions leaves out what a sequence decides.
func withoutPositions(texts []string) []string {
	list := make([]string, len(texts))
	for i, text := range texts {
		_, list[i], _ = strings.Cut(text, " ")
	}
	return list
}

var everything = eventstore.OutboxQuery{Partition: eventstore.AllPartitions, Limit: 1000}

func TestRoutesPublishWhatIsAppended(t *testing.T) {
	t.Parallel()
	noHook := func(context.Context, pgx.Tx, []eventstore.RecordedEvent) error { return nil }
	for name, hooks := range map[string][]postgres.Hook{"plain": nil, "with hook": {noHook}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, pool := freshStore(t, postgres.Config{Routes: routes(), Hooks: hooks})
			a, b, c := eventstore.NewStreamID("order", "a"), eventstore.NewStreamID("bill", "b"), eventstore.NewStreamID("order", "c")
			ctx := eventstore.WithMetadata(t.Context(), eventstore.Metadata{Tenant: "acme", Headers: map[string]string{"h": "v"}})
			keyed := eventstore.To(c, eventstore.NoStream, newEvent("3!"))
			keyed.PartitionKey = "of c"
			var want []string
			add := func(texts ...string) { want = append(want, texts...) }
			do := func(appender eventstore.Appender, writes ...eventstore.Write) {
				t.Helper()
				if _, err := appender.Append(ctx, writes...); err != nil {
					t.Fatal(err)
				}
			}
			do(store, eventstore.To(a, eventstore.NoStream, newEvent("1x"), newEvent("2!"), newEvent("3x!")))
			add(`all order-a/1 test.happened "1x"`, `some order-a/1 test.happened "1x"`, `all order-a/2 test.happened "2!"`,
				`all order-a/3 test.happened "3x!"`, `some order-a/3 test.happened "3x!"`,
				`public order-a public.test.happened "a:2!"`, `public order-a public.test.happened "a:3x!"`)
			do(store, eventstore.To(a, eventstore.Exactly(3), newEvent("4")))
			add(`all order-a/4 test.happened "4"`)
			do(store, eventstore.To(b, eventstore.AnyVersion, newEvent("1!")), keyed, eventstore.To(a, eventstore.StreamExists, newEvent("5x"), newEvent("6!")))
			add(`all bill-b/1 test.happened "1!"`, `all order-c/1 test.happened "3!"`, `all order-a/5 test.happened "5x"`, `some order-a/5 test.happened "5x"`,
				`all order-a/6 test.happened "6!"`, `public of c public.test.happened "c:3!"`, `public order-a public.test.happened "a:6!"`)
			tx := beginTx(t, pool)
			do(store.WithTx(tx), eventstore.To(a, eventstore.Exactly(6), newEvent("7x")), eventstore.Check(b, eventstore.Exactly(1)))
			do(store.WithTx(tx), eventstore.To(c, eventstore.Exactly(1), newEvent("8!")))
			mustCommit(t, tx)
			add(`all order-a/7 test.happened "7x"`, `some order-a/7 test.happened "7x"`, `all order-c/2 test.happened "8!"`, `public of c public.test.happened "c:8!"`)

			got := readOutbox(t, store.Outbox(), everything)
			if diff := cmp.Diff(want, withoutPositions(lines(got))); diff != "" {
				t.Error(diff)
			}
			// A run of neighbours is one row.
			if n := value[int](t, pool, `SELECT count(*) FROM daybook.outbox WHERE topic = 'all'`); n != 7 {
				t.Errorf("%d rows of topic all, want one for each stream and append", n)
			}
			events := map[string]eventstore.RecordedEvent{}
			for _, e := range logEvents(t, store, eventstore.Position{}) {
				events[fmt.Sprintf("%s/%d", e.Stream, e.Version)] = e
			}
			for _, m := range got {
				if !m.IsEvent() {
					checkMapped(t, m, events)
				} else if diff := cmp.Diff(events[fmt.Sprintf("%s/%d", m.Stream, m.Version)], m.RecordedEvent, cmp.AllowUnexported(eventstore.Position{})); diff != "" {
					t.Errorf("a message differs from its event:\n%s", diff)
				}
			}
		})
	}
}

func checkMapped(t *testing.T, m eventstore.OutboxMessage, events map[string]eventstore.RecordedEvent) {
	t.Helper()
	for _, e := range events {
		if m.ID != uuid.NewSHA1(e.ID, []byte(m.Topic)) {
			continue
		}
		if m.PartitionKey != e.PartitionKey || m.Partition != e.Partition || !m.RecordedAt.Equal(e.RecordedAt) || !m.Stream.IsZero() || m.Version != 0 ||
			!cmp.Equal(m.Metadata, e.Metadata) || m.Metadata.Tenant != "acme" || m.SchemaVersion != 1 || m.ContentType != "text/plain" || m.Position == e.Position {
			t.Errorf("made of %+v: %+v", e, m)
		}
		return
	}
	t.Errorf("no event has led to %+v", m)
}

func TestRefusedAndRepeatedAppendsPublishNothing(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: routes()})
	a, b := eventstore.NewStreamID("order", "a"), eventstore.NewStreamID("order", "b")
	first := []eventstore.EventData{ownEvent("1x!"), ownEvent("2")}
	more := []eventstore.EventData{ownEvent("3!")}
	both := []eventstore.Write{eventstore.To(a, eventstore.Exactly(3), ownEvent("4!")), eventstore.To(b, eventstore.NoStream, ownEvent("1x!"))}
	mustAppend(t, store, eventstore.To(a, eventstore.NoStream, first...))
	mustAppend(t, store, eventstore.To(a, eventstore.Exactly(2), more...))
	mustAppend(t, store, both...)
	before := value[string](t, pool, `SELECT string_agg(o::text, E'\n' ORDER BY first_position, topic) FROM daybook.outbox o`)
	for what, writes := range map[string][]eventstore.Write{
		"a new stream": {eventstore.To(a, eventstore.NoStream, first...)}, "one stream": {eventstore.To(a, eventstore.Exactly(2), more...)}, "two streams": both,
	} {
		if r := mustAppend(t, store, writes...); !r.Repeated {
			t.Errorf("%s: not repeated", what)
		}
	}
	refused := func(what string, want error, writes ...eventstore.Write) {
		t.Helper()
		if _, err := store.Append(t.Context(), writes...); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("conflict on a new stream", eventstore.ErrConflict, eventstore.To(a, eventstore.NoStream, newEvent("x!")))
	refused("conflict", eventstore.ErrConflict, eventstore.To(a, eventstore.Exactly(1), newEvent("x!")))
	refused("conflict of one of two", eventstore.ErrConflict, eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x!")), eventstore.To(a, eventstore.Exactly(1), newEvent("x!")))
	refused("an error of Map", errBad, eventstore.To(a, eventstore.Exactly(4), newEvent("bad!")))
	mustExec(t, pool, `UPDATE daybook.streams SET closed = true WHERE stream_id = 'order-b'`)
	refused("closed", eventstore.ErrStreamClosed, eventstore.To(b, eventstore.Exactly(1), newEvent("x!")))
	tx := beginTx(t, pool)
	mustAppend(t, store.WithTx(tx), eventstore.To(a, eventstore.Exactly(4), newEvent("x!")))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := value[string](t, pool, `SELECT string_agg(o::text, E'\n' ORDER BY first_position, topic) FROM daybook.outbox o`); after != before {
		t.Errorf("the outbox was\n%s\nand is\n%s", before, after)
	}
}

func TestBadRoutesAreRefused(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	for name, list := range map[string][]eventstore.Route{"no topic": {{}}, "one topic twice": {{Topic: "a"}, {Topic: "a", Types: []string{"x"}}}} {
		_, err := postgres.New(t.Context(), pool, postgres.Config{Routes: list})
		var invalid *eventstore.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "Config.Routes") || invalid.Field != "Route.Topic" || invalid.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// insertMessage writes a message of its own as a program without this package would.
func insertMessage(t testing.TB, db execer, topic, key, data string) {
	t.Helper()
	mustExec(t, db, insertMessageSQL, topic, key, []byte(data))
}

const insertMessageSQL = `
INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, id, type, content_type, data)
SELECT n, n, daybook.partition_of($2, 64), $1, $2, gen_random_uuid(), 'test.command', 'text/plain', $3
  FROM (SELECT nextval('daybook.log_position') AS n OFFSET 0) x`

// Rows never cross a border of 4,096 positions, so whoever begins in the middle of a row finds it.
func TestRowsAreCutAtBlocks(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 100_000}))
	store := openStore(t, pool, postgres.Config{Routes: routes()})
	a, b := eventstore.NewStreamID("order", "a"), eventstore.NewStreamID("order", "b")
	mustExec(t, pool, `SELECT setval('daybook.log_position', 4090)`)
	mustAppend(t, store, eventstore.To(a, eventstore.NoStream, manyEvents(10)...)) // 4091 to 4100
	if got := value[string](t, pool, `SELECT string_agg(format('%s:%s-%s v%s-%s', topic, first_position, last_position, from_version, to_version), ' ' ORDER BY topic, first_position) FROM daybook.outbox`); got !=
		"all:4091-4095 v1-5 all:4096-4100 v6-10 some:4091-4095 v1-5 some:4096-4100 v6-10" {
		t.Errorf("rows are %s", got)
	}
	mustAppend(t, store, eventstore.To(a, eventstore.Exactly(10), manyEvents(5000)...))
	mustAppend(t, store, eventstore.To(b, eventstore.NoStream, manyEvents(2500)...), eventstore.To(newStream("other"), eventstore.NoStream, manyEvents(2500)...))
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.outbox WHERE topic = 'all'`); n < 6 || n > 10 {
		t.Errorf("%d rows for 10,010 events", n)
	}
	all := readOutbox(t, store.Outbox(), eventstore.OutboxQuery{Topic: "all", Partition: eventstore.AllPartitions, Limit: 700})
	events := logEvents(t, store, eventstore.Position{})
	if len(all) != len(events) {
		t.Fatalf("%d messages of %d events", len(all), len(events))
	}
	for i, m := range all {
		if m.Position != events[i].Position || m.ID != events[i].ID {
			t.Fatalf("message %d is at %s, the event at %s", i, m.Position, events[i].Position)
		}
	}
	// From every position, also in the middle of a row.
	for range 200 {
		i, limit := rand.IntN(len(all)-1), 1+rand.IntN(50)
		page, err := store.Outbox().ReadPage(t.Context(), eventstore.OutboxQuery{Topic: "all", Partition: eventstore.AllPartitions, After: all[i].Position, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		want := all[i+1 : min(i+1+limit, len(all))]
		if len(page.Messages) == 0 || page.Messages[0].ID != want[0].ID || len(page.Messages) != len(want) || page.Messages[len(want)-1].ID != want[len(want)-1].ID {
			t.Fatalf("after %s limit %d: %d messages, want %d", all[i].Position, limit, len(page.Messages), len(want))
		}
	}
	if _, err := pool.Exec(t.Context(), `INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, stream_id, from_version, to_version) VALUES (4095, 4096, 0, 't', 'k', 's-1', 1, 2)`); err == nil {
		t.Error("a row over a border was accepted")
	}
}

// Two appends draw positions in turns: their messages come in order of position, not row by row; and messages of two
// topics at one position are never parted.
func TestMessagesComeInOrderOfPosition(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	a, b := eventstore.NewStreamID("order", "a"), eventstore.NewStreamID("order", "b")
	mustAppend(t, store, eventstore.To(a, eventstore.NoStream, manyEvents(1)...), eventstore.To(b, eventstore.NoStream, manyEvents(1)...))
	// Interleaved by hand: a 11, 13, 15; b 12, 14, 16.
	for v := range 3 {
		for k, id := range []eventstore.StreamID{a, b} {
			mustExec(t, pool, `INSERT INTO daybook.events (position, version, id, partition, stream_id, type, data) VALUES ($1, $2, gen_random_uuid(), 7, $3, 't', '')`, 11+2*v+k, v+2, id.String())
		}
	}
	mustExec(t, pool, `SELECT setval('daybook.log_position', 20)`)
	for k, id := range []eventstore.StreamID{a, b} {
		for _, topic := range []string{"one", "two"} {
			mustExec(t, pool, `INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, stream_id, from_version, to_version)
			  VALUES ($1, $2, 7, $3, $4, $4, 2, 4)`, 11+k, 15+k, topic, id.String())
		}
	}
	insertMessage(t, pool, "one", "k", "command")
	want := []string{}
	for i := range 6 {
		for _, topic := range []string{"one", "two"} {
			want = append(want, fmt.Sprintf("%d %s order-%s/%d t \"\"", 11+i, topic, []string{"a", "b"}[i%2], i/2+2))
		}
	}
	want = append(want, `21 one k test.command "command"`)
	for limit := 1; limit <= len(want)+1; limit++ {
		q := everything
		q.Limit = limit
		if diff := cmp.Diff(want, lines(readOutbox(t, store.Outbox(), q))); diff != "" {
			t.Fatalf("limit %d:\n%s", limit, diff)
		}
	}
}

// Every selection gives its part of the whole, whatever the size of its pages and where they begin.
func TestOutboxPagesAgree(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: routes()})
	rng := rand.New(rand.NewPCG(1, 2))
	texts := []string{"1", "x", "!", "x!", "xx"}
	for range testscale.N(400) {
		switch rng.IntN(4) {
		case 0:
			insertMessage(t, pool, []string{"some", "commands"}[rng.IntN(2)], fmt.Sprint("k", rng.IntN(5)), "c")
		case 1:
			mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, newEvent(texts[rng.IntN(5)])))
		default:
			n := 1 + rng.IntN(9)
			list := make([]eventstore.EventData, n)
			for i := range list {
				list[i] = newEvent(texts[rng.IntN(len(texts))])
			}
			mustAppend(t, store, eventstore.To(eventstore.NewStreamID("order", fmt.Sprint(rng.IntN(4))), eventstore.AnyVersion, list...),
				eventstore.To(eventstore.NewStreamID("bill", fmt.Sprint(rng.IntN(4))), eventstore.AnyVersion, list...))
		}
	}
	all := readOutbox(t, store.Outbox(), everything)
	published := 0
	for _, e := range logEvents(t, store, eventstore.Position{}) {
		for _, r := range routes() {
			if r.Accepts(e.Stream, e.EventData) {
				published++
			}
		}
	}
	if own := value[int](t, pool, `SELECT count(*) FROM daybook.outbox WHERE type = 'test.command'`); len(all) != published+own || published < 100 || own < 5 {
		t.Fatalf("%d messages, want %d and %d of their own", len(all), published, own)
	}
	fresh := openStore(t, pool, postgres.Config{}) // knows its head from the start only
	for i := range 200 {
		q := eventstore.OutboxQuery{Partition: eventstore.AllPartitions, Limit: 1 + rng.IntN(20), After: all[rng.IntN(len(all))].Position}
		if rng.IntN(2) == 0 {
			q.Partition = rng.IntN(64)
			if rng.IntN(2) == 0 {
				q.Partition = all[rng.IntN(len(all))].Partition
			}
			if rng.IntN(2) == 0 {
				q.LastPartition = q.Partition + 1 + rng.IntN(20)
			}
		}
		if rng.IntN(2) == 0 {
			q.Topic = []string{"all", "some", "public", "commands", "none"}[rng.IntN(5)]
		}
		if rng.IntN(3) == 0 {
			q.UpTo = all[rng.IntN(len(all))].Position
		}
		if rng.IntN(5) == 0 {
			q.After = eventstore.Position{}
		}
		var want []eventstore.OutboxMessage
		for _, m := range all {
			if (q.Topic == "" || q.Topic == m.Topic) && m.Position.After(q.After) &&
				(q.Partition < 0 || q.Partition <= m.Partition && m.Partition <= max(q.Partition, q.LastPartition)) &&
				(q.UpTo.IsZero() || !m.Position.After(q.UpTo)) {
				want = append(want, m)
			}
		}
		reader := []*postgres.Store{store, fresh}[i%2].Outbox()
		if diff := cmp.Diff(lines(want), lines(readOutbox(t, reader, q))); diff != "" {
			t.Fatalf("%+v:\n%s", q, diff)
		}
	}
}

func TestOutboxRefusesBadQueries(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	outbox := store.Outbox()
	page, err := outbox.ReadPage(t.Context(), everything)
	if err != nil || len(page.Messages) != 0 || !page.Through.IsZero() || !page.Cleaned.IsZero() {
		t.Errorf("an empty store: %+v, %v", page, err)
	}
	if _, err := outbox.ReadPage(t.Context(), eventstore.OutboxQuery{}); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("no limit: %v", err)
	}
	for _, q := range []eventstore.OutboxQuery{
		{Partition: eventstore.AllPartitions, LastPartition: 3, Limit: 1}, {Partition: 5, LastPartition: 4, Limit: 1}, {LastPartition: 1 << 31, Limit: 1},
	} {
		var invalid *eventstore.InvalidError
		if _, err := outbox.ReadPage(t.Context(), q); !errors.As(err, &invalid) || invalid.Field != "OutboxQuery.LastPartition" {
			t.Errorf("%+v: %v", q, err)
		}
	}
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, manyEvents(3)...))
	q := everything
	q.After = eventstore.PositionAt(50)
	if _, err := outbox.ReadPage(t.Context(), q); !errors.Is(err, eventstore.ErrHistory) {
		t.Errorf("beyond the end: %v", err)
	}
	q.After = eventstore.PositionAt(2)
	q.UpTo = eventstore.PositionAt(1)
	if page, err := outbox.ReadPage(t.Context(), q); err != nil || page.Through != q.After {
		t.Errorf("up to what lies before: %+v, %v", page, err)
	}
	mustExec(t, pool, `UPDATE daybook.store SET outbox_cleaned = 3`)
	if page, err := outbox.ReadPage(t.Context(), everything); err != nil || page.Cleaned.Ordinal() != 3 || page.Through.Ordinal() != 3 {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestOutboxKnowsItsStore(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	outbox := store.Outbox()
	first := outbox.Epoch()
	current, all, err := outbox.Epochs(t.Context()) // the database was copied from a template, so it has had others
	if err != nil || current != first || first != store.Epoch() {
		t.Errorf("%s, %s, %v", current, all, err)
	}
	for range 3 {
		all = append(all, epochOf(t, pool))
		if _, err := postgres.SetEpoch(t.Context(), pool, "", postgres.EpochNew); err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.SetEpoch(t.Context(), pool, "", postgres.EpochKeep); err != nil {
			t.Fatal(err)
		}
	}
	current, earlier, err := outbox.Epochs(t.Context())
	if err != nil || current != epochOf(t, pool) || !slices.Equal(earlier, all) || outbox.Epoch() != first {
		t.Errorf("%s, %s, %v; want %s", current, earlier, err, all)
	}
	if outbox.Partitions() != 64 || outbox.Schema() != "daybook" {
		t.Errorf("%d partitions, schema %q", outbox.Partitions(), outbox.Schema())
	}
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, manyEvents(3)...))
	if head, err := outbox.SafeHead(t.Context()); err != nil || head.Ordinal() != 3 {
		t.Errorf("head %s, %v", head, err)
	}
}

func epochOf(t testing.TB, pool *pgxpool.Pool) uuid.UUID {
	t.Helper()
	info, err := postgres.ReadEpoch(context.Background(), pool, "")
	if err != nil {
		t.Fatal(err)
	}
	return info.Epoch
}

// A transaction that writes a message and nothing else is seen while nothing else happens, and waits for nobody's event;
// and one that commits late holds back what lies behind it.
func TestMessagesAloneAreSeen(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: routes()})
	outbox := store.Outbox()
	after := eventstore.Position{}
	next := func() []string {
		for {
			page, err := outbox.ReadPage(t.Context(), eventstore.OutboxQuery{Partition: eventstore.AllPartitions, After: after, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			after = page.Through
			if len(page.Messages) > 0 {
				return withoutPositions(lines(page.Messages))
			}
			if err := outbox.Wait(t.Context(), after); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 3 {
		insertMessage(t, pool, "commands", "k", fmt.Sprint(i))
		start := time.Now()
		if got := next(); !slices.Equal(got, []string{fmt.Sprintf(`commands k test.command "%d"`, i)}) {
			t.Errorf("got %q", got)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("seen after %s, the bound is 1 s", took)
		}
	}
	late := beginTx(t, pool)
	insertMessage(t, late, "commands", "late", "first")
	mustAppend(t, store, eventstore.To(eventstore.NewStreamID("order", "1"), eventstore.NoStream, newEvent("behind")))
	if page, err := outbox.ReadPage(t.Context(), eventstore.OutboxQuery{Partition: eventstore.AllPartitions, After: after, Limit: 10}); err != nil || len(page.Messages) > 0 || page.Through != after {
		t.Errorf("read past a message that is not committed: %+v, %v", page, err)
	}
	mustCommit(t, late)
	if got := next(); !slices.Equal(got, []string{`commands late test.command "first"`, `all order-1/1 test.happened "behind"`}) {
		t.Errorf("got %q", got)
	}
}
