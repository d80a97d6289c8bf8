package saga_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// effects is what the log says has happened.
type effects struct {
	of     map[string]map[string]int // by order: what, how often
	pieces map[string]int            // by goods
	cents  map[string]int            // by purse
	caused map[string]int            // by command: how many events
	placed map[string]time.Time
}

func (w *tortureWorld) effects(ctx context.Context) (effects, error) {
	f := effects{map[string]map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}, map[string]time.Time{}}
	for e, err := range w.store.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			return f, err
		}
		payload, err := orderEvents.Decode(e)
		if err != nil {
			return f, err
		}
		what, order, perPaper := strings.Cut(e.Stream.ID, "-")
		if !perPaper {
			order = e.Stream.ID
		}
		name := strings.TrimPrefix(e.Type, "paper.")
		if perPaper {
			name = what + " " + name
		}
		switch p := payload.(type) {
		case placement:
			f.placed[order] = e.RecordedAt
			continue
		case settled:
			name = p.How
		case held:
			order = p.Order
			f.pieces[e.Stream.ID] += p.Pieces
		case freed:
			order = p.Order
			f.pieces[e.Stream.ID] -= p.Pieces
		case soldOut:
			order = p.Order
		case paid:
			order = p.Order
			f.cents[e.Stream.ID] += p.Cents
		case repaid:
			order = p.Order
			f.cents[e.Stream.ID] -= p.Cents
		case declined:
			order = p.Order
		}
		if f.of[order] == nil {
			f.of[order] = map[string]int{}
		}
		f.of[order][name]++
		f.caused[e.Metadata.CausationID]++
	}
	return f, nil
}

// effectsOf are what an order must have brought about. What is drawn while the saga turns around may be drawn or not; then it
// is torn or not.
func effectsOf(f fate) (must map[string]int, may string) {
	completed := map[string]int{"goods.held": 1, "purse.paid": 1, "label drawn": 1, "invoice drawn": 1, "parcel drawn": 1, "completed": 1}
	switch f {
	case hasty:
		completed["label busy"] = 1
	case penniless:
		return map[string]int{"goods.held": 1, "purse.declined": 1, "goods.freed": 1, "compensated": 1}, ""
	case lacking:
		return map[string]int{"goods.sold-out": 1, "compensated": 1}, ""
	case forbidden:
		return map[string]int{"goods.held": 1, "purse.paid": 1, "purse.repaid": 1, "goods.freed": 1, "compensated": 1}, "invoice"
	case silent:
		return map[string]int{"goods.held": 1, "purse.paid": 1, "purse.repaid": 1, "goods.freed": 1, "compensated": 1}, "consent"
	}
	return completed, ""
}

// audit is what is wrong with n orders, of which all must have ended, and how long the slowest took from being placed to its end.
func (w *tortureWorld) audit(ctx context.Context, n int) (faults []string, slowest time.Duration, err error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	f, err := w.effects(ctx)
	if err != nil {
		return nil, 0, err
	}
	pieces, cents := map[string]int{}, map[string]int{}
	for i := range n {
		o, got := orderOf(i, n), f.of[keyOf(i)]
		want, may := effectsOf(o.Fate)
		if k := got[may+" drawn"]; may != "" && k <= 1 && k == got[may+" torn"] {
			delete(got, may+" drawn")
			delete(got, may+" torn")
		}
		if !maps.Equal(got, want) {
			fault("%s (%s) has brought about %v, want %v", keyOf(i), o.Fate, got, want)
		}
		pieces[o.Goods] += 0
		cents[o.Purse] += 0
		if o.Fate.completes() {
			pieces[o.Goods] += o.Pieces
			cents[o.Purse] += o.Cents
		}
	}
	sums(fault, "pieces", f.pieces, pieces)
	sums(fault, "cents", f.cents, cents)
	for command, k := range f.caused {
		if k != 1 || command == "" {
			fault("command %q has had %d effects", command, k)
		}
	}
	slowest, err = w.ends(ctx, fault, f, n)
	if err != nil {
		return faults, slowest, err
	}
	if err := w.transitions(ctx, fault); err != nil {
		return faults, slowest, err
	}
	for what, sql := range map[string]string{
		"deadlocks":                        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
		"commands whose ends nobody heard": "SELECT count(*) FROM daybook.saga_commands WHERE replied_at IS NULL AND NOT closed",
		"timers that are left":             "SELECT count(*) FROM daybook.timers",
		"letters":                          "SELECT count(*) FROM daybook.parked",
		"inputs that are held":             "SELECT count(*) FROM daybook.saga_inputs",
	} {
		var k int
		if err := w.pool.QueryRow(ctx, sql).Scan(&k); err != nil {
			return faults, slowest, err
		}
		if k != 0 {
			fault("%d %s", k, what)
		}
	}
	slices.Sort(faults)
	return faults, slowest, nil
}

