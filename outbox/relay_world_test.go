package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

// relayPatience bounds every wait of these tests; none is expected to come near it.
const relayPatience = livetest.Patience

// relayWorld is a store in a database of its own.
type relayWorld struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *postgres.Store
}

func newRelayWorld(t testing.TB, opts ...postgrestest.Option) *relayWorld {
	t.Helper()
	return openRelayWorld(t, postgrestest.New(t, opts...))
}

// openRelayWorld opens a store that publishes the events of category "routed" on topic "events".
func openRelayWorld(t testing.TB, pool *pgxpool.Pool) *relayWorld {
	t.Helper()
	store, err := postgres.New(t.Context(), pool, postgres.Config{
		Routes: []eventstore.Route{{Topic: "events", Categories: []string{"routed"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &relayWorld{t, pool, store}
}

// send writes n messages of one partition and topic in a transaction, and wakes nobody.
func (w *relayWorld) send(n int, topic string, partition int) {
	w.t.Helper()
	w.exec(relaySendSQL, n, topic, partition)
}

// relaySendSQL writes messages whose payload is their number.
const relaySendSQL = `
INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, id, type, content_type, headers, data)
SELECT p, p, $3::int, $2::text, 'k' || $3::int, gen_random_uuid(), 'test.sent', 'text/plain', '', convert_to(i::text, 'UTF8')
  FROM (SELECT nextval('daybook.log_position') AS p, i FROM generate_series(1, $1::int) i) x`

// append stores n events of one stream.
func (w *relayWorld) append(category, id string, n int) eventstore.AppendResult {
	w.t.Helper()
	events := make([]eventstore.EventData, n)
	for i := range events {
		events[i] = eventstore.EventData{Type: "test.stored", ContentType: "text/plain", Data: fmt.Append(nil, i)}
	}
	r, err := w.store.Append(context.Background(), eventstore.To(eventstore.StreamID{Category: category, ID: id}, eventstore.AnyVersion, events...))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *relayWorld) relay(p message.Publisher, cfg Config) *Relay {
	w.t.Helper()
	r, err := NewRelay(w.pool, w.store.Outbox(), p, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// start runs r until stop is called, or the test ends.
func (w *relayWorld) start(r *Relay) (stop func()) {
	w.t.Helper()
	return livetest.Start(w.t, r.Run)
}

func (w *relayWorld) exec(sql string, args ...any) int64 {
	w.t.Helper()
	return livetest.Exec(w.t, w.pool, sql, args...)
}

func relayAsk[T any](w *relayWorld, sql string, args ...any) T {
	w.t.Helper()
	return livetest.Ask[T](w.t, w.pool, sql, args...)
}

// cursor is what the relays have committed in all segments.
func (w *relayWorld) cursor() int64 {
	w.t.Helper()
	return relayAsk[int64](w, "SELECT coalesce((SELECT min(floor) FROM daybook.segments WHERE consumer = 'outbox-relay'), 0)")
}

// owners are the living owners of the segments, from 0; empty where there is none.
func (w *relayWorld) owners() []string {
	w.t.Helper()
	return relayAsk[[]string](w, `SELECT coalesce(array_agg(CASE WHEN expires_at > clock_timestamp() THEN owner ELSE '' END ORDER BY segment), '{}')
		FROM daybook.segments WHERE consumer = 'outbox-relay'`)
}

// balanced waits until n relays share the segments, none of them with two more than another, and returns the owners.
func (w *relayWorld) balanced(n int) (owners []string) {
	w.t.Helper()
	livetest.Eventually(w.t, fmt.Sprintf("%d relays share the segments", n), func() bool {
		owners = w.owners()
		share := map[string]int{}
		for _, o := range owners {
			share[o]++
		}
		if len(owners) == 0 || share[""] > 0 || len(share) != min(n, len(owners)) {
			return false
		}
		for _, has := range share {
			if has < len(owners)/len(share) {
				return false
			}
		}
		return true
	})
	return owners
}

// head is the safe head, once it can be asked for: after a crash of the server connections are dead.
func (w *relayWorld) head() int64 {
	w.t.Helper()
	var head eventstore.Position
	livetest.Eventually(w.t, "the safe head is read", func() (ok bool) {
		var err error
		head, err = w.store.SafeHead(context.Background())
		return err == nil
	})
	return head.Ordinal()
}

// sent waits until everything is published and the cursor says so.
func (w *relayWorld) sent() {
	w.t.Helper()
	head := w.head()
	livetest.Eventually(w.t, fmt.Sprintf("the cursor reaches %d", head), func() bool { return w.cursor() >= head })
}

// stored are the messages of the outbox by position and topic, as they must arrive.
func (w *relayWorld) stored() int {
	w.t.Helper()
	return relayAsk[int](w, "SELECT coalesce(sum(coalesce(to_version - from_version + 1, 1)), 0)::int FROM daybook.outbox")
}

// tape is a broker that keeps what it gets, in the order in which it accepted it.
type tape struct {
	before func(topic string, got received) error // decides whether the broker takes it; may block

	mu    sync.Mutex
	taken []taken
}

// taken is a message as the broker got it.
type taken struct {
	received
	id      string
	payload string
	headers message.Metadata
}

func (p *tape) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		got, err := decode(m)
		if err != nil {
			return err
		}
		if got.topic != topic {
			return fmt.Errorf("published on %q what says %q", topic, got.topic)
		}
		if p.before != nil {
			if err := p.before(topic, got); err != nil {
				return err
			}
		}
		p.mu.Lock()
		p.taken = append(p.taken, taken{got, m.UUID, string(m.Payload), m.Metadata})
		p.mu.Unlock()
	}
	return nil
}

func (p *tape) Close() error { return nil }

// broker takes messages and forgets them.
type broker func(received) error

func (b broker) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		got, err := decode(m)
		if err == nil {
			err = b(got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (broker) Close() error { return nil }

// all are messages and heads.
func (p *tape) all() []taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]taken(nil), p.taken...)
}

func (p *tape) messages() (m []taken) {
	for _, g := range p.all() {
		if g.kind != KindHead {
			m = append(m, g)
		}
	}
	return m
}

func (p *tape) heads() (h []taken) {
	for _, g := range p.all() {
		if g.kind == KindHead {
			h = append(h, g)
		}
	}
	return h
}

type relayPlace struct {
	topic     string
	partition int
}

// checkChains holds what a broker took, from one relay without a crash, against the rules: each partition in order, each
// message linked to the one before it, a head saying what is true. It returns the number of messages.
func checkChains(t testing.TB, all []taken) (messages int) {
	t.Helper()
	last := map[relayPlace]received{}
	tail := map[relayPlace]eventstore.Position{}
	for _, g := range all {
		at := relayPlace{g.topic, g.partition}
		if !g.position.After(last[at].position) {
			t.Errorf("%s at %s of %v comes after %s", g.kind, g.position, at, last[at].position)
		}
		if g.previous != tail[at] {
			t.Errorf("%s at %s of %v names %s as the one before, and that is %s", g.kind, g.position, at, g.previous, tail[at])
		}
		last[at] = g.received
		if g.kind != KindHead {
			tail[at] = g.position
			messages++
		}
	}
	return messages
}

// checkRepeats holds what brokers took from relays that died or stood still against the rules: what comes twice is the
// same, what comes first on one tape is in order, and all of it is linked. It returns the number of different messages.
func checkRepeats(t testing.TB, tapes ...[]taken) (messages int) {
	t.Helper()
	type key struct {
		relayPlace
		position eventstore.Position
	}
	seen := map[key]taken{}
	var all []taken
	for n, tape := range tapes {
		last := map[relayPlace]eventstore.Position{}
		here := map[key]bool{}
		for _, g := range tape {
			at := relayPlace{g.topic, g.partition}
			k := key{at, g.position}
			if g.kind == KindHead || here[k] && sameMessage(t, seen[k], g) {
				continue
			}
			here[k] = true
			if g.position.Before(last[at]) {
				t.Errorf("tape %d: the message at %s of %v comes first after %s", n, g.position, at, last[at])
			}
			last[at] = g.position
			if was, again := seen[k]; !again || !sameMessage(t, was, g) {
				seen[k] = g
				all = append(all, g)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b taken) int { return a.position.Compare(b.position) })
	return checkChains(t, all)
}

// sameMessage is true, or has failed the test.
func sameMessage(t testing.TB, was, is taken) bool {
	t.Helper()
	if was.id != is.id || was.payload != is.payload || !maps.Equal(was.headers, is.headers) {
		t.Errorf("the message at %s was repeated otherwise:\n%v %v %q\n%v %v %q", is.position, was.id, was.headers, was.payload, is.id, is.headers, is.payload)
	}
	return true
}

// relayLines is a logger whose lines a test can look at.
type relayLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *relayLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *relayLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *relayLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
