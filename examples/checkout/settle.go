package main

import (
	"context"
	"fmt"
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
	running, compensating, stuck int
	untold                       int    // webhooks
	head                         string // of the log
}

func (s sight) left() int { return s.running + s.compensating }

func (r *running) look(ctx context.Context) (s sight, err error) {
	counts, err := saga.Counts(ctx, r.pool)
	if err != nil {
		return s, err
	}
	for _, c := range counts {
		s.running += c.Running
		s.compensating += c.Compensating
		s.stuck += c.Stuck
	}
	if s.untold, err = r.provider.Untold(ctx); err != nil {
		return s, err
	}
	head, err := r.store.HeadToken(ctx)
	s.head = head.String()
	return s, err
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
		if rests > patience || rests > stuckFor && now.stuck > 0 && now.stuck == now.left() {
			return nil, r.unsettled(ctx, now)
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			fmt.Fprintf(r.notes, "sagas under way: %d, of which %d are being compensated, and %d are stuck\n", now.left(), now.compensating, now.stuck)
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
	fmt.Fprintf(&text, "not all has ended: %s under way, %d of them stuck; %s not taken",
		count(now.left(), "saga"), now.stuck, count(now.untold, "webhook"))
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
