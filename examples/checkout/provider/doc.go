// Package provider is a payment provider, as a service of its own over HTTP, with whom a shop has what one has with such
// services: it declines, it does not answer, it answers late, and twice.
//
//	p, err := provider.Open(ctx, pool, provider.Config{Webhook: "http://127.0.0.1:8080/webhooks/payments"})
//	server := &http.Server{Handler: p.Handler()}
//	err = p.Run(ctx) // sends the webhooks
//
//	client := provider.NewClient(url, time.Second)
//	answer, err := client.Charge(ctx, key, provider.Charge{Order: "812", Account: "ann", Card: "visa", Cents: 9000})
//	refund, err := client.Refund(ctx, "undo:"+key, key)
//
// Its accounts are in tables of its own, in the schema payment_provider: it outlives the program that it is a part of.
//
// # Guarantees
//
//   - A charge is known by the key under which it was asked for. The same key again gets the same answer, and takes nothing.
//   - Whoever refunds a charge that is not known has seen to it that it never will be: it is refused when it comes later.
//   - A charge is refunded once, however many refunds are asked for.
//   - That money was taken is told by a webhook, until it is acknowledged: at least once, and not in order.
//
// # What it does to whom
//
// What becomes of a charge is said by the card, as with the test cards of real providers, and the rest by chance: by a hash
// of the order and [Config].Seed, so that it is the same in every run.
//
//	card "declined"    it is declined
//	card "silent"      nobody answers; half of the time the money was taken all the same, and the webhook comes after the refund
//	any other          it is taken, but one in ten is told to come back, under another key, at first; some webhooks come twice,
//	                   late, or before the answer, and a few answers never come, although the money was taken
//
// # Errors
//
//	ErrVoid       the charge was refunded before it came
//	*StatusError  any other answer that is none
//	others        there was no answer: nobody knows what became of it; ask again under the same key, or refund
package provider
