//go:build unix

package brokertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/projection"
)

const (
	streams    = 1000
	fullSize   = 100_000
	perSecond  = 1000 // appended, at most
	relays     = 4
	fullCalm   = 1000 // appended after everything was killed, on one more stream each
	restarts   = 2
	oneAppend  = 5                      // streams
	relayKills = 600 * time.Millisecond // on average
)

// followKills is how long a consumer lives on average: so that one dies in a short storm, too.
var followKills = map[bool]time.Duration{true: 3 * time.Second, false: 1500 * time.Millisecond}[testscale.Factor() >= 1]

// small is half of what the scale makes of a full number, when that is not all of it. In the five seconds that a tenth takes
// then, about eight relays die, the consumer at least once, and the broker twice.
func small(full int) int {
	if testscale.Factor() >= 1 {
		return testscale.N(full)
	}
	return max(1, testscale.N(full)/2)
}

// calmEvents keep the pace of the storm.
func calmEvents() int { return max(200, small(fullCalm)) }

// afterwards bounds what is left when all is appended.
var afterwards = max(3*time.Minute, testscale.Duration(10*time.Minute))

// torture is one run.
type torture struct {
	t       *testing.T
	clients Clients
	server  Server
	pool    *pgxpool.Pool
	store   *postgres.Store
	folder  string
	random  *rand.Rand

	witness  *witness
	mu       sync.Mutex // of running
	running  map[string]*running
	versions [streams]int64
	appended int
}

// Torture appends events to 1,000 streams (100,000 at full size, 5,000 at a tenth; see testscale) while four relays and a consumer are
// killed at random and the broker is restarted twice, and checks what is said at the top of this page. It takes about
// a second for 1,000 events, and as long as the broker's restarts.
func Torture(t *testing.T, c Clients, s Server) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &torture{
		t: t, clients: c, server: s, folder: t.TempDir(), random: rand.New(rand.NewPCG(seed, 1)), running: map[string]*running{},
	}
	w.pool = postgrestest.New(t)
	var err error
	w.store, err = postgres.New(t.Context(), w.pool, postgres.Config{Routes: []eventstore.Route{{Topic: Topic}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.store.Close)
	for _, m := range models {
		if err := projection.Install(t.Context(), w.pool, m.projection()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(w.end)

	w.witness = watch(t, c, s.Address())
	w.start("consumer", "consumer")
	for i := range relays {
		w.start("relay", fmt.Sprint("relay", i))
	}
	began := time.Now()
	w.storm()
	stormed := time.Since(began)
	w.applied()
	w.published()
	t.Logf("%d events appended within %v, all published and applied within %v", w.appended, stormed.Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond))
	for round := 1; ; round++ {
		before := w.stats()
		w.calm()
		w.applied()
		w.published()
		if w.fed(before, int64(calmEvents()), round == calmRounds) || round == calmRounds {
			break
		}
	}
	if err := w.running["consumer"].stop(); err != nil {
		t.Errorf("the consumer: %v", err)
	}
	w.judge()
}

// storm appends while everything is killed. The last restart of the broker comes after the last end of the consumer, so
// that the consumer which is left must find the broker again.
func (w *torture) storm() {
	order := make([]int, 0, small(fullSize))
	for i := range cap(order) {
		order = append(order, i%streams)
	}
	w.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })

	var killing sync.WaitGroup
	defer killing.Wait()
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop() // before that wait
	relayChance, consumerChance := rand.New(rand.NewPCG(w.random.Uint64(), 2)), rand.New(rand.NewPCG(w.random.Uint64(), 3))
	killing.Go(func() {
		for pause(ctx, relayKills/2+time.Duration(relayChance.Int64N(int64(relayKills)))) {
			name := fmt.Sprint("relay", relayChance.IntN(relays))
			w.kill(name)
			w.start("relay", name)
		}
	})
	consumers, spare := context.WithCancel(ctx)
	defer spare()
	var consumerDone sync.WaitGroup
	consumerDone.Go(func() {
		for pause(consumers, followKills/2+time.Duration(consumerChance.Int64N(int64(followKills)))) {
			w.kill("consumer")
			w.start("consumer", "consumer")
		}
	})
	restarted := make(chan error, restarts)
	var restarting sync.WaitGroup
	for i, from := 0, time.Now(); i < len(order); i += oneAppend {
		for r := range restarts {
			if at := (r + 1) * len(order) / (restarts + 1) / oneAppend * oneAppend; i == at {
				restarting.Wait()
				if r == restarts-1 {
					spare()
					consumerDone.Wait()
				}
				restarting.Go(func() { restarted <- w.server.Restart() })
			}
		}
		w.append(order[i:min(i+oneAppend, len(order))])
		pause(ctx, time.Until(from.Add(time.Duration(i)*time.Second/perSecond)))
	}
	restarting.Wait()
	for range restarts {
		if err := <-restarted; err != nil {
			w.t.Fatal(err)
		}
	}
}

// calm appends while nothing is killed.
func (w *torture) calm() {
	from := time.Now()
	for i := 0; i < calmEvents(); i += oneAppend {
		var some []int
		for j := range oneAppend {
			some = append(some, (i+j)%streams)
		}
		w.append(some)
		pause(w.t.Context(), time.Until(from.Add(time.Duration(i)*time.Second/perSecond)))
	}
}

// append adds an event to each of the streams, in one append. A stream may be named twice.
func (w *torture) append(some []int) {
	events := map[int][]eventstore.EventData{}
	before := map[int]int64{}
	for _, s := range some {
		if _, known := before[s]; !known {
			before[s] = w.versions[s]
		}
		w.versions[s]++
		data, err := catalog.Encode(counted{Key: key(s), N: w.versions[s]})
		if err != nil {
			w.t.Fatal(err)
		}
		events[s] = append(events[s], data)
	}
	var writes []eventstore.Write
	for s, list := range events {
		expected := eventstore.NoStream
		if before[s] > 0 {
			expected = eventstore.Exactly(eventstore.Version(before[s]))
		}
		writes = append(writes, eventstore.To(eventstore.NewStreamID(category, key(s)), expected, list...))
	}
	if _, err := w.store.Append(w.t.Context(), writes...); err != nil {
		w.t.Fatal(err)
	}
	w.appended += len(some)
}

func key(stream int) string { return fmt.Sprintf("%04d", stream) }

func (w *torture) start(kind, name string) {
	r := role{Kind: kind, Name: name, Database: w.pool.Config().ConnString(), Broker: w.server.Address()}
	run := start
	if w.clients.InProcess {
		run = w.clients.startHere
	}
	p, err := run(r, w.log(name))
	if err != nil {
		w.t.Errorf("start %s: %v", name, err)
		return
	}
	w.mu.Lock()
	w.running[name] = p
	w.mu.Unlock()
}

func (w *torture) log(name string) string { return filepath.Join(w.folder, name+".log") }

func (w *torture) kill(name string) {
	w.mu.Lock()
	p := w.running[name]
	w.mu.Unlock()
	if p != nil {
		p.kill()
	}
}

// end leaves no process behind.
func (w *torture) end() {
	for name, p := range w.running {
		p.kill()
		if w.t.Failed() {
			w.t.Logf("%s ends with:\n%s", name, tail(p.log))
		}
	}
}
