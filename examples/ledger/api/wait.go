package api

import (
	"context"
	"errors"
	"time"

	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/reports"
	"github.com/daybook-go/daybook/projection"
)

// seen waits until the balances show a token, and says in the words of commandhttp why they do not.
func (a *API) seen(ctx context.Context, token eventstore.Token) error {
	err := a.waiter.WaitFor(ctx, token, reports.Balances)
	var stale *projection.StaleError
	var stopped *projection.StoppedError
	var parked *projection.ParkedError
	switch {
	case errors.As(err, &stale):
		return &commandhttp.StaleError{Lag: commandhttp.Lag{Want: stale.Want, Have: stale.Have, Behind: stale.Behind, Working: !stale.Idle}}
	case errors.As(err, &stopped): // the reason may quote an event: it is for the log of the process that stopped
		return &commandhttp.StoppedError{What: "the projection " + stopped.Projection, State: stopped.State, Since: stopped.Since}
	case errors.As(err, &parked): // the sequence names an account, perhaps another one's: it is for the log
		return &commandhttp.SetAsideError{
			Lag: lagOf(parked, token), What: "the projection " + parked.Projection, Since: parked.Since, RetryAfter: parked.RetryAfter(time.Now()),
		}
	}
	return err
}

// lagOf is how far the balances are behind in the partition of what was set aside. How many events that are is not known.
func lagOf(parked *projection.ParkedError, token eventstore.Token) commandhttp.Lag {
	lag := commandhttp.Lag{Have: eventstore.PositionAt(parked.Position.Ordinal() - 1), Behind: -1, Working: true}
	for _, m := range token.Marks() {
		if m.Partition == parked.Partition {
			lag.Want = m.Position
		}
	}
	return lag
}
