// Package payment is what the shop knows of the payment of an order. The money itself is at a provider, whom handlers ask
// before they let this aggregate decide; what the provider tells later comes by webhook.
//
//	payments := aggregate.NewRepository(store, payment.Type)
//	_, err := payments.Handle(ctx, "812", payment.Settle{Order: "812", Charge: id, Receipt: "r1", Cents: 9000}.Decide)
//
// # Guarantees
//
//   - A charge is noted as taken once and as refunded once, however often that is told, and in whichever order.
//
// # Caveats
//
// A charge is known by the id of the command that asked for it. An order may have several: when one has failed, or nobody
// knows what became of it, the next one is another.
//
// # Errors
//
//	ErrAmount    the provider tells of another amount than before
//	ErrVoid      the charge was refunded before it came
package payment
