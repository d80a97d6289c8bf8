package projection

import (
	"context"
	"sort"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// CatchUp applies the log up to the last event of a token and nothing beyond it, and returns. It is for programs that
// build a read model and end, and for tests that look at one at a certain moment; services call [Runner.Run]. What has
// been applied before stays. When another process works on a projection, CatchUp waits for that one.
//
// The errors are those of [Runner.Run] and [Waiter.WaitFor]. An event that fails is tried again as the configuration says:
// CatchUp waits for that, and ends with a [*ParkedError] when the event waits for people. Sequences that the token does not
// concern may be left set aside; the next runner goes on with them. The zero token is met at once.
func (r *Runner) CatchUp(ctx context.Context, token eventstore.Token) error {
	if token.IsZero() {
		return nil
	}
	var until eventstore.Position
	for _, m := range token.Marks() {
		if m.Position.After(until) {
			until = m.Position
		}
	}
	bounded := newRunner(r.pool, sourceUpTo(r.source, until), r.inner, r.defined)
	refs := make([]Named, len(r.defined))
	for i, d := range r.defined {
		refs[i] = named(d.ref)
	}

	running, stop := context.WithCancel(ctx)
	defer stop()
	waiting, giveUp := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- bounded.Run(running)
		giveUp() // also when the runner could not begin: then there is nothing to wait for
	}()
	waiter := NewWaiter(r.pool, WaiterConfig{})
	waiter.patient = true // this is who tries again
	reached := waiter.WaitFor(waiting, token, refs...)
	stop()
	if err := <-ended; err != nil {
		return err
	}
	return reached
}

type named consumer.Ref

func (n named) ConsumerRef() consumer.Ref { return consumer.Ref(n) }

func sourceUpTo(s Source, end eventstore.Position) Source {
	bounded := upTo{s, end}
	if sequences, ok := s.(consumer.SequenceReader); ok { // its pages end with what was applied before
		return struct {
			upTo
			consumer.SequenceReader
		}{bounded, sequences}
	}
	return bounded
}

// upTo is a source that ends at a position.
type upTo struct {
	Source
	end eventstore.Position
}

func (s upTo) ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	if !after.Before(s.end) {
		return eventstore.Page{Through: after}, nil
	}
	page, err := s.Source.ReadPage(ctx, after, f, limit)
	if page.Through.After(s.end) {
		page.Through = s.end
		n := sort.Search(len(page.Events), func(i int) bool { return page.Events[i].Position.After(s.end) })
		page.Events = page.Events[:n]
	}
	return page, err
}

// Carries says what the source does: a projection that is caught up with from a topic has followed that topic.
func (s upTo) Carries() string { return consumer.CarriedBy(s.Source) }

// Begin lets the source know who reads it.
func (s upTo) Begin(ctx context.Context, db *pgxpool.Pool, ref consumer.Ref) (eventstore.Position, error) {
	return consumer.BeginAt(ctx, s.Source, db, ref)
}

func (s upTo) Wait(ctx context.Context, after eventstore.Position) error {
	if after.Before(s.end) {
		return s.Source.Wait(ctx, after)
	}
	<-ctx.Done()
	return ctx.Err()
}
