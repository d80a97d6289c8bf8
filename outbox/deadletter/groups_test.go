package deadletter

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// crowd stores open letters of a consumer, of groups of given sizes.
func (w *world) crowd(consumer string, sizes ...int) {
	w.t.Helper()
	for group, n := range sizes {
		w.exec(`INSERT INTO daybook.letters (letter, consumer, version, sequence, partition, position, state, kind, attempts, round, fingerprint,
		        errors, first_errors, first_failed_at, last_failed_at, handler, program, id, type, schema_version, flags, content_type,
		        tenant, correlation_id, causation_id, actor, headers, data, recorded_at)
		    SELECT gen_random_uuid(), $1, 1, 's' || i, 0, $3::bigint * 10000000 + i, 'parked', 'permanent', 1, 1, 'group' || to_char($3::int, 'FM0000'),
		           '{bad}', '{bad}', now(), $4::timestamptz + i * interval '1 ms', 'h', 'p', gen_random_uuid(), 't', 1, 0, '',
		           '', '', '', '', '', convert_to(repeat('x', 100), 'UTF8'), now()
		      FROM generate_series(1, $2::int) AS i`, consumer, n, group, w.base)
	}
}

// looked is how many rows of letters a statement looks at, and how many pages, as the server says.
func (w *world) looked(f Filter) (rows float64, pages int, plan string) {
	w.t.Helper()
	sql, args := f.groupsSQL()
	err := w.letters.read(w.t.Context(), "explain", func(tx pgx.Tx) error {
		if _, err := tx.Exec(w.t.Context(), groupsPlanSQL); err != nil {
			return err
		}
		return tx.QueryRow(w.t.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "+w.letters.sql(sql), args...).Scan(&plan)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	type node struct {
		Relation string  `json:"Relation Name"`
		Rows     float64 `json:"Actual Rows"`
		Removed  float64 `json:"Rows Removed by Filter"`
		Again    float64 `json:"Rows Removed by Index Recheck"`
		Loops    float64 `json:"Actual Loops"`
		Hit      int     `json:"Shared Hit Blocks"`
		Read     int     `json:"Shared Read Blocks"`
		Plans    []json.RawMessage
	}
	var walk func(json.RawMessage)
	walk = func(text json.RawMessage) {
		var n node
		if err := json.Unmarshal(text, &n); err != nil {
			w.t.Fatal(err)
		}
		if n.Relation == "letters" {
			rows += max(n.Rows+n.Removed+n.Again, 1) * n.Loops
			pages += n.Hit + n.Read
		}
		for _, p := range n.Plans {
			walk(p)
		}
	}
	var whole []struct{ Plan json.RawMessage }
	if err := json.Unmarshal([]byte(plan), &whole); err != nil {
		w.t.Fatal(err)
	}
	walk(whole[0].Plan)
	return rows, pages, plan
}

// R-LB01: groups of a million letters are found without looking at them all. What is not counted is said.
func TestGroupsOfManyLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.worker("orders")
	w.worker("bills")
	all := testscale.N(1_000_000)
	if testscale.Factor() < 1 { // twice as many as may be looked at
		all = 5 * maxCount
	}
	w.crowd("orders", all*6/10, all*3/10, 7)
	w.crowd("bills", all/10, 1)
	for _, analysed := range []bool{false, true} {
		if analysed { // a page that somebody still has in hand stays unmarked
			livetest.Eventually(t, "every page is marked as visible", func() bool {
				w.exec("VACUUM ANALYZE daybook.letters")
				return livetest.Ask[bool](t, w.pool, "SELECT relallvisible = relpages FROM pg_class WHERE oid = 'daybook.letters'::regclass")
			})
		}
		for _, c := range []struct {
			filter Filter
			groups int
		}{
			{Filter{}, 5}, {Filter{Consumer: "orders"}, 3}, {Filter{Consumer: "bills", Version: 1}, 2}, {Filter{Fingerprint: "group0001"}, 2},
			{Filter{Since: w.base.Add(5 * time.Millisecond)}, 4}, {Filter{Until: w.base.Add(time.Second)}, 5}, {Filter{Limit: 1}, 1},
		} {
			most := 4.0 * 5
			for _, n := range []int{all * 6 / 10, all * 3 / 10, 7, all / 10, 1} {
				most += float64(min(n, maxCount+1))
			}
			began := time.Now()
			groups := must[[]Group](t)(w.letters.Groups(t.Context(), c.filter))
			took := time.Since(began)
			rows, pages, plan := w.looked(c.filter)
			t.Logf("%s, analysed %t: %d groups of %d letters, %.0f rows, %d pages, %v", c.filter, analysed, len(groups), all, rows, pages, took)
			if len(groups) != c.groups {
				t.Errorf("%s: %d groups, want %d: %+v", c.filter, len(groups), c.groups, groups)
			}
			if rows > most {
				t.Errorf("%s: looks at %.0f rows of %d, want %.0f at most:\n%s", c.filter, rows, all, most, plan)
			}
			// A page of the index has about a hundred letters. Those that are passed by within it are no rows.
			if pages > int(most)/100+100 && analysed {
				t.Errorf("%s: looks at %d pages:\n%s", c.filter, pages, plan)
			}
		}
	}
	groups := must[[]Group](t)(w.letters.Groups(t.Context(), Filter{}))
	sizes := map[string]int{"orders group0000": all * 6 / 10, "orders group0001": all * 3 / 10, "bills group0000": all / 10}
	for i, g := range groups[:3] { // of 90 % of the letters or more
		if want := min(maxCount, sizes[g.Consumer+" "+g.Fingerprint]); int(g.Letters) != want || g.Consumer == "orders" && !g.More || !g.Oldest.Equal(w.base.Add(time.Millisecond)) {
			t.Errorf("group %d: %+v, want %d letters", i, g, want)
		}
	}
	if g := groups[3]; g.Letters != 7 || g.More || !g.Newest.Equal(w.base.Add(7*time.Millisecond)) {
		t.Errorf("a small group: %+v", g)
	}
}

// Many groups share what is counted.
func TestManyGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.worker("orders")
	sizes := make([]int, 500)
	for i := range sizes {
		sizes[i] = 3
	}
	sizes[123] = 300
	w.crowd("orders", sizes...)
	groups := must[[]Group](t)(w.letters.Groups(t.Context(), Filter{Limit: 3}))
	if len(groups) != 3 || groups[0].Fingerprint != "group0123" || groups[0].Letters != allCounts/500 || !groups[0].More || groups[1].Letters != 3 {
		t.Errorf("groups: %+v", groups)
	}
	if rows, _, plan := w.looked(Filter{}); rows > allCounts/500+500*8 {
		t.Errorf("looks at %.0f rows: %s", rows, plan)
	}
	if got := fmt.Sprint(len(must[[]Group](t)(w.letters.Groups(t.Context(), Filter{Limit: 1000})))); got != "500" {
		t.Errorf("%s groups", got)
	}
}
