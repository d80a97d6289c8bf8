package deadletter

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

func TestListAndShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	a := w.append("1", "secret 1")
	b := w.append("2", "x")
	a2, a3 := w.append("1", "later"), w.append("1", "last")
	first := k.fail(a, "no such account 17")
	second := k.fail(b, "no such account 18")
	k.pass(a2)
	k.pass(a3)

	page := must[Page](t)(w.letters.List(t.Context(), Filter{}))
	if len(page.Letters) != 2 || page.Next != "" || page.Letters[0].ID != first || page.Letters[1].ID != second {
		t.Fatalf("list: %+v", page)
	}
	l := page.Letters[0]
	want := Letter{
		ID: first, Consumer: "orders", Version: 1, Sequence: "order-1", Partition: a.Partition, Position: a.Position, State: Parked,
		Kind: "permanent", Attempts: 1, Round: 1, Fingerprint: l.Fingerprint, Error: "orders: book order-1: no such account 17",
		FirstFailedAt: w.base, LastFailedAt: w.base, Handler: "orders", Program: l.Program, MessageID: a.ID, Type: "order.paid",
		Stream: "order-1", StreamVersion: 1, RecordedAt: a.RecordedAt,
	}
	if l != want || l.Fingerprint == "" || l.Program == "" {
		t.Errorf("got\n%+v, want\n%+v", l, want)
	}

	d := must[Detail](t)(w.letters.Show(t.Context(), first))
	if d.Letter != want {
		t.Errorf("show: got\n%+v, want\n%+v", d.Letter, want)
	}
	m := d.Message
	if !bytes.Equal(m.Data, a.Data) || m.ID != a.ID || m.ContentType != a.ContentType || m.Metadata.Headers["trace"] != "t1" ||
		m.Metadata.Actor != "shop" || m.Stream != a.Stream || m.Version != a.Version || m.Position != a.Position ||
		m.PartitionKey != "order-1" || m.SchemaVersion != a.SchemaVersion || !m.RecordedAt.Equal(a.RecordedAt) {
		t.Errorf("the message is not as it was: %+v, want %+v", m, a)
	}
	if !slices.Equal(d.Errors, []string{"orders: book order-1: no such account 17", "no such account 17"}) || !slices.Equal(d.Errors, d.FirstErrors) {
		t.Errorf("chains %q, %q", d.Errors, d.FirstErrors)
	}
	if q := d.Waiting; q == nil || q.State != "parked" || q.Queued != 2 || q.First != a.Position || q.Last != a3.Position {
		t.Errorf("what waits: %+v", q)
	}
	if _, err := w.letters.Show(t.Context(), uuid.New()); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown letter: %v", err)
	}
}

// Every letter is on one page, in one order, whatever a page looks at and however small it is.
func TestPagesOfAList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	orders, bills := w.worker("orders"), w.worker("bills")
	for i := range 30 {
		e := w.append(fmt.Sprint(i), "x")
		orders.fail(e, []string{"no such account", "the amount is odd"}[i%2])
		bills.fail(e, "closed")
	}
	var closed []uuid.UUID
	for i := range 7 {
		p := must[Page](t)(w.letters.List(t.Context(), Filter{Consumer: "bills", Limit: 1}))
		o := ann
		o.Reason = fmt.Sprint("no ", i)
		must[Discards](t)(w.letters.Discard(t.Context(), One(p.Letters[0].ID), o))
		closed = append(closed, p.Letters[0].ID)
	}
	groups := must[[]Group](t)(w.letters.Groups(t.Context(), Filter{Consumer: "orders"}))
	if len(groups) != 2 || groups[0].Letters != 15 || groups[1].Letters != 15 {
		t.Fatalf("groups: %+v", groups)
	}
	for _, c := range []struct {
		filter Filter
		want   int
	}{
		{Filter{}, 53},
		{Filter{State: Open}, 53},
		{Filter{State: Parked}, 53},
		{Filter{State: Retrying}, 0},
		{Filter{Consumer: "orders"}, 30},
		{Filter{Consumer: "orders", Version: 2}, 0},
		{Filter{Consumer: "orders", Sequence: "order-3"}, 1},
		{Filter{Fingerprint: groups[0].Fingerprint}, 15},
		{Filter{Fingerprint: groups[0].Fingerprint, Consumer: "orders", Version: 1}, 15},
		{Filter{Fingerprint: groups[0].Fingerprint, Consumer: "orders", Version: 1, Type: "order.shipped"}, 0},
		{Filter{Type: "order.paid"}, 53},
		{Filter{Kind: "transient"}, 0},
		{Filter{Kind: "permanent", Consumer: "bills"}, 23},
		{Filter{Since: w.base}, 53},
		{Filter{Since: w.base.Add(time.Microsecond)}, 0},
		{Filter{Until: w.base}, 0},
		{Filter{Until: w.base.Add(time.Microsecond)}, 53},
		{Filter{State: Closed}, 7},
		{Filter{State: Discarded, Consumer: "bills"}, 7},
		{Filter{State: Discarded, Consumer: "orders"}, 0},
		{Filter{State: Applied}, 0},
	} {
		var whole []Letter
		for _, limit := range []int{0, 1, 4, 1000} {
			f := c.filter
			f.Limit = limit
			var all []Letter
			for pages := 0; ; pages++ {
				p := must[Page](t)(w.letters.List(t.Context(), f))
				all = append(all, p.Letters...)
				if f.After = p.Next; p.Next == "" {
					break
				}
				if pages > 60 || limit > 0 && len(p.Letters) > limit {
					t.Fatalf("%s by %d: page %d has %d", c.filter, limit, pages, len(p.Letters))
				}
			}
			if whole == nil {
				whole = all
			}
			if len(all) != c.want || !slices.Equal(all, whole) && len(all) > 0 {
				t.Errorf("%s by %d: %d letters, want %d in one order", c.filter, limit, len(all), c.want)
			}
		}
	}
	p := must[Page](t)(w.letters.List(t.Context(), Filter{State: Closed}))
	for i, l := range p.Letters {
		if l.ID != closed[i] || l.State != Discarded || l.ClosedBy != ann.Actor || l.Reason != fmt.Sprint("no ", i) || l.ClosedAt.IsZero() {
			t.Errorf("closed letter %d: %+v", i, l)
		}
	}
}

