package shop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/examples/checkout/provider"
)

// region payments

// take asks the provider for money, and notes the answer. It may run more than once: the provider knows the key.
func (s *Shop) take(ctx context.Context, c payment.Take) (bus.Reply, error) {
	command, _ := bus.CommandFrom(ctx) // it is there in every handler
	charge := command.ID.String()
	answer, err := s.provider.Charge(ctx, charge, provider.Charge{Order: c.Order, Account: c.Account, Card: c.Card, Cents: c.Cents})
	switch {
	case errors.Is(err, provider.ErrVoid):
		return s.note(ctx, c.Order, payment.Abandon{}.Decide)
	case err != nil: // nobody knows whether anything was taken
		return bus.Reply{}, aggregate.Transient(err)
	}
	switch answer {
	case provider.Declined:
		return s.note(ctx, c.Order, payment.Decline{Charge: charge, Reason: "the card was declined"}.Decide)
	case provider.Busy:
		return s.note(ctx, c.Order, payment.Postpone{Charge: charge, Reason: "the provider is busy"}.Decide)
	}
	return s.note(ctx, c.Order, payment.Request{Charge: charge, Cents: c.Cents}.Decide)
}

// refund gives back what the command took that this one undoes. Nothing may have been taken, or nothing yet: the provider
// sees to it that it never is.
func (s *Shop) refund(ctx context.Context, c payment.Refund) (bus.Reply, error) {
	command, _ := bus.CommandFrom(ctx)
	charge := command.Undoes.String()
	refund, err := s.provider.Refund(ctx, "undo:"+charge, charge)
	if err != nil {
		return bus.Reply{}, aggregate.Transient(err)
	}
	return s.note(ctx, c.Order, payment.GiveBack{Charge: charge, Cents: refund.Cents}.Decide)
}

// endregion

func (s *Shop) note(ctx context.Context, order string, decide func(payment.Payment) ([]payment.Event, error)) (bus.Reply, error) {
	result, err := s.Payments.Handle(ctx, order, decide)
	return bus.Reply{
		Stream: payment.Type.Stream(order), Version: result.Version, Token: result.Token, Repeated: result.Repeated, Attempts: result.Attempts,
	}, err
}

// WebhookPath is where the provider tells what was taken.
const WebhookPath = "/webhooks/payments"

// maxWebhook is more than any webhook has.
const maxWebhook = 1 << 16

// Webhooks receives the provider's webhooks, which the secret signs. One that cannot be stored now is answered with 503, so
// that it comes again.
func (s *Shop) Webhooks(secret string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxWebhook))
		if err != nil || !provider.Verify(secret, body, r.Header.Get(provider.SignatureHeader)) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var hook provider.Webhook
		if err := json.Unmarshal(body, &hook); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		switch err := s.settle(r.Context(), hook); {
		case errors.Is(err, payment.ErrAmount):
			w.WriteHeader(http.StatusUnprocessableEntity)
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

// settle notes what was taken. The charge has the id of the command that asked for it, which makes the event the answer to
// that command, and to no other attempt.
func (s *Shop) settle(ctx context.Context, hook provider.Webhook) error {
	ctx = eventstore.WithMetadata(ctx, eventstore.Metadata{CausationID: hook.Charge, Actor: "payment provider"})
	_, err := s.Payments.Handle(ctx, hook.Order, payment.Settle{
		Order: hook.Order, Charge: hook.Charge, Receipt: hook.Receipt, Cents: hook.Cents,
	}.Decide)
	return err
}
