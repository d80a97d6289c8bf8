package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

var errTooLarge = errors.New("the message is larger than the broker takes")

// choosy is a broker's publisher that refuses some payloads, and remembers of which kind what it took was.
type choosy struct {
	message.Publisher
	mu      sync.Mutex
	refuses []string
	tried   map[string]int
	took    []string // kinds of what it took of key "bad", with payloads
}

func (c *choosy) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := c.look(m); err != nil {
			return err
		}
		if err := c.Publisher.Publish(topic, m); err != nil {
			return err
		}
	}
	return nil
}

func (c *choosy) look(m *message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := m.Metadata[outbox.HeaderKind]
	if payload := string(m.Payload); kind == "message" {
		c.tried[payload]++
		if slices.Contains(c.refuses, payload) {
			return errTooLarge
		}
	}
	if m.Metadata[outbox.HeaderPartitionKey] == "bad" {
		c.took = append(c.took, kind+" "+string(m.Payload))
	}
	return nil
}

func (c *choosy) refuse(payloads ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = payloads
}

func (c *choosy) attempts(payload string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tried[payload]
}

// shop is the service that publishes: a store in a database that the inbox cannot see, with a relay.
type shop struct {
	*world
	store   *postgres.Store
	shop    *pgxpool.Pool
	letters *deadletter.Letters
	broker  *choosy
}

func newShop(t *testing.T, w *world, publisher message.Publisher) *shop {
	t.Helper()
	pool := granted(t, postgrestest.New(t))
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	letters, err := deadletter.New(pool, deadletter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &shop{w, store, pool, letters, &choosy{Publisher: publisher, tried: map[string]int{}}}
}

// granted gives a pool on the same database as a role that has what the script of the grants gives, and nothing else.
func granted(t *testing.T, owner *pgxpool.Pool, more ...string) *pgxpool.Pool {
	t.Helper()
	role, password := "app-"+uuid.NewString()[:8], uuid.NewString()
	quoted := pgx.Identifier{role}.Sanitize()
	grants, err := postgres.GrantsScript("daybook", role)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := owner.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec("CREATE ROLE " + quoted + " LOGIN PASSWORD '" + password + "'")
	exec(grants)
	for _, sql := range more {
		exec(sql + " TO " + quoted)
	}
	cfg, err := pgxpool.ParseConfig(postgrestest.URL(owner))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.User, cfg.ConnConfig.Password, cfg.MaxConns = role, password, owner.Config().MaxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		exec("DROP OWNED BY " + quoted) // roles belong to the server, which may live longer than the test
		exec("DROP ROLE " + quoted)
	})
	return pool
}

func (s *shop) relay() *outbox.Relay {
	s.t.Helper()
	relay, err := outbox.NewRelay(s.shop, s.store.Outbox(), s.broker, outbox.Config{
		HeadTopics: []string{topic}, Classify: func(error) eventstore.FailureKind { return eventstore.Permanent },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the relay's Run: %v", err)
		}
	})
	return relay
}

