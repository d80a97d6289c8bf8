package projection

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/outbox"
)

// A running projection changes between the log and the published stream, again and again, while appends go on: nothing
// is lost or doubled. It leaves the stream with some partitions ahead of others, which the log knows nothing of.
func TestStreamSwitchesSources(t *testing.T) {
	t.Parallel()
	p, v := strict("switched"), counts("switched_view")
	w := newStreamWorld(t, p, v)
	w.run(w.relay(w.channel, outbox.Config{BatchSize: 20, HeadEvery: far}))
	f := w.traffic()
	f.append(10)
	for round := range max(testscale.N(8), 4) {
		var from Source = w.store.Log()
		known := f.token.Marks()[0].Position.Ordinal() // what is appended from here on runs ahead of it
		moved := func() bool { return w.floorOf(p.Name) > known }
		if round%2 == 1 {
			from = w.subscription(w.channel, outbox.SubscriptionConfig{CatchUp: w.store.Log(), Silence: far})
			moved = func() bool {
				return ask[int](w.world, "SELECT count(DISTINCT consumer)::int FROM daybook.checkpoints") == 2
			}
		}
		stop := w.run(w.reader(from, Config{BatchSize: 7}, p, v))
		livetest.Eventually(t, "it moves", func() bool {
			f.append(3)
			<-time.After(20 * time.Millisecond)
			return moved()
		})
		stop()
		if n := ask[int](w.world, "SELECT count(*)::int FROM daybook.consumers WHERE consumer IN ($1, $2) AND state <> 'running'", p.Name, v.Name); n != 0 {
			t.Fatalf("round %d: %d of them stopped", round, n)
		}
		f.append(3)
	}
	w.run(w.reader(w.store.Log(), Config{}, p, v))
	f.applied(p, v)
}

// A topic that is not the whole log is no continuation of it, nor the other way round, nor of another topic.
func TestStreamRefusesAnotherSource(t *testing.T) {
	t.Parallel()
	ofLog, ofAll, ofSome := strict("of_log"), strict("of_all"), strict("of_some")
	w := newStreamWorld(t, ofLog, ofAll, ofSome)
	w.expect("tests", ofAll)
	w.run(w.relay(w.channel, outbox.Config{}))
	sources := map[string]Source{
		"the log":            w.store.Log(),
		"topic " + topicAll:  w.subscription(w.channel, outbox.SubscriptionConfig{}),
		"topic " + topicSome: w.subscription(w.channel, outbox.SubscriptionConfig{Topic: topicSome}),
	}
	f := w.traffic()
	for first, p := range map[string]Projection{"the log": ofLog, "topic " + topicAll: ofAll, "topic " + topicSome: ofSome} {
		f.append(10)
		stop := w.run(w.reader(sources[first], Config{}, p))
		w.wait(f.token, p)
		stop()
		seen := "SELECT count(*)::int FROM " + p.Name
		applied := ask[int](w.world, seen)
		f.append(5)
		for second, from := range sources {
			if first == second {
				continue
			}
			r := w.reader(from, Config{}, p)
			stop := w.run(r)
			reason := w.reason(r)
			stop()
			if !strings.Contains(reason, "has followed "+first+" ") || !strings.Contains(reason, "cannot go on with "+second+":") {
				t.Errorf("from %s to %s: %s", first, second, reason)
			}
		}
		if n := ask[int](w.world, seen); n != applied {
			t.Errorf("%d events were applied, %d are now", applied, n)
		}
		stop = w.run(w.reader(sources[first], Config{}, p)) // its own source goes on
		w.passed(p.Name)
		stop()
		if p.Name == ofSome.Name {
			if n := ask[int](w.world, seen); n != 0 {
				t.Errorf("%d events that are not on the topic", n)
			}
			continue
		}
		f.check(p)
	}
}

// A topic says itself what it carries.
func TestStreamCarries(t *testing.T) {
	t.Parallel()
	w := newStreamWorld(t)
	whole := w.subscription(w.channel, outbox.SubscriptionConfig{CatchUp: w.store.Log()})
	part := w.subscription(w.channel, outbox.SubscriptionConfig{})
	if got := fmt.Sprintf("%q %q", whole.Carries(), part.Carries()); got != `"" "topic all"` {
		t.Errorf("they carry %s", got)
	}
}
