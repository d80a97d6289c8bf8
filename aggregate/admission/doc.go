// Package admission decides what is done when not everything can be. A [Gate] stands in front of everything else, even of
// reading a request's body: it lets requests in while there is room, lets a few wait, and sends the others away before
// anything was done for them.
//
//	gate, err := admission.New(admission.Config{})
//
//	pass, err := gate.Admit(ctx, admission.Request{Class: admission.Critical, Tenant: "acme"})
//	if err != nil {
//		return err // not executed; an *OverloadedError says when to come back
//	}
//	defer func() { pass.Done(err) }()
//
// A short queue is what keeps a full server useful. At 120 requests a second where 100 can be served, and clients that
// give up after a second, an unbounded queue serves one in fourteen in time, since it works on what nobody waits for any
// more. With twenty waiting it is five in six, none of them later than 0.21 s.
//
// # What happens at the door
//
//   - How many run at once follows the measured time that they take, between Config.MinConcurrency and MaxConcurrency:
//     when it grows with the number, the number comes down. The algorithm is that of failsafe-go's adaptivelimiter. Equal
//     bounds fix the number.
//   - Order: [Critical] before [Normal] before [Bulk]; within a class tenant by tenant; within a tenant first come, first
//     served.
//   - A full queue sends away the newest of the lowest class below the one that comes, of the tenant with the most
//     waiters there. Is there none below, then the newest of that tenant of its own class that has the most waiters, if it
//     still has as many as the one that comes afterwards. Else the one that comes.
//   - Work that is in vain is dropped as soon as that is known: it waited for as long as its class may, its context has
//     ended, or its deadline is nearer than the estimated duration.
//
// # Guarantees
//
//   - What was sent away was not executed: there is a [Pass] or an error, never both and never neither.
//   - No more run than the limit says, [Operator] not counted. A limit that has come down interrupts nothing.
//   - No more wait than Config.Queue, all classes together, and none longer than its class may. What a gate remembers is
//     bounded by that, however many tenants there are.
//   - A tenant with any number of waiters delays the request of another one of the same class by one turn.
//   - While a request waits, every place is taken. A context that ends takes its request out of the queue; a place that
//     it was given at that moment goes to the next.
//   - [Operator] is let in at once, always, unless its context has ended before.
//   - A [Gate] has no goroutine; a request that waits costs a channel and a timer. It runs in the virtual time of
//     testing/synctest.
//
// # Caveats
//
//   - A [Pass] that is never done takes its place for ever. Use a defer.
//   - The order of classes is strict: enough critical requests keep all others out. Whoever may choose the class of a
//     request must be trusted; so must whoever names its tenant.
//   - The share of a tenant is counted in requests, not in what they cost, and among those that wait: a tenant that is
//     alone may take every place.
//   - A gate is for one process. Several share what is behind them without knowing of each other; each finds its limit by
//     the durations that it measures.
//   - The limit moves a few times a second at most, after at least 25 measured requests, and swings around the best value.
//     It cannot know better than the durations: when everything is slow from the start, that is taken for normal.
//   - Durations of [Operator] are not measured.
//   - The estimated duration is one for all requests, the smoothed mean. Where some take much longer than others, give
//     them a gate of their own.
//
// # Errors
//
//	error                      meaning                                         the caller should
//	*OverloadedError           sent away, not executed; Reason says why        come back after RetryAfter: 503, or 429 for OverShare
//	context.Canceled           the caller left, not executed                   nothing
//	context.DeadlineExceeded   its time was up while it waited, not executed   answer busy, if anybody still listens
//	*eventstore.InvalidError   a class that does not exist                     mend the code
package admission