// sums compares what is in the aggregates, one by one and together.
func sums(fault func(string, ...any), what string, got, want map[string]int) {
	total := map[bool]int{}
	for id := range want {
		total[true] += want[id]
		if got[id] != want[id] {
			fault("%d %s in %s, want %d", got[id], what, id, want[id])
		}
	}
	for _, k := range got {
		total[false] += k
	}
	if total[false] != total[true] {
		fault("%d %s in all, want %d", total[false], what, total[true])
	}
}

// ends looks at the instances.
func (w *tortureWorld) ends(ctx context.Context, fault func(string, ...any), f effects, n int) (slowest time.Duration, err error) {
	rows, err := w.pool.Query(ctx, "SELECT key, run, state, stuck || ' ' || stuck_text, coalesce(ended_at, 'epoch') FROM daybook.sagas")
	if err != nil {
		return 0, err
	}
	var key, state, stuck string
	var run int
	var ended time.Time
	seen := map[string]bool{}
	_, err = pgx.ForEachRow(rows, []any{&key, &run, &state, &stuck, &ended}, func() error {
		var i int
		if _, err := fmt.Sscanf(key, "o%d", &i); err != nil {
			return err
		}
		want := "compensated"
		if fateOf(i).completes() {
			want = "completed"
		}
		if state != want || run != 1 || stuck != " " || ended.Unix() == 0 {
			fault("%s is %s in run %d, stuck %q, ended %v; want it %s", key, state, run, stuck, ended, want)
		}
		seen[key] = true
		slowest = max(slowest, ended.Sub(f.placed[key]))
		return nil
	})
	for i := range n {
		if !seen[keyOf(i)] {
			fault("%s has not begun", keyOf(i))
		}
	}
	return slowest, err
}

// transitions looks for steps that were done twice, or undone twice, and for beginnings and ends that came twice.
func (w *tortureWorld) transitions(ctx context.Context, fault func(string, ...any)) error {
	rows, err := w.pool.Query(ctx, "SELECT key || ' run ' || run, kind, step, text FROM daybook.saga_history ORDER BY key, run, entry")
	if err != nil {
		return err
	}
	var of, kind, step, text, instance string
	var done map[string]bool
	var undos, undone, late, once map[string]int
	twice := func(is bool) {
		if is {
			fault("%s: %s %s (%s) came twice", of, step, kind, text)
		}
	}
	_, err = pgx.ForEachRow(rows, []any{&of, &kind, &step, &text}, func() error {
		if of != instance {
			instance, done = of, map[string]bool{}
			undos, undone, late, once = map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
		}
		switch kind {
		case "started", "completed":
			once[kind]++
			twice(once[kind] > 1)
		case "compensated": // an answer that comes behind the end is undone, and then it ends again
			once[kind]++
			all := 0
			for _, n := range late {
				all += n
			}
			twice(once[kind] > 1+all)
		case "sent":
			twice(done[step])
		case "answered":
			twice(done[step])
			done[step] = true
		case "late": // it is undone once more
			late[step]++
			twice(late[step] > 1)
		case "undo":
			undos[step]++
			twice(undos[step] > 1+late[step])
		case "undone":
			undone[step]++
			twice(undone[step] > undos[step])
			done[step] = false
		case "stuck", "sent again", "action":
			fault("%s: %s %s: %s", of, step, kind, text)
		}
		return nil
	})
	return err
}
