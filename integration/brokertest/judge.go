//go:build unix

package brokertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// applied waits until both read models have seen as many events as were appended, or more.
func (w *torture) applied() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), afterwards)
	defer cancel()
	for _, m := range models {
		for {
			n, err := ask[int](ctx, w, m, "SELECT coalesce(sum(count), 0)::bigint FROM readmodels.{model}_seen")
			if err == nil && n >= w.appended {
				break
			}
			if !pause(ctx, 20*time.Millisecond) {
				w.t.Fatalf("%s has applied %d of %d events within %v", m.name, n, w.appended, afterwards)
			}
		}
	}
}

// judge checks everything, and reports.
func (w *torture) judge() {
	w.t.Helper()
	ctx := w.t.Context()
	for _, m := range models {
		w.exact(ctx, m)
		took, err := ask[string](ctx, w, m, tookSQL)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Logf("%s: from append to applied %s", m.name, took)
	}
	w.refusals()
	w.witness.judge(w.t, w.appended)
}

// exact compares the read model with what was appended.
func (w *torture) exact(ctx context.Context, m model) {
	w.t.Helper()
	wrong, err := ask[int](ctx, w, m, "SELECT count(*) FROM readmodels.{model}_wrong")
	if err != nil || wrong > 0 {
		w.t.Errorf("%s: %d events were applied out of order, %v", m.name, wrong, err)
	}
	rows, err := w.pool.Query(ctx, m.sql("SELECT stream, count, last FROM readmodels.{model}_seen"))
	if err != nil {
		w.t.Fatal(err)
	}
	type seen struct {
		Stream      string
		Count, Last int64
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seen])
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]seen{}
	for _, s := range all {
		got[s.Stream] = s
	}
	faults := 0
	for i, n := range w.versions {
		if s := got[key(i)]; (s.Count != n || s.Last != n) && faults < 10 {
			faults++
			w.t.Errorf("%s: stream %s was applied %d times up to version %d, want %d", m.name, key(i), s.Count, s.Last, n)
		}
	}
	if len(all) > len(w.versions) {
		w.t.Errorf("%s: %d streams, want %d", m.name, len(all), len(w.versions))
	}
}

// refusals counts what relays have written down; see judged.
func (w *torture) refusals() {
	w.t.Helper()
	counts := map[string]int{}
	for i := range relays {
		text, err := os.ReadFile(w.log(fmt.Sprint("relay", i)))
		if err != nil {
			w.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			rest, ok := strings.CutPrefix(line, "refused ")
			if !ok {
				continue
			}
			kind, said, _ := strings.Cut(strings.TrimSpace(rest), " ")
			if counts[kind]++; kind == eventstore.Permanent.String() && counts[kind] == 1 {
				w.t.Errorf("a message was taken for one that is refused for its own sake: %s", said)
			}
		}
	}
	w.t.Logf("what Publish refused: %v", counts)
}

// stats is the last that the consumer has written down of each read model.
func (w *torture) stats() map[string]outbox.Stats {
	w.t.Helper()
	text, err := os.ReadFile(w.log("consumer"))
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]outbox.Stats{}
	for line := range strings.Lines(string(text)) {
		var name string
		var s outbox.Stats
		if _, err := fmt.Sscanf(line, "stats %s %d %d %d %d %d %d\n", &name, &s.Received, &s.Repeated, &s.Filled, &s.Overruns, &s.Refused, &s.Silences); err == nil {
			all[name] = s
		}
	}
	return all
}

// calmRounds is how often is appended once more when the consumer has not received all that was: it may have found the
// broker again in the middle.
const calmRounds = 3

// fed waits until the consumer that is left, which has outlived the broker's last restart, has received from the broker
// what was appended since the stats before.
func (w *torture) fed(before map[string]outbox.Stats, events int64, last bool) bool {
	w.t.Helper()
	limit := patience / calmRounds
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	all := true
	for _, m := range models {
		for {
			s := w.stats()[m.name]
			if got := s.Received - before[m.name].Received; got >= events {
				w.t.Logf("%s: the last consumer received %d messages (repeated %d, refused %d), filled %d in from the outbox, overruns %d, silences %d",
					m.name, s.Received, s.Repeated, s.Refused, s.Filled, s.Overruns, s.Silences)
				break
			} else if !pause(ctx, sayEvery) {
				all = false
				text := fmt.Sprintf("%s: the last consumer has received %d of %d messages from the broker within %v, although it has applied them",
					m.name, got, events, limit)
				if last {
					w.t.Error(text + ": it did not find it again")
				} else {
					w.t.Log(text)
				}
				break
			}
		}
	}
	return all
}

// published waits until a relay has published everything.
func (w *torture) published() {
	w.t.Helper()
	relay, err := outbox.NewRelay(w.pool, w.store.Outbox(), nobody{}, outbox.Config{}) // to ask only
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), afterwards)
	defer cancel()
	for {
		lag, err := relay.Lag(ctx)
		if err == nil && lag.Behind == 0 {
			return
		}
		if !pause(ctx, 20*time.Millisecond) {
			w.t.Fatalf("the relays are not done within %v: %+v, %v", afterwards, lag, err)
		}
	}
}

// nobody is the publisher of a relay that does not run.
type nobody struct{}

func (nobody) Publish(string, ...*message.Message) error {
	return errors.New("brokertest: this relay does not run")
}
func (nobody) Close() error { return nil }

func ask[T any](ctx context.Context, w *torture, m model, sql string) (v T, err error) {
	err = w.pool.QueryRow(ctx, m.sql(sql)).Scan(&v)
	return v, err
}

// tail is the end of a file, for the log of a test that failed.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

const tookSQL = `
SELECT format('p50 %s ms, p99 %s ms, max %s ms', round((percentile_cont(0.5) WITHIN GROUP (ORDER BY ms))::numeric, 1),
              round((percentile_cont(0.99) WITHIN GROUP (ORDER BY ms))::numeric), round(max(ms)::numeric))
  FROM readmodels.{model}_took`
