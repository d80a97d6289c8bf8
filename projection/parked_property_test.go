package projection

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// trial is one run of a projection and a view over random failures, restarts and takeovers.
type trial struct {
	*streamWorld
	random *rand.Rand
	mended atomic.Bool
	p      Projection
	v      View[string, count]
	order  map[string][]int64 // by partition key, in the order of the log
	keys   map[int64]string
	places sync.Map         // of numbers: messages of a mapped topic know no stream
	held   int              // the most that were seen
	rows   map[string]count // by stream
	n      int64
}

type place struct {
	id      string
	version int64
}

// fate: of a value in a run, one in twelve always fails until it is mended, and one attempt in four of the others.
func (tr *trial) fate(seed uint64, n int64, attempt uint64) error {
	if tr.mended.Load() {
		return nil
	}
	if rand.New(rand.NewPCG(seed, uint64(n))).IntN(12) == 0 {
		return fmt.Errorf("%d: %w", n, errBad)
	}
	if rand.New(rand.NewPCG(seed^uint64(n), attempt)).IntN(4) == 0 {
		return fmt.Errorf("%d, attempt %d: %w", n, attempt, errBad)
	}
	return nil
}

// newTrial makes a world whose store publishes what it stores, and, mapped, what is public.
func newTrial(t *testing.T, seed uint64, route eventstore.Route) *trial {
	t.Helper()
	tr := &trial{random: rand.New(rand.NewPCG(seed, 1)), order: map[string][]int64{}, rows: map[string]count{}, keys: map[int64]string{}}
	strictly := strict("strictly")
	inner := strictly.Handlers[0]
	strictly.Handlers = []Handler{{event: inner.event, run: func(ctx context.Context, tx pgx.Tx, payload any, r *eventstore.RecordedEvent) error {
		if err := inner.run(ctx, tx, payload, r); err != nil { // with its effects, which are taken back
			return err
		}
		return tr.fate(seed, payload.(added).N, uint64(Attempt(ctx)))
	}}}
	v := counts("folded")
	var calls atomic.Uint64
	placeOf := func(e Event[added]) place {
		p, _ := tr.places.Load(e.Payload.N)
		return p.(place)
	}
	v.Folds = []Fold[string, count]{On(func(e Event[added]) string { return placeOf(e).id }, func(c count, e Event[added]) count {
		if err := tr.fate(seed+1, e.Payload.N, calls.Add(1)); err != nil {
			panic(err)
		}
		return c.apply(e.Payload.N, placeOf(e).version)
	})}
	tr.p, tr.v = strictly, v
	tr.streamWorld = openRoutedWorld(t, postgrestest.New(t), []eventstore.Route{route}, strictly, v)
	return tr
}

// write appends up to three numbers to one of seven streams, of which some share their partition key.
func (tr *trial) write() {
	tr.t.Helper()
	i := tr.random.IntN(7)
	id, key := fmt.Sprint("s", i), ""
	if i >= 4 {
		key = fmt.Sprint("shared-", i%2)
	}
	var events []any
	for range 1 + tr.random.IntN(3) {
		tr.n++
		events = append(events, added{tr.n})
		sequence := cmp.Or(key, "test-"+id)
		tr.order[sequence], tr.keys[tr.n] = append(tr.order[sequence], tr.n), sequence
		c := tr.rows[id]
		tr.rows[id] = count{c.Sum + tr.n, c.Events + 1, c.Last + 1}
		tr.places.Store(tr.n, place{id, c.Last + 1})
	}
	_, err := tr.store.Append(tr.t.Context(), eventstore.Write{Stream: stream(id), Expected: eventstore.AnyVersion, Events: encode(tr.t, events...), PartitionKey: key})
	if err != nil {
		tr.t.Fatal(err)
	}
}

// prefixes checks that of each partition key nothing was applied before what was earlier, nor twice.
func (tr *trial) prefixes() {
	tr.t.Helper()
	tr.held = max(tr.held, ask[int](tr.world, "SELECT count(*)::int FROM daybook.held"))
	got := map[string][]int64{}
	for _, n := range values(tr.world, tr.p.Name) {
		got[tr.keys[n]] = append(got[tr.keys[n]], n)
	}
	for key, list := range got {
		if want := tr.order[key]; len(list) > len(want) || !slices.Equal(list, want[:len(list)]) {
			tr.t.Fatalf("%s: applied %v of %v", key, list, want)
		}
	}
}

