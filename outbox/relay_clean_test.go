package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

// follow registers a consumer of topic "t" that has passed what lies at or below floor.
func (w *relayWorld) follow(name string, floor int64) {
	w.t.Helper()
	w.exec("INSERT INTO daybook.consumers (consumer, version, kind) VALUES ($1, 7, 'projection')", name)
	w.exec("INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition, floor) VALUES ($1, 7, 0, 0, 63, $2)", name, floor)
	w.exec("INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ('t', 'of ' || $1, $1, 7)", name)
}

// keep lets nothing be cleaned away, so that what arrives can be compared with what is stored.
func (w *relayWorld) keep() { w.follow("keeper", 0) }

// R-OB05: what is sent and passed by everybody goes; the last row stays, since the end of the log is read from it.
func TestRelayCleans(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.send(100, "t", 1)
	passed := w.head()
	w.send(50, "t", 2)
	w.follow("fast", w.head())
	w.follow("slow", passed)
	var lines relayLines
	cfg := Config{CleanEvery: 20 * time.Millisecond, Logger: lines.logger()}
	b := &tape{}
	w.start(w.relay(b, cfg))
	w.sent()
	livetest.Eventually(t, "what both have passed is gone", func() bool { return w.stored() == 50 })
	w.exec("UPDATE daybook.segments SET floor = $1 WHERE consumer = 'slow'", w.head())
	livetest.Eventually(t, "all is gone", func() bool { return w.stored() == 1 })
	if strings.Contains(lines.String(), "lost") {
		t.Errorf("the log says:\n%s", lines.String())
	}
	w.send(10, "t", 1)
	w.sent()
	if n := checkChains(t, b.all()); n != 160 {
		t.Errorf("%d messages arrived", n)
	}
}

// Nothing goes that is not sent.
func TestRelayKeepsWhatIsNotSent(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.send(100, "t", 1)
	w.follow("fast", w.head()) // who has read it elsewhere
	var seen atomic.Int64
	release := make(chan struct{})
	b := &tape{before: func(_ string, got received) error {
		if got.kind != KindHead && seen.Add(1) == 50 { // in the third page
			<-release
		}
		return nil
	}}
	w.start(w.relay(b, Config{CleanEvery: 10 * time.Millisecond, BatchSize: 20}))
	livetest.Eventually(t, "the two pages before are gone", func() bool { return w.stored() == 60 })
	<-time.After(100 * time.Millisecond)
	if got := w.stored(); got != 60 || w.cursor() != 40 {
		t.Errorf("%d messages are left with the cursor at %d", got, w.cursor())
	}
	close(release)
	w.sent()
	if n := checkChains(t, b.all()); n != 100 {
		t.Errorf("%d messages arrived", n)
	}
}

// A subscriber that stays behind for longer than the retention is lost: named in the log, and waited for no longer.
func TestRelayNamesTheLost(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.send(100, "t", 1)
	w.follow("search", w.head()-90)
	w.follow("fast", w.head())
	var lines relayLines
	w.start(w.relay(&tape{}, Config{CleanEvery: 10 * time.Millisecond, Retention: 300 * time.Millisecond, Logger: lines.logger()}))
	livetest.Eventually(t, "all is gone", func() bool { return w.stored() == 1 })
	livetest.Eventually(t, "the log says whom that cost", func() bool { return strings.Contains(lines.String(), "is lost") })
	text := lines.String()
	for _, want := range []string{"level=WARN", "topic=t", `group="of search"`, "consumer=search", "version=7", fmt.Sprint("floor=", 10)} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not say %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "consumer=fast") {
		t.Errorf("the other is lost too:\n%s", text)
	}
}

