// Package retry decides when something that failed is tried again, when it is given up, and how what is known of the
// failure is written down. Consumers, the relay and the inbox share it, so that a failure means the same everywhere. It
// does nothing itself: no input or output, no goroutines; the time is passed in and so is chance.
//
//	policy := retry.Policy{}                 // 5 attempts, pauses below 1, 2, 4 and 8 s
//	failed++                                 // the attempt that has just failed, transient
//	if policy.Spent(failed) {
//		park(retry.Chain(err), retry.Fingerprint(handler, kind, err))
//	} else {
//		due = now.Add(policy.Delay(failed, rand.Float64))
//	}
//	…
//	if ok, wait := budget.Retry(now); !ok {  // when it is due
//		due = now.Add(wait)              // failed stays as it is
//	}
//
// # Guarantees
//
//   - A [Policy] never asks for a pause longer than its cap, and all pauses of one message together are at most
//     [Policy.Worst].
//   - A [Budget] lets a retry through only if the retries of the 10 s that end with it are at most the share of the first
//     attempts of those 10 s, or the floor. Its memory is constant.
//   - An open [Breaker] lets one attempt through at a time, none before its pause is over.
//   - Clocks that jump back lengthen a pause or keep the budget full for at most a second.
//   - [Chain] and [Fingerprint] survive errors whose methods panic or that wrap themselves.
//
// # Caveats
//
//   - [Policy], [Estimate] and the functions may be used from many goroutines, and so may a [Budget], which all workers of
//     a handler share. A [Breaker] may not: it belongs to the one worker that holds the segment.
//   - A budget counts what happens in its own process. Two processes with the same handler have two shares of two loads.
//   - While the budget is spent, a message may wait longer than [Policy.Worst]: what is put off uses up no attempt.
//   - There is no order among the retries that a budget has put off.
//   - A clock that jumps ahead ends pauses early, and lets the budget forget.
//   - [Chain] holds the texts of errors as they are. What a handler writes into its errors is stored.
//   - [Fingerprint] looks at the innermost errors. Two failures that wrap one sentinel in different words share a group.
//
// # Errors
//
//	Policy.Validate, BudgetConfig.Validate   all faults joined; each names field, value and remedy
//	NewBudget                                the same
package retry