func (tr *trial) config() Config {
	return soon(Config{Lease: 300 * time.Millisecond, BatchSize: 1 + tr.random.IntN(20), Attempts: 2 + tr.random.IntN(3), MaxParked: 1000})
}

// run lets two workers at a time be started and ended while events come, mends everything, and compares.
func (tr *trial) run(source func() Source) {
	t := tr.t
	stops := [2]func(){func() {}, func() {}}
	for range 12 {
		for range tr.random.IntN(12) {
			tr.write()
		}
		i := tr.random.IntN(2)
		switch tr.random.IntN(4) {
		case 0:
			stops[i]()
			stops[i] = func() {}
		case 1: // whoever works on it loses its connections
			tr.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
				AND query LIKE '%commit_batch%'`)
		case 2: // another takes over what this one believes to have
			tr.exec("UPDATE daybook.segments SET expires_at = '-infinity', owner = '' WHERE consumer IN ('strictly', 'folded')")
		default:
			stops[i]()
			stops[i] = tr.streamWorld.run(tr.reader(source(), tr.config(), tr.p, tr.v))
		}
		tr.prefixes()
	}
	for i := range stops {
		stops[i]()
	}
	tr.write()
	stop := tr.streamWorld.run(tr.reader(source(), tr.config(), tr.p, tr.v))
	for _, name := range []string{tr.p.Name, tr.v.Name} {
		tr.passed(name)
		livetest.Eventually(t, name+" has come to rest", func() bool {
			return ask[bool](tr.world, `SELECT bool_and(state = 'parked') IS NOT FALSE FROM daybook.parked WHERE consumer = $1`, name)
		})
	}
	tr.prefixes()
	tr.mended.Store(true)
	for _, name := range []string{tr.p.Name, tr.v.Name} {
		for len(tr.open(name)) > 0 { // what drains may have met another
			if ask[bool](tr.world, `SELECT EXISTS (SELECT FROM daybook.letters WHERE consumer = $1 AND state = 'parked')`, name) {
				if plan := tr.redrive(name); plan.Failed > 0 {
					t.Errorf("%+v", plan)
				}
			}
		}
		tr.parked(name, 0)
	}
	stop()
	tr.prefixes()
	applied := map[string][]int64{}
	for _, n := range values(tr.world, tr.p.Name) {
		applied[tr.keys[n]] = append(applied[tr.keys[n]], n)
	}
	if diff := gocmp.Diff(tr.order, applied); diff != "" {
		t.Errorf("handlers, by key: %s", diff)
	}
	if diff := gocmp.Diff(tr.rows, rowsOf(tr.world, tr.v)); diff != "" {
		t.Errorf("the view: %s", diff)
	}
	if n := ask[int](tr.world, "SELECT count(*)::int FROM daybook.held"); n != 0 {
		t.Errorf("%d messages are still held", n)
	}
}

// Whatever fails, and whoever is started, ended, cut off and overtaken meanwhile: of each partition key what is applied is
// always its beginning, in order and once; and when all is mended and redriven, everything is.
func TestKeysStayInOrderWhateverFails(t *testing.T) {
	t.Parallel()
	mapped := eventstore.Route{Topic: topicAll, Map: func(_ eventstore.StreamID, e eventstore.EventData) (eventstore.EventData, error) {
		return eventstore.EventData{Type: e.Type, SchemaVersion: e.SchemaVersion, ContentType: e.ContentType, Data: e.Data}, nil
	}}
	for name, c := range map[string]struct {
		route    eventstore.Route
		followed bool
		holds    bool // what is queued cannot be read from the log
	}{
		"log":          {eventstore.Route{Topic: topicAll}, false, false},
		"topic":        {eventstore.Route{Topic: topicAll, Types: []string{"test.added"}}, true, true},
		"mapped topic": {mapped, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := 0
			for i := 0; i < rounds(20) || i < 20 && c.holds && held == 0; i++ {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				tr := newTrial(t, seed, c.route)
				if !c.followed {
					tr.run(func() Source { return tr.store.Log() })
					held += tr.held
					continue
				}
				tr.expect("tests", tr.p, tr.v)
				stop := tr.streamWorld.run(tr.relay(tr.channel, outbox.Config{}))
				tr.run(func() Source {
					return tr.subscription(tr.channel, outbox.SubscriptionConfig{Silence: 300 * time.Millisecond})
				})
				stop()
				held += tr.held
			}
			t.Logf("%d messages were held", held)
			if (held > 0) != c.holds {
				t.Errorf("%d messages were held", held)
			}
		})
	}
}