// A page that looks at few letters of which none fits says where to go on.
func TestAPageLooksAtABoundedNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	var last uuid.UUID
	for i := range 10 {
		last = k.fail(w.append(fmt.Sprint(i), "x"), "odd")
	}
	w.exec(`UPDATE daybook.letters SET type = 'order.rare' WHERE letter = $1`, last)
	f := Filter{Type: "order.rare", Limit: 5}
	var got []Letter
	pages := 0
	for ; pages < 10; pages++ {
		after := must[*cursor](t)(f.after())
		sql, args := f.listSQL(after, 3)
		tx := must[pgx.Tx](t)(w.pool.Begin(t.Context()))
		p := must[Page](t)(w.letters.page(t.Context(), tx, f, 3, sql, args))
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Letters...)
		if f.After = p.Next; p.Next == "" {
			break
		}
	}
	if len(got) != 1 || got[0].ID != last || pages != 3 {
		t.Errorf("%d letters after %d pages, want the rare one after 3", len(got), pages)
	}
}

func TestFiltersThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	for _, c := range []struct {
		filter Filter
		field  string
	}{
		{Filter{Version: -1}, "Filter.Version"},
		{Filter{Version: 1}, "Filter.Version"},
		{Filter{Consumer: "x", Version: 1 << 31}, "Filter.Version"},
		{Filter{Sequence: "order-1"}, "Filter.Sequence"},
		{Filter{Limit: -1}, "Filter.Limit"},
		{Filter{Limit: 1001}, "Filter.Limit"},
		{Filter{Kind: "bad"}, "Filter.Kind"},
		{Filter{State: "dead"}, "Filter.State"},
		{Filter{Since: w.base, Until: w.base}, "Filter.Until"},
		{Filter{Type: "a\x00b"}, "Filter.Type"},
		{Filter{Consumer: "a\xffb"}, "Filter.Consumer"},
		{Filter{After: "???"}, "Filter.After"},
		{Filter{After: cursor{Order: byClosing}.String()}, "Filter.After"},
	} {
		_, err := w.letters.List(t.Context(), c.filter)
		var invalid *eventstore.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != c.field || strings.Count(err.Error(), "deadletter:") != 1 {
			t.Errorf("%+v: %v, want a fault of %s", c.filter, err, c.field)
		}
	}
	for _, f := range []Filter{{Type: "x"}, {Topic: "x"}, {Kind: "transient"}, {State: Closed}, {Consumer: "x", Sequence: "y"}, {After: "x"}} {
		if _, err := w.letters.Groups(t.Context(), f); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("groups of %+v: %v", f, err)
		}
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	orders, bills := w.worker("orders"), w.worker("bills")
	for i := range 5 {
		w.base = w.base.Add(time.Minute)
		orders.fail(w.append(fmt.Sprint(i), "x"), fmt.Sprint("no such account ", i))
	}
	bills.fail(w.append("b", "x"), "no such account 9")
	odd := bills.fail(w.append("odd", "x"), "the amount is odd")
	groups := must[[]Group](t)(w.letters.Groups(t.Context(), Filter{}))
	if len(groups) != 3 {
		t.Fatalf("groups: %+v", groups)
	}
	g := groups[0]
	if g.Consumer != "orders" || g.Letters != 5 || !g.Newest.Equal(w.base) || !g.Oldest.Equal(w.base.Add(-4*time.Minute)) ||
		!strings.Contains(g.Error, "no such account 4") || g.Type != "order.paid" || g.Example == uuid.Nil {
		t.Errorf("the first group: %+v", g)
	}
	if got := must[[]Group](t)(w.letters.Groups(t.Context(), Filter{Since: w.base, Limit: 1})); len(got) != 1 {
		t.Errorf("one group: %+v", got)
	}
	must[Discards](t)(w.letters.Discard(t.Context(), One(odd), ann))
	if got := must[[]Group](t)(w.letters.Groups(t.Context(), Filter{Consumer: "bills", Version: 1})); len(got) != 1 || got[0].Letters != 1 {
		t.Errorf("a closed letter counts: %+v", got)
	}
}
