package saga

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// many are instances k01 to k12, one a second from noon on: every third is stuck, every fourth has ended.
func many(t *testing.T) *rowWorld {
	w := newRowWorld(t)
	for i := 1; i <= 12; i++ {
		state, stuck := "running", ""
		var since, ended *time.Time
		at := after(i)
		if i%4 == 0 {
			state, ended = "completed", &at
		} else if i%3 == 0 {
			state, stuck, since = "compensating", flow.CompensationFailed, &at
			if i == 3 {
				stuck = flow.DeadLetter
			}
		}
		w.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, stuck, stuck_step, stuck_since, progress, content_type, data, started_by, started_at, changed_at, ended_at)
			VALUES ('checkout', $1, 1, 1, 'process', $2, $3, 's', $4, '{}', '', '', gen_random_uuid(), $5, $5, $6)`, fmt.Sprintf("k%02d", i), state, stuck, since, at, ended)
	}
	w.exec(`UPDATE daybook.sagas SET paused_at = $1 WHERE key IN ('k09', 'k10')`, after(40))
	w.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, progress, content_type, data, started_by) VALUES ('other', 'k', 1, 1, 'after', 'running', '{}', '', '', gen_random_uuid())`)
	return w
}

func TestListGoesThroughEverythingOnce(t *testing.T) {
	t.Parallel()
	w := many(t)
	for _, c := range []struct {
		filter Filter
		want   string
	}{
		{Filter{}, "k01 k02 k03 k04 k05 k06 k07 k08 k09 k10 k11 k12"},
		{Filter{Stuck: true}, "k03 k06 k09 k10"},
		{Filter{Reason: flow.CompensationFailed}, "k06 k09"},
		{Filter{Stuck: true, State: "running"}, "k10"},
		{Filter{Reason: flow.Paused}, "k09 k10"},
		{Filter{Reason: flow.Paused, Stuck: true}, "k09 k10"},
		{Filter{Reason: flow.Paused, State: "running", Older: 19 * time.Second}, "k10"},
		{Filter{Stuck: true, Older: 54 * time.Second}, "k03"},
		{Filter{State: "running"}, "k01 k02 k05 k07 k10 k11"},
		{Filter{State: "running", Older: 51 * time.Second}, "k01 k02 k05 k07"},
		{Filter{State: "compensating"}, "k03 k06 k09"},
		{Filter{State: "completed"}, "k04 k08 k12"},
		{Filter{State: "compensated"}, ""},
		{Filter{Older: 56 * time.Second}, "k01 k02 k03"},
		{Filter{State: "completed", Older: 55 * time.Second}, "k04"},
	} {
		for _, limit := range []int{0, 1, 2, 3} {
			f := c.filter
			f.Saga, f.Limit = "checkout", limit
			var keys []string
			for pages := 0; ; pages++ {
				page, err := List(t.Context(), w.pool, f, At(after(60)))
				if err != nil {
					t.Fatal(err)
				}
				if limit > 0 && len(page.Sagas) > limit || pages > 20 {
					t.Fatalf("%s: %d of %d, page %d", f, len(page.Sagas), limit, pages)
				}
				for _, s := range page.Sagas {
					keys = append(keys, s.Key)
				}
				if f.After = page.Next; f.After == "" {
					break
				}
			}
			if got := strings.Join(keys, " "); got != c.want {
				t.Errorf("%s by %d: %s, want %s", f, limit, got, c.want)
			}
		}
	}
	page, err := List(t.Context(), w.pool, Filter{Saga: "checkout", Stuck: true, Limit: 1})
	if err != nil || page.Sagas[0].Reason != flow.DeadLetter || page.Sagas[0].Step != "s" || !page.Sagas[0].StuckSince.Equal(after(3)) || page.Next == "" {
		t.Errorf("%+v, %v", page, err)
	}
	for _, f := range []Filter{
		{},
		{Saga: "checkout", Reason: "late"},
		{Saga: "checkout", State: "stuck"},
		{Saga: "checkout", Older: -1},
		{Saga: "checkout", Limit: 1001},
		{Saga: "checkout", After: page.Next},
		{Saga: "checkout", After: "x"},
		{Saga: "a\x00"},
	} {
		if _, err := List(t.Context(), w.pool, f); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	w := many(t)
	w.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at) VALUES ('saga:checkout', 'a', $1, $1), ('saga:checkout', 'b', $2, $2), ('saga:checkout', 'c', $1, $2)`, after(29), after(31))
	counts, err := Counts(t.Context(), w.pool, At(after(60)))
	want := []Count{{Saga: "checkout", Running: 6, Compensating: 3, Stuck: 3, StuckSince: after(3), Paused: 2, Timers: 1, OverdueSince: after(29)}, {Saga: "other", Running: 1}}
	if err != nil || fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v: %v", counts, want, err)
	}
	if counts, err := Counts(t.Context(), newRowWorld(t).pool); err != nil || counts == nil || len(counts) != 0 {
		t.Errorf("an empty store: %+v, %v", counts, err)
	}
}
