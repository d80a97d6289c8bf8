package inbox

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// The crash tests run this test binary again as a process of its own, which runs one inbox over all that was published and
// can be killed at a named place.
const (
	childURL  = "DAYBOOK_INBOX_TEST_URL"
	childAt   = "DAYBOOK_INBOX_TEST_AT" // see livetest.Reaching
	childWhat = "DAYBOOK_INBOX_TEST_WHAT"
)

// crashMessages is how many messages the children get. Some are lost at first, some set aside by their relay.
const crashMessages = 120

// crashLog is what the children's broker brings, always from the beginning: its acknowledgements died with the process.
func crashLog(what string) (want []*sent, first, second []*message.Message) {
	p := newPublisher(8)
	p.epoch = uuid.MustParse("0d9f6a0e-7f3c-4a7a-9a53-0f5c6d2f7f10")
	want = p.several(crashMessages, func(i int) int { return i * i % 17 })
	for i, m := range want {
		switch {
		case what == "gaps" && i%20 == 7:
			second = append(second, m.event())
		case what == "skips" && m.key == want[3].key:
			first = append(first, m.skip())
			second = append(second, m.skip(), m.redriven())
		default:
			first = append(first, m.event())
		}
	}
	return want, first, second
}

func child() error {
	pool, err := livetest.Pool(context.Background(), os.Getenv(childURL), 4)
	if err != nil {
		return err
	}
	b := newBroker(4)
	_, first, second := crashLog(os.Getenv(childWhat))
	b.send(first...)
	b.send(second...)
	run := Config{Name: "stock", Topic: topic, Partitions: 8, Lease: 300 * time.Millisecond, HoldFor: 5 * time.Millisecond, BatchSize: 7}
	reached := livetest.Reaching(os.Getenv(childAt))
	run.probe = reached
	in, err := New(pool, b, run, func(ctx context.Context, tx pgx.Tx, m Message) error {
		err := write(ctx, tx, m)
		reached("handled")
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("running")
	return in.Run(context.Background())
}

func (w *world) spawn(t *testing.T, what, at string) *livetest.Process {
	t.Helper()
	return livetest.Spawn(t, livetest.Child{Env: []string{childURL + "=" + w.pool.Config().ConnString(), childAt + "=" + at, childWhat + "=" + what}})
}

// R-OB10: killed at every place where it hurts, again and again. Effect and mark are committed together, or neither is.
func TestKilledAtEveryPlace(t *testing.T) {
	t.Parallel()
	deaths := 3
	if testscale.Factor() < 1 {
		deaths = 2
	}
	for _, what := range []string{"plain", "gaps", "skips"} {
		for _, place := range []string{"taken", "handled", "applied", "committed"} {
			if what != "plain" && place != "applied" && place != "committed" { // nothing but messages is handled there
				continue
			}
			t.Run(what+" "+place, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				for death := range deaths {
					n := 1 + 3*death
					if place == "taken" {
						n = 1
					}
					w.spawn(t, what, fmt.Sprintf("%s:%d:kill", place, n)).Dies()
				}
				defer w.spawn(t, what, "").Kill()
				want, _, _ := crashLog(what)
				w.exact(want)
			})
		}
	}
}

// The connection of the owner is ended within a handler and before a commit: nothing is lost or done twice.
func TestConnectionsAreEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broker.lanes = 3
	cfg := w.config()
	cfg.BatchSize = 9
	visits := 0
	end := func(ctx context.Context, tx pgx.Tx) {
		if visits++; visits%40 == 7 {
			_, _ = tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())") // it has no time to answer
		}
	}
	in := w.inbox(cfg, func(ctx context.Context, tx pgx.Tx, m Message) error {
		end(ctx, tx)
		return write(ctx, tx, m)
	})
	w.start(in)
	want := w.pub.several(200, func(i int) int { return i % 13 })
	w.broker.send(events(want)...)
	w.exact(want)
	w.drained()
	if visits < len(want)+2 {
		t.Errorf("%d visits: no connection was ended", visits)
	}
}