// publish enqueues a message of each key in turn, from number from to number to: "bad 1", "good 1", "bad 2" and so on.
func (s *shop) publish(from, to int, keys ...string) {
	s.t.Helper()
	var all []outbox.Message
	for n := from; n <= to; n++ {
		for _, key := range keys {
			all = append(all, outbox.Message{Topic: topic, Key: key, Type: "order.noted", Data: fmt.Appendf(nil, "%s %d", key, n)})
		}
	}
	err := pgx.BeginFunc(context.Background(), s.shop, func(tx pgx.Tx) error { return outbox.Enqueue(context.Background(), tx, all...) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.store.Wake()
}

// gets waits until the inbox has applied so many messages of a key, and compares them.
func (s *shop) gets(key string, numbers ...int) {
	s.t.Helper()
	var want []string
	for _, n := range numbers {
		want = append(want, fmt.Sprint(key, " ", n))
	}
	var got []string
	s.eventually(fmt.Sprintf("%s is applied", want), func() bool {
		got = ask[[]string](s.world, "SELECT coalesce(array_agg(data ORDER BY n), '{}') FROM applied WHERE key = $1", key)
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		s.t.Errorf("key %s: applied %v, want %v", key, got, want)
	}
}

func (s *shop) aside(state string) (n int) {
	s.t.Helper()
	const sql = "SELECT count(*)::int FROM daybook.parked WHERE consumer = 'outbox-relay' AND ($1 = '' OR state = $1)"
	if err := s.shop.QueryRow(context.Background(), sql, state).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// letter is the one of key "bad" that waits for people.
func (s *shop) letter() deadletter.Letter {
	s.t.Helper()
	var page deadletter.Page
	s.eventually("a letter of the relay waits for people", func() bool {
		var err error
		page, err = s.letters.List(context.Background(), deadletter.Filter{Consumer: "outbox-relay", State: deadletter.Parked})
		return err == nil && len(page.Letters) == 1
	})
	return page.Letters[0]
}

func (s *shop) redrive(l deadletter.Letter) {
	s.t.Helper()
	plan, err := s.letters.Redrive(context.Background(), deadletter.One(l.ID), deadletter.Options{Actor: "ann", Reason: "mended"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the plan has ended", func() bool {
		p, err := s.letters.Plan(context.Background(), plan.ID)
		return err == nil && !p.Running()
	})
}

// One message is refused, on its way from a store through a real relay and a broker into the inbox of a service that has no
// access to that store. Its key waits, with a note in the inbox that the next owner has too; all other keys of its partition
// go on at once. A redrive that is refused again changes nothing; one that is not brings everything of the key, in order. A
// message that is discarded never comes, and what is behind it does. Nothing takes effect twice. R-DL10: relay, inbox and
// people are roles that may not make anything, on stores that were only migrated.
func TestARefusedMessageFromTheRelayToTheInbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	t.Cleanup(func() {
		if err := channel.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newShop(t, w, channel)
	service := granted(t, w.pool, "GRANT INSERT ON applied")
	var inboxes []*Inbox
	open := func() (stop func()) {
		cfg := w.config()
		cfg.Partitions = 64
		in, err := New(service, channel, cfg, write)
		if err != nil {
			t.Fatal(err)
		}
		inboxes = append(inboxes, in)
		stop = w.start(in)
		w.eventually("the inbox has subscribed", func() bool { return in.Lag().Subscribed })
		return stop
	}
	stop := open()
	good := ""
	for i := 0; good == ""; i++ { // a neighbour in the same partition
		if key := fmt.Sprint("good-", i); eventstore.PartitionOf(key, 64) == eventstore.PartitionOf("bad", 64) {
			good = key
		}
	}
	s.broker.refuse("bad 2")
	s.publish(1, 3, "bad", good)
	relay := s.relay()

	s.gets(good, 1, 2, 3)
	s.gets("bad", 1)
	if l := s.letter(); l.Sequence != "bad" || l.Topic != topic || l.Attempts != 1 {
		t.Errorf("the letter is %+v", l)
	}
	if h := relay.Health(t.Context()); !h.Ready || h.State != "degraded" || !strings.Contains(h.Reason, "1 sequences are set aside") || !strings.Contains(h.Reason, "1 wait for people") {
		t.Errorf("the relay's health is %+v", h)
	}
	s.publish(4, 4, "bad", good)
	s.gets(good, 1, 2, 3, 4)
	s.eventually("the inbox keeps three places", func() bool { return w.awaited() == 3 })
	if h := inboxes[0].Health(t.Context()); !h.Ready || h.State != "degraded" || !strings.Contains(h.Reason, "1 drain") {
		t.Errorf("the inbox's health is %+v", h)
	}

	s.redrive(s.letter()) // too early: back in the list after one attempt
	if l := s.letter(); s.broker.attempts("bad 2") != 2 || l.Sequence != "bad" {
		t.Errorf("%d attempts, the letter is %+v", s.broker.attempts("bad 2"), l)
	}
	s.gets("bad", 1)
	stop()
	stop = open() // the next owner knows what waits
	s.broker.refuse("bad 6")
	s.redrive(s.letter())
	s.gets("bad", 1, 2, 3, 4)
	s.eventually("the key is released", func() bool { return s.aside("") == 0 && w.awaited() == 0 })

	s.publish(5, 8, "bad", good)
	s.gets(good, 1, 2, 3, 4, 5, 6, 7, 8)
	s.gets("bad", 1, 2, 3, 4, 5)
	s.eventually("the inbox keeps three places", func() bool { return w.awaited() == 3 })
	if _, err := s.letters.Discard(t.Context(), deadletter.One(s.letter().ID), deadletter.Options{Actor: "ann", Reason: "a test order"}); err != nil {
		t.Fatal(err)
	}
	s.gets("bad", 1, 2, 3, 4, 5, 7, 8)
	s.eventually("the key is released", func() bool { return s.aside("") == 0 && w.awaited() == 0 })
	s.eventually("the relay is well", func() bool { return relay.Health(t.Context()).State == "running" })
	s.publish(9, 9, "bad", good) // and both go on as before
	s.gets("bad", 1, 2, 3, 4, 5, 7, 8, 9)
	s.gets(good, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	if n := ask[int](w, "SELECT (SELECT count(*) FROM daybook.parked) + (SELECT count(*) FROM daybook.letters) + (SELECT count(*) FROM daybook.held)"); n != 0 {
		t.Errorf("%d rows are left over: %s", n, w.dump())
	}
	stop()

	// What the broker saw of the key: markers in place of what was set aside, and markers once more before what came later.
	markers, messages := 0, 0
	for _, took := range s.broker.took {
		switch {
		case took == "skip ":
			markers++
		case took == "message bad 2", took == "message bad 3", took == "message bad 4", took == "message bad 7", took == "message bad 8":
			messages++
		case took == "message bad 6":
			t.Error("what was discarded has been published")
		}
	}
	if messages != 5 || markers < 2*3+messages {
		t.Errorf("%d redriven messages and %d markers were published: %v", messages, markers, s.broker.took)
	}
}