// A cleaning that fails is reported once, and the publishing goes on.
func TestRelayPublishesWithoutCleaning(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.exec("ALTER FUNCTION daybook.raise_cleaned RENAME TO raise_no_more")
	var lines relayLines
	b := &tape{}
	w.start(w.relay(b, Config{CleanEvery: 5 * time.Millisecond, Logger: lines.logger()}))
	livetest.Eventually(t, "the log says so", func() bool { return strings.Contains(lines.String(), "cannot clean") })
	w.send(5, "t", 1)
	w.sent()
	w.exec("ALTER FUNCTION daybook.raise_no_more RENAME TO raise_cleaned")
	livetest.Eventually(t, "the log says that it is well", func() bool { return strings.Contains(lines.String(), "cleans the outbox again") })
	if n := strings.Count(lines.String(), "cannot clean"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	if n := checkChains(t, b.all()); n != 5 {
		t.Errorf("%d messages arrived", n)
	}
}

// A relay that stood still while another took over and the outbox was cleaned finds only what is left: linked to the last
// message that it knows, that would be a chain without what was cleaned away.
func TestRelayBehindTheCleaning(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	first := &tape{}
	gate := &gatedRows{Rows: w.store.Outbox(), reached: make(chan struct{}, 1), open: make(chan struct{})}
	frozen, err := NewRelay(w.pool, gate, first, Config{Lease: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w.start(frozen)
	w.send(10, "t", 1)
	w.sent()
	behind := w.cursor()
	gate.closed.Store(true)
	<-gate.reached // what was under way has ended
	w.send(5, "t", 1)
	w.exec("UPDATE daybook.outbox_tails SET position = $1", w.head()) // as another does that takes over
	w.exec(`UPDATE daybook.segments SET owner = 'another', epoch = epoch + 1, expires_at = clock_timestamp() + interval '1 hour', floor = $1
		WHERE consumer = 'outbox-relay'`, w.head())
	w.follow("fast", w.head())
	if report, err := w.store.Outbox().Clean(t.Context(), time.Hour); err != nil || report.Cleaned.Ordinal() <= behind {
		t.Fatalf("the outbox is cleaned up to %s: %v", report.Cleaned, err)
	}
	w.send(3, "t", 1)
	close(gate.open)
	livetest.Eventually(t, "the frozen relay notices", func() bool { return frozen.Health(t.Context()).State == "standby" })
	if n := len(first.messages()); n != 10 {
		t.Errorf("the frozen relay published %d messages, want the 10 from before", n)
	}
}

// gatedRows holds a page back once it is closed.
type gatedRows struct {
	Rows
	closed        atomic.Bool
	reached, open chan struct{}
}

func (g *gatedRows) ReadPage(ctx context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	if g.closed.Load() {
		select {
		case g.reached <- struct{}{}:
		default:
		}
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}
	return g.Rows.ReadPage(ctx, q)
}

// An orderly end saves what was published, and nothing of what the broker did not take: the next relay would link its first
// message to one that nobody has.
func TestRelayEndsWhileTheBrokerRefuses(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	var more atomic.Int64
	b.before = func(_ string, got received) error {
		switch more.Add(1) {
		case 1, 2: // the cursor of the second is put off
			w.send(1, "t", 1)
			return nil
		}
		return errors.New("the broker is full")
	}
	r := w.relay(b, Config{quiet: time.Hour})
	w.send(1, "t", 1)
	stop := w.start(r)
	livetest.Eventually(t, "the broker refuses", func() bool { return more.Load() > 2 && r.Health(t.Context()).State == "waiting" })
	stop()
	if beyond := relayAsk[int](w, `SELECT count(*) FROM daybook.outbox_tails t, daybook.segments s
		WHERE s.consumer = 'outbox-relay' AND t.partition BETWEEN s.first_partition AND s.last_partition AND t.position > s.floor`); beyond != 0 {
		t.Error("a chain ends with what was never published")
	}
	after := &tape{}
	w.start(w.relay(after, Config{}))
	w.sent()
	checkRepeats(t, b.all(), after.all())
	if last := after.messages(); len(last) == 0 || last[len(last)-1].previous.IsZero() || !last[len(last)-1].previous.Before(last[len(last)-1].position) {
		t.Errorf("the last message says what is before it: %+v", last)
	}
}
