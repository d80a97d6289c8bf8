// Package shop carries out the commands of a checkout: most by letting an aggregate decide, those about money by asking the
// payment provider first. It also receives the provider's webhooks.
//
//	s := shop.New(store, store.Snapshots(), provider.NewClient(url, time.Second))
//	b := s.Bus(slog.Default())                 // for the dispatcher, and for the sender of the sagas
//	http.Handle("POST "+shop.WebhookPath, s.Webhooks(secret))
//
// # Guarantees
//
//   - A command takes effect once, however often it is carried out. What it asks the provider for is asked under its own id;
//     what undoes it asks under "undo:" and the id that it undoes. So several undos of one payment are one refund.
//   - A webhook takes effect once. What it brings about says by its causation id which command asked for the charge, so the
//     saga knows to which of several attempts it is the answer.
//
// # Caveats
//
// That the provider did not answer is a failure that may pass: the dispatcher asks again under the same id, and gives up
// after a few times. Then nobody knows what became of the money, and it is for the saga to undo.
//
// # Errors
//
// Those of the aggregates, and of package provider.
package shop
