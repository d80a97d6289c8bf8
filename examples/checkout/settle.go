package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-go/daybook/examples/checkout/audit"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/saga"
)

const (
	// lookEvery is how often is looked how far everything is.
	lookEvery = 200 * time.Millisecond
	// tellEvery is how often that is told.
	tellEvery = 5 * time.Second
	// stuckFor is how long nothing but stuck orders may be left before that is told; some may be helped by a late answer.
	stuckFor = 5 * time.Second
)

// sight is what is under way at one moment.
type sight struct {
	orders, compensating, stuck int    // sagas of orders
	others                      int    // sagas beside them, of this program
	untold                      int    // webhooks
	head                        string // of the log
}

func (s sight) left() int { return s.orders + s.others }

// String is for people who wait.
func (s sight) String() string {
	text := fmt.Sprintf("%s under way, %d of them being undone, %d stuck", count(s.orders, "order"), s.compensating, s.stuck)
	if s.others > 0 {
		text += "; beside them " + count(s.others, "other saga")
	}
	if s.untold > 0 {
		text += "; " + count(s.untold, "webhook") + " not taken"
	}
	return text
}

func (r *running) look(ctx context.Context) (s sight, err error) {
	counts, err := saga.Counts(ctx, r.pool)
	if err != nil {
		return s, err
	}
	s.add(counts)
	if s.untold, err = r.provider.Untold(ctx); err != nil {
		return s, err
	}
	head, err := r.store.HeadToken(ctx)
	s.head = head.String()
	return s, err
}

// add counts what is of this program: other programs may have sagas in the same store.
func (s *sight) add(counts []saga.Count) {
	for _, c := range counts {
		switch under := c.Running + c.Compensating; {
		case c.Saga == checkout.Definition.Name():
			s.orders, s.compensating, s.stuck = under, c.Compensating, c.Stuck
		case slices.ContainsFunc(checkout.All(), func(d saga.Definition) bool { return d.Name() == c.Saga }):
			s.others += under
		}
	}
}

// settled waits until every order has ended and nothing is under way any more, of this run and of those before, and returns
// the books as they are then.
func (r *running) settled(ctx context.Context) (*audit.Books, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var before sight
	changed, told := time.Now(), time.Now()
	for {
		now, err := r.look(ctx)
		if err != nil {
			return nil, err
		}
		still := now == before
		if !still {
			before, changed = now, time.Now()
		}
		// What is still for a moment may have ended: then the books say so.
		if still && now.left() == 0 && now.untold == 0 {
			books, err := audit.Read(ctx, r.store)
			if err != nil || books.Open() == 0 && books.Reserved() == 0 {
				return books, err
			}
		}
		rests := time.Since(changed)
		if rests > patience || rests > stuckFor && now.stuck > 0 && now.stuck == now.orders {
			return nil, r.unsettled(ctx, now)
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			fmt.Fprintln(r.notes, now)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// explained is how many orders are explained that have not ended.
const explained = 5

// unsettled prints what has ended, and returns what has not, and why.
func (r *running) unsettled(ctx context.Context, now sight) error {
	books, err := audit.Read(ctx, r.store)
	if err != nil {
		return err
	}
	if _, err := r.outcomes(ctx, books); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "not all has ended: %s", now)
	for _, d := range checkout.All() {
		for _, state := range []string{"running", "compensating"} {
			page, err := saga.List(ctx, r.pool, saga.Filter{Saga: d.Name(), State: state, Limit: explained})
			if err != nil {
				return err
			}
			for _, s := range page.Sagas {
				e, err := saga.Explain(ctx, r.pool, s.Saga, s.Key)
				if err != nil {
					return err
				}
				fmt.Fprintf(&text, "\n%s", e.Sentence)
			}
		}
	}
	return fmt.Errorf("%s", text.String())
}
