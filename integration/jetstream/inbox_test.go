package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/integration/brokertest"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/outbox/deadletter"
	"github.com/daybook-go/daybook/outbox/inbox"
)

const inboxPatience = time.Minute

// shops are a service that publishes and one that follows with an inbox, each with a database of its own.
type shops struct {
	t                  *testing.T
	url                string
	publishes, follows *pgxpool.Pool
	store              *postgres.Store
}

// running runs something until stop is called.
func (s *shops) running(what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("%s: %v", what, err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *shops) relay() (stop func()) {
	s.t.Helper()
	p, err := NewPublisher(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	relay, err := outbox.NewRelay(s.publishes, s.store.Outbox(), p, outbox.Config{
		Classify: Classify, HeadTopics: []string{brokertest.Topic}, Lease: time.Second,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.running("relay", func(ctx context.Context) error { return errors.Join(relay.Run(ctx), p.Close()) })
}

func (s *shops) inbox() (stop func()) {
	s.t.Helper()
	durable, err := NewDurable(s.url, "stock")
	if err != nil {
		s.t.Fatal(err)
	}
	note := func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		_, err := tx.Exec(ctx, "INSERT INTO noted (key, number) VALUES ($1, substring(convert_from($2, 'UTF8') FROM '^[0-9]+')::int)", m.PartitionKey, m.Data)
		return err
	}
	in, err := inbox.New(s.follows, durable, inbox.Config{Name: "stock", Topic: brokertest.Topic, Lease: time.Second, Subscriptions: 4}, note)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.running("inbox", func(ctx context.Context) error { return errors.Join(in.Run(ctx), durable.Close()) })
}

// publish enqueues a message of each key; that of key "key-0" with number 20 is larger than the broker takes.
func (s *shops) publish(number, keys int) {
	s.t.Helper()
	err := pgx.BeginFunc(s.t.Context(), s.publishes, func(tx pgx.Tx) error {
		var all []outbox.Message
		for k := range keys {
			data := fmt.Appendf(nil, "%d ", number)
			if k == 0 && number == 20 {
				data = append(data, bytes.Repeat([]byte("x"), 20_000)...)
			}
			all = append(all, outbox.Message{Topic: brokertest.Topic, Key: fmt.Sprint("key-", k), Type: "order.noted", Data: data})
		}
		return outbox.Enqueue(s.t.Context(), tx, all...)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.store.Wake()
}

func (s *shops) until(what string, pool *pgxpool.Pool, sql string, args ...any) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(inboxPatience); ; <-tick.C {
		var got, want int
		if err := pool.QueryRow(s.t.Context(), sql, args...).Scan(&got, &want); err != nil {
			s.t.Fatalf("%s: %v", sql, err)
		}
		if got == want {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: %d and not %d within %v", what, got, want, inboxPatience)
		}
	}
}

// A service that has the broker only, and nothing to make good from: relays and inboxes end and are started again at any
// time, the server is restarted, and one message is larger than it takes. Every message takes effect once and in the order
// of its key; the key of the one that is refused waits, alone, and goes on when that is discarded.
func TestInbox(t *testing.T) {
	t.Parallel()
	const keys, numbers, refused = 40, 60, 20
	opts := &server.Options{Port: server.RANDOM_PORT, StoreDir: t.TempDir(), MaxPayload: 10_000}
	broker, err := start(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { broker.Close() }()
	if err := MakeStream(t.Context(), broker.URL(), brokertest.Topic, 1); err != nil {
		t.Fatal(err)
	}
	s := &shops{t: t, url: broker.URL(), publishes: postgrestest.New(t), follows: postgrestest.New(t)}
	if s.store, err = postgres.New(t.Context(), s.publishes, postgres.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.store.Close)
	if _, err := s.follows.Exec(t.Context(), "CREATE TABLE noted (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text, number int)"); err != nil {
		t.Fatal(err)
	}
	const noted = "SELECT (SELECT count(*)::int FROM noted), $1::int"
	stopRelay, stopInbox := s.relay(), s.inbox()
	for number := 1; number <= numbers; number++ {
		s.publish(number, keys)
		switch {
		case number == 30:
			opts.Port = portOf(t, broker.inner.Addr().String())
			broker.Close()
			if broker, err = start(opts); err != nil {
				t.Fatal(err)
			}
		case number%15 == 0:
			stopRelay()
			stopRelay = s.relay()
		case number == 18 || number == 42: // what the one before had in hand comes again when AckWait is over
			s.until("about half is applied", s.follows, "SELECT least(count(*)::int, $1::int), $1::int FROM noted", keys*number/2)
			stopInbox()
			stopInbox = s.inbox()
		}
	}
	s.until("all is applied but what waits", s.follows, noted, keys*numbers-(numbers-refused+1))
	s.until("its key waits in the inbox", s.follows, "SELECT count(*)::int, $1::int FROM daybook.held WHERE NOT present", numbers-refused+1)
	letters, err := deadletter.New(s.publishes, deadletter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := letters.List(t.Context(), deadletter.Filter{State: deadletter.Parked})
	if err != nil || len(page.Letters) != 1 || page.Letters[0].Sequence != "key-0" || page.Letters[0].Attempts != 1 {
		t.Fatalf("letters: %+v, %v", page.Letters, err)
	}
	if _, err := letters.Discard(t.Context(), deadletter.One(page.Letters[0].ID), deadletter.Options{Actor: "ann", Reason: "too large"}); err != nil {
		t.Fatal(err)
	}
	s.until("all is applied", s.follows, noted, keys*numbers-1)
	s.until("nothing waits", s.follows, "SELECT (SELECT count(*)::int FROM daybook.held) + (SELECT count(*)::int FROM daybook.parked), 0")
	s.until("nothing waits at the relay", s.publishes, "SELECT count(*)::int, 0 FROM daybook.parked")
	s.until("order", s.follows, `SELECT count(*)::int, 0 FROM (SELECT number, lag(number) OVER (PARTITION BY key ORDER BY n) AS before FROM noted) x
		WHERE number <= before`)
	s.until("each once", s.follows, "SELECT count(DISTINCT (key, number))::int, $1::int FROM noted", keys*numbers-1)
	s.until("not what was discarded", s.follows, "SELECT count(*)::int, 0 FROM noted WHERE key = 'key-0' AND number = $1", refused)
	stopRelay()
	stopInbox()
}

func portOf(t *testing.T, address string) (port int) {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return port
}
