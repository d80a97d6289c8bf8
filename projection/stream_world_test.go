package projection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// Topics of these tests: every event, and the removals only.
const (
	topicAll  = "all"
	topicSome = "some"
)

// far is longer than any test takes: what arrives while the store is asked so seldom was brought by the broker.
const far = 10 * time.Minute

// streamWorld is a world whose store publishes, with a channel as its broker.
type streamWorld struct {
	*world
	channel *gochannel.GoChannel
}

func newStreamWorld(t testing.TB, defs ...Definition) *streamWorld {
	t.Helper()
	return openStreamWorld(t, postgrestest.New(t), defs...)
}

func openStreamWorld(t testing.TB, pool *pgxpool.Pool, defs ...Definition) *streamWorld {
	t.Helper()
	return openRoutedWorld(t, pool, []eventstore.Route{{Topic: topicAll}, {Topic: topicSome, Types: []string{"test.removed"}}}, defs...)
}

func openRoutedWorld(t testing.TB, pool *pgxpool.Pool, routes []eventstore.Route, defs ...Definition) *streamWorld {
	t.Helper()
	store, err := postgres.New(t.Context(), pool, postgres.Config{Routes: routes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	t.Cleanup(func() { _ = channel.Close() }) // it has no error to give
	w := &streamWorld{&world{t, pool, store}, channel}
	w.install(defs...)
	return w
}

// expect makes the outbox wait for consumers that begin to follow later.
func (w *streamWorld) expect(group string, consumers ...Definition) {
	w.t.Helper()
	for _, c := range consumers {
		w.exec("INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ($1, $2, $3, 1)", topicAll, group, c.ConsumerRef().Name)
	}
}

// run runs a runner or a relay until stop is called, or the test ends. It must end within two seconds.
func (w *streamWorld) run(what interface{ Run(context.Context) error }) (stop func()) {
	w.t.Helper()
	return livetest.Start(w.t, what.Run)
}

func (w *streamWorld) relay(p message.Publisher, cfg outbox.Config) *outbox.Relay {
	w.t.Helper()
	r, err := outbox.NewRelay(w.pool, w.store.Outbox(), p, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *streamWorld) subscription(from message.Subscriber, cfg outbox.SubscriptionConfig) *outbox.Subscription {
	w.t.Helper()
	cfg.Topic, cfg.Group = cmp.Or(cfg.Topic, topicAll), cmp.Or(cfg.Group, "tests")
	s, err := outbox.NewSubscription(w.store.Outbox(), from, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// reader is a runner that reads any source.
func (w *streamWorld) reader(from Source, cfg Config, defs ...Definition) *Runner {
	w.t.Helper()
	r, err := NewRunner(w.pool, from, cfg, defs...)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// follow runs projections on a subscription, and returns when the broker can reach them.
func (w *streamWorld) follow(s *outbox.Subscription, cfg Config, defs ...Definition) (stop func()) {
	w.t.Helper()
	stop = w.run(w.reader(s, cfg, defs...))
	w.following(s)
	return stop
}

func (w *streamWorld) following(s *outbox.Subscription) {
	w.t.Helper()
	livetest.Eventually(w.t, "the subscription follows", func() bool { return s.Health(context.Background()).State == "following" })
}

// sent waits until everything is published, and the cursor says so.
func (w *streamWorld) sent() {
	w.t.Helper()
	head := w.head()
	livetest.Eventually(w.t, "all is published", func() bool { return w.floorOf("outbox-relay") >= head })
}

func (w *streamWorld) head() int64 {
	w.t.Helper()
	head, err := w.store.SafeHead(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return head.Ordinal()
}

func (w *streamWorld) floorOf(consumer string) int64 {
	w.t.Helper()
	return ask[int64](w.world, "SELECT coalesce((SELECT min(floor) FROM daybook.segments WHERE consumer = $1), 0)", consumer)
}

// passed waits until a consumer has passed everything, in all partitions.
func (w *streamWorld) passed(consumer string) {
	w.t.Helper()
	head := w.head()
	livetest.Eventually(w.t, consumer+" has passed everything", func() bool { return w.floorOf(consumer) >= head })
}

// reason waits until a projection has stopped, and returns why.
func (w *streamWorld) reason(r *Runner) string {
	w.t.Helper()
	var reason string
	livetest.Eventually(w.t, "the projection stops", func() bool {
		h := r.Health(context.Background())
		reason = h.Parts[0].Reason
		return !h.Ready && h.Parts[0].State == "stopped"
	})
	return reason
}

// strict is a handler projection whose tables refuse what comes twice and show what was lost or reordered.
func strict(name string) Projection {
	return Projection{
		Name: name, Version: 1, Events: testEvents,
		Setup: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, fmt.Sprintf(`
CREATE TABLE IF NOT EXISTS %[1]s (n bigint GENERATED ALWAYS AS IDENTITY, position bigint UNIQUE, stream text, version bigint, value bigint);
CREATE TABLE IF NOT EXISTS %[1]s_counter (stream text PRIMARY KEY, events bigint, sum bigint)`, name))
			return err
		},
		Handlers: []Handler{Handle(func(ctx context.Context, tx pgx.Tx, e Event[added]) error {
			_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s (position, stream, version, value) VALUES ($1, $2, $3, $4)", name),
				e.Position.Ordinal(), e.Stream.ID, int64(e.Version), e.Payload.N)
			if err == nil {
				_, err = tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %[1]s_counter AS c VALUES ($1, 1, $2)
					ON CONFLICT (stream) DO UPDATE SET events = c.events + 1, sum = c.sum + excluded.sum`, name), e.Stream.ID, e.Payload.N)
			}
			return err
		})},
	}
}

// traffic appends numbers to several streams, one goroutine at a time, and knows what read models must become.
type traffic struct {
	*streamWorld
	n     int64
	order map[string][]int64
	rows  map[string]count
	token eventstore.Token // of all
}

func (w *streamWorld) traffic() *traffic {
	return &traffic{streamWorld: w, order: map[string][]int64{}, rows: map[string]count{}}
}

// append stores n events in appends of one to three.
func (f *traffic) append(n int) {
	f.t.Helper()
	for n > 0 {
		size := min(n, 1+int(f.n%3))
		n -= size
		id := fmt.Sprint("s", f.n%7)
		var events []any
		for range size {
			f.n++
			events = append(events, added{f.n})
			f.order[id] = append(f.order[id], f.n)
			c := f.rows[id]
			f.rows[id] = count{c.Sum + f.n, c.Events + 1, c.Last + 1}
		}
		token, err := f.token.Merge(f.world.append(id, events...))
		if err != nil {
			f.t.Fatal(err)
		}
		f.token = token
	}
}

// applied waits for all of it, and checks it.
func (f *traffic) applied(p Projection, v View[string, count]) {
	f.t.Helper()
	f.wait(f.token, p, v)
	f.check(p)
	f.checkRows(v)
}

func (f *traffic) checkRows(v View[string, count]) {
	f.t.Helper()
	if diff := gocmp.Diff(f.rows, rowsOf(f.world, v)); diff != "" {
		f.t.Errorf("rows of %s: %s", v.Name, diff)
	}
}

func (f *traffic) check(p Projection) {
	f.t.Helper()
	rows, err := f.pool.Query(context.Background(), "SELECT stream, array_agg(value ORDER BY n) FROM "+p.Name+" GROUP BY stream")
	if err != nil {
		f.t.Fatal(err)
	}
	got := map[string][]int64{}
	var id string
	var list []int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &list}, func() error { got[id], list = list, nil; return nil }); err != nil {
		f.t.Fatal(err)
	}
	if diff := gocmp.Diff(f.order, got); diff != "" {
		f.t.Errorf("%s, by stream: %s", p.Name, diff)
	}
	counted := ask[int64](f.world, "SELECT coalesce(sum(sum), 0)::bigint FROM "+p.Name+"_counter")
	if want := f.n * (f.n + 1) / 2; counted != want {
		f.t.Errorf("the counters of %s say %d, want %d", p.Name, counted, want)
	}
}

// sorted is for numbers of several streams, which come in any order.
func sorted(list []int64) []int64 {
	slices.Sort(list)
	return list
}
