package projection

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// rows is how many rows the outbox has.
func (w *streamWorld) rows() int {
	w.t.Helper()
	return ask[int](w.world, "SELECT count(*)::int FROM daybook.outbox")
}

func (w *streamWorld) clean(retention time.Duration) {
	w.t.Helper()
	if report, err := w.store.Outbox().Clean(context.Background(), retention); err != nil || len(report.Lost) > 0 {
		w.t.Fatalf("clean: %+v %v", report, err)
	}
}

func (w *streamWorld) stateOf(group string) string {
	w.t.Helper()
	return ask[string](w.world, "SELECT coalesce((SELECT state FROM daybook.subscribers WHERE group_name = $1), '')", group)
}

// numbers appends the events from first to last, each in a stream of its own, and returns the token of all.
func (w *streamWorld) numbers(first, last int64) (all eventstore.Token) {
	w.t.Helper()
	for n := first; n <= last; n++ {
		var err error
		if all, err = all.Merge(w.append("s"+string(rune('a'+n%20)), added{n})); err != nil {
			w.t.Fatal(err)
		}
	}
	return all
}

func oneTo(n int64) (all []int64) {
	for i := int64(1); i <= n; i++ {
		all = append(all, i)
	}
	return all
}

// R-OB05: what one group has not passed stays, and goes when it has.
func TestStreamRowsStayForEveryGroup(t *testing.T) {
	t.Parallel()
	steady, resting := logged("steady"), logged("resting")
	w := newStreamWorld(t, steady, resting)
	w.run(w.relay(w.channel, outbox.Config{}))
	w.follow(w.subscription(w.channel, outbox.SubscriptionConfig{Group: "steady"}), Config{}, steady)
	stop := w.follow(w.subscription(w.channel, outbox.SubscriptionConfig{Group: "resting"}), Config{}, resting)
	w.wait(w.numbers(1, 20), steady, resting)
	w.passed("resting")
	stop()
	w.wait(w.numbers(21, 50), steady)
	w.passed("steady")
	w.sent()
	w.clean(time.Hour)
	if n := w.rows(); n != 30 {
		t.Errorf("%d rows are left, want the 30 that one group has not passed", n)
	}
	w.follow(w.subscription(w.channel, outbox.SubscriptionConfig{Group: "resting"}), Config{}, resting)
	w.wait(w.numbers(51, 51), steady, resting)
	w.passed("steady")
	w.passed("resting")
	w.sent()
	w.clean(time.Hour)
	if n := w.rows(); n > 1 { // the last one says where the log ends
		t.Errorf("%d rows are left", n)
	}
	for _, p := range []Projection{steady, resting} {
		if diff := gocmp.Diff(oneTo(51), sorted(values(w.world, p.Name))); diff != "" {
			t.Errorf("%s: %s", p.Name, diff)
		}
	}
}

// A group that is down for longer than the retention is lost by name, and holds nothing back. Of a topic that carries
// the log it heals; of another it stops, and skips nothing. The same holds for consumers that come first after that.
func TestStreamLostGroups(t *testing.T) {
	t.Parallel()
	const retention = 4 * time.Second // far longer than a busy machine keeps a consumer from its place
	steady, whole, part := logged("steady"), logged("whole"), logged("part")
	firstWhole, firstPart, firstHead := logged("first_whole"), logged("first_part"), logged("first_head")
	w := newStreamWorld(t, steady, whole, part, firstWhole, firstPart, firstHead)
	var lines livetest.Lines
	w.run(w.relay(w.channel, outbox.Config{CleanEvery: 100 * time.Millisecond, Retention: retention, Logger: lines.Logger()}))
	of := func(p Projection, catchUp Source, start outbox.Start) *outbox.Subscription {
		return w.subscription(w.channel, outbox.SubscriptionConfig{Group: "of_" + p.Name, CatchUp: catchUp, StartAt: start})
	}
	w.follow(of(steady, nil, 0), Config{}, steady)
	stopWhole := w.follow(of(whole, w.store.Log(), 0), Config{}, whole)
	stopPart := w.follow(of(part, nil, 0), Config{}, part)
	w.wait(w.numbers(1, 10), steady, whole, part)
	w.passed("whole")
	w.passed("part")
	stopWhole()
	stopPart()
	stood := w.floorOf("part")
	token := w.numbers(11, 30)
	w.wait(token, steady)
	for _, name := range []string{"whole", "part"} {
		group := "of_" + name
		livetest.Eventually(t, group+" is lost", func() bool { return w.stateOf(group) == "lost" })
		waited := ask[float64](w.world, `SELECT extract(epoch FROM s.since - (SELECT min(recorded_at) FROM daybook.events WHERE position > $2))::float8
			FROM daybook.subscribers s WHERE group_name = $1`, group, w.floorOf(name))
		if waited < retention.Seconds() {
			t.Errorf("%s is lost after %.3f s, before the retention is over", group, waited)
		}
	}
	livetest.Eventually(t, "the rows are gone", func() bool { return w.rows() <= 1 })
	for _, name := range []string{"whole", "part"} {
		livetest.Eventually(t, "the log names "+name, func() bool { return strings.Contains(lines.String(), "group=of_"+name+" consumer="+name+" version=1") })
	}

	w.follow(of(whole, w.store.Log(), 0), Config{}, whole)
	w.follow(of(firstWhole, w.store.Log(), 0), Config{}, firstWhole)
	w.wait(token, whole, firstWhole)
	for _, p := range []Projection{part, firstPart} {
		s := of(p, nil, 0)
		r := w.reader(s, Config{}, p)
		w.run(r)
		reason := w.reason(r)
		for _, want := range []string{"outbox:", `"of_` + p.Name + `"`, `"` + p.Name + `"`, `"` + topicAll + `"`, "retention"} {
			if !strings.Contains(reason, want) {
				t.Errorf("%s: the reason does not say %s: %s", p.Name, want, reason)
			}
		}
		stopped := mustBe[*StoppedError](t, NewWaiter(w.pool, WaiterConfig{}).WaitFor(t.Context(), token, p))
		if stopped.State != "stopped" || stopped.Reason != reason {
			t.Errorf("%s: the wait says %v", p.Name, stopped)
		}
		_, err := s.ReadPage(t.Context(), eventstore.PositionAt(w.floorOf(p.Name)), eventstore.Filter{}, 10)
		if !errors.Is(err, outbox.ErrLost) || mustBe[*outbox.LostError](t, err).Group != "of_"+p.Name {
			t.Errorf("%s: reading the topic gives %v", p.Name, err)
		}
	}
	if at := w.floorOf("part"); at != stood {
		t.Errorf("part went from %d to %d", stood, at)
	}
	if at := w.floorOf("first_part"); at != 0 {
		t.Errorf("first_part went to %d", at)
	}
	w.follow(of(firstHead, nil, outbox.AtHead), Config{}, firstHead)
	w.passed("first_head")
	w.wait(w.numbers(31, 35), steady, whole, firstWhole, firstHead)
	for name, want := range map[string][]int64{
		"steady": oneTo(35), "whole": oneTo(35), "first_whole": oneTo(35), "part": oneTo(10), "first_part": nil, "first_head": oneTo(35)[30:],
	} {
		got := values(w.world, name)
		if len(got) == 0 {
			got = nil
		}
		if diff := gocmp.Diff(want, sorted(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
