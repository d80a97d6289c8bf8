package api

import (
	"context"
	"errors"

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
	switch {
	case errors.As(err, &stale):
		return &commandhttp.StaleError{Lag: commandhttp.Lag{Want: stale.Want, Have: stale.Have, Behind: stale.Behind, Working: !stale.Idle}}
	case errors.As(err, &stopped): // the reason may quote an event: it is for the log of the process that stopped
		return &commandhttp.StoppedError{What: "the projection " + stopped.Projection, State: stopped.State, Since: stopped.Since}
	}
	return err
}
