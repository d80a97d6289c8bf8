package projection

import (
	"context"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// What others may see of additions, and a message that is no event.
type (
	announced struct{ Text string }
	mailed    struct{ N int64 }
)

var publicEvents = eventstore.NewCatalog(eventstore.TypeOf[announced]("public.announced"), eventstore.TypeOf[mailed]("public.mailed"))

// published writes down what a topic of other types brings, once.
func published(name string) Projection {
	insert := func(ctx context.Context, tx pgx.Tx, position eventstore.Position, text string) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s (position, text) VALUES ($1, $2)", name), position.Ordinal(), text)
		return err
	}
	return Projection{
		Name: name, Version: 1, Events: publicEvents,
		Setup: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (n bigint GENERATED ALWAYS AS IDENTITY, position bigint UNIQUE, text text)", name))
			return err
		},
		Handlers: []Handler{
			Handle(func(ctx context.Context, tx pgx.Tx, e Event[announced]) error {
				return insert(ctx, tx, e.Position, e.Payload.Text)
			}),
			Handle(func(ctx context.Context, tx pgx.Tx, e Event[mailed]) error {
				return insert(ctx, tx, e.Position, fmt.Sprintf("%s %d", e.Metadata.Headers["to"], e.Payload.N))
			}),
		},
	}
}

// A route with a filter and a mapping, and messages of a transaction's own, arrive at a projection of public types: in
// order per key, and once, from the broker as from the outbox.
func TestStreamOfPublicMessages(t *testing.T) {
	t.Parallel()
	p := published("announcements")
	route := eventstore.Route{
		Topic: "public", Types: []string{"test.added"},
		Where: func(_ eventstore.StreamID, e eventstore.EventData) bool {
			payload, err := testEvents.Decode(eventstore.RecordedEvent{EventData: e})
			return err == nil && payload.(added).N%2 == 0
		},
		Map: func(s eventstore.StreamID, e eventstore.EventData) (eventstore.EventData, error) {
			payload, err := testEvents.Decode(eventstore.RecordedEvent{EventData: e})
			if err != nil {
				return eventstore.EventData{}, err
			}
			return publicEvents.Encode(announced{fmt.Sprintf("%s %d", s.ID, payload.(added).N)})
		},
	}
	w := openRoutedWorld(t, postgrestest.New(t), []eventstore.Route{route}, p)
	want := map[string][]string{}
	expect := func(key string, n int64) { want[key] = append(want[key], fmt.Sprintf("%s %d", key, n)) }
	enqueue := func(key string, commit bool, numbers ...int64) {
		t.Helper()
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }() // after the commit it does nothing
		for _, n := range numbers {
			data, err := publicEvents.Encode(mailed{n})
			if err == nil {
				err = outbox.Enqueue(t.Context(), tx, outbox.Message{
					Topic: "public", Key: key, Type: data.Type, SchemaVersion: data.SchemaVersion, ContentType: data.ContentType, Data: data.Data,
					Metadata: eventstore.Metadata{Headers: map[string]string{"to": key}},
				})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !commit {
			return
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, n := range numbers {
			expect(key, n)
		}
	}
	round := func(from int64) {
		for n := from; n < from+20; n += 4 {
			w.append("a", added{n}, added{n + 1}, removed{n})
			w.append("b", added{n + 2}, added{n + 3}, other{"not for others"})
			if n%2 == 0 {
				expect("a", n)
				expect("b", n+2)
			}
			enqueue("x", true, n, n+1)
			enqueue("y", false, n)
			enqueue("y", true, n+2)
		}
	}
	check := func() {
		t.Helper()
		total := 0
		for _, list := range want {
			total += len(list)
		}
		livetest.Eventually(t, "everything has arrived", func() bool { return ask[int](w.world, "SELECT count(*)::int FROM announcements") >= total })
		rows, err := w.pool.Query(t.Context(), "SELECT text FROM announcements ORDER BY n")
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for _, text := range texts {
			key, _, _ := strings.Cut(text, " ")
			got[key] = append(got[key], text)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	round(0) // read from the outbox
	s := w.subscription(w.channel, outbox.SubscriptionConfig{Topic: "public", Silence: far})
	stop := w.follow(s, Config{}, p)
	w.run(w.relay(w.channel, outbox.Config{}))
	check()
	round(100) // brought by the broker
	check()
	if stats := s.Stats(); stats.Received == 0 || stats.Filled > 0 {
		t.Errorf("the broker did not bring it: %+v", stats)
	}
	stop()
	round(200)
	w.sent()
	w.follow(s, Config{}, p)
	check()
}
