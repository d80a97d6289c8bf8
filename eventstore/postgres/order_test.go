package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/testscale"
)

// R-OG09: every reading states its order. The rows are moved, so that without one they would come in another.
func TestOrderDoesNotDependOnWhereRowsLie(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	const streams, each = 10, 20
	rounds := max(testscale.N(20_000)/(streams*each), 2)
	ids := make([]eventstore.StreamID, streams)
	for i := range ids {
		ids[i] = newStream(fmt.Sprint("order", i%2))
	}
	for range rounds {
		for _, id := range ids {
			mustAppend(t, store, eventstore.To(id, eventstore.AnyVersion, manyEvents(each)...))
		}
	}
	mustExec(t, pool, `CLUSTER daybook.events_1 USING events_1_stream_version`)
	mustExec(t, pool, `ANALYZE daybook.events_1`)
	rows, err := pool.Query(t.Context(), `SELECT position FROM daybook.events_1`)
	if err != nil {
		t.Fatal(err)
	}
	if lying, err := pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || slices.IsSorted(lying) {
		t.Fatalf("the rows still lie in the order of their positions: %v", err)
	}

	rising := func(what string, want int, list []eventstore.RecordedEvent) {
		t.Helper()
		if len(list) != want {
			t.Errorf("%s: %d events, want %d", what, len(list), want)
		}
		for i := 1; i < len(list); i++ {
			if !list[i].Position.After(list[i-1].Position) {
				t.Fatalf("%s: position %s follows %s", what, list[i].Position, list[i-1].Position)
			}
		}
	}
	all := rounds * streams * each
	rising("log", all, logEvents(t, store, eventstore.Position{}))
	for _, id := range ids {
		list := streamEvents(t, store, id)
		rising("stream", rounds*each, list)
		for i, e := range list {
			if e.Version != eventstore.Version(i+1) {
				t.Fatalf("stream: version %d at place %d", e.Version, i+1)
			}
		}
	}
	for what, f := range map[string]eventstore.Filter{
		"pages": {}, "pages of a category": {Categories: []string{"order1"}}, "pages of a type": {Types: []string{"test.happened"}},
	} {
		var list []eventstore.RecordedEvent
		for after := (eventstore.Position{}); ; {
			page, err := store.Log().ReadPage(t.Context(), after, f, 333)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, page.Events...)
			if !page.Through.After(after) {
				break
			}
			after = page.Through
		}
		want := all
		if len(f.Categories) > 0 {
			want /= 2
		}
		rising(what, want, list)
	}
}
