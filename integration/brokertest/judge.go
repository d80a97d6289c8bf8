//go:build unix

package brokertest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
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
	w.stats()
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

// stats asks the consumer that is left to end, and reads what it says: it has outlived the broker's last restart, and
// must have had the calm events from the broker.
func (w *torture) stats() {
	w.t.Helper()
	p := w.running["consumer"]
	if err := p.stop(); err != nil {
		w.t.Errorf("the consumer: %v", err)
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		w.t.Fatal(err)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "stats "); ok {
			name, numbers, _ := strings.Cut(strings.TrimSpace(rest), " ")
			said[name] = numbers
		}
	}
	for _, m := range models {
		var received, repeated, filled, overruns, refused, silences int
		if _, err := fmt.Sscan(said[m.name], &received, &repeated, &filled, &overruns, &refused, &silences); err != nil {
			w.t.Errorf("%s: the consumer said %q when it ended: %v", m.name, said[m.name], err)
			continue
		}
		w.t.Logf("%s: the last consumer received %d messages (repeated %d, refused %d), filled %d in from the store, overruns %d, silences %d",
			m.name, received, repeated, refused, filled, overruns, silences)
		if received < calmEvents {
			w.t.Errorf("%s: the last consumer has received %d messages from the broker, want at least %d: it did not find it again", m.name, received, calmEvents)
		}
	}
}

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
