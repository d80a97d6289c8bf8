// Package retrytest has the load that retries are tried with, and counts what came of it: one message in fifty always
// fails, three in ten of the other attempts do.
//
//	handle := func(m int) error { attempt[m]++; return retrytest.Fate(seed, m, attempt[m]) }
//	…
//	var tally retrytest.Tally
//	tally.Delivered(m, attempts, extra)      // or tally.Parked
//	if err := tally.Check(retry.Policy{}, false, slack); err != nil {
//		t.Error(err)
//	}
//
// # Guarantees
//
//   - What happens to a message depends on the seed, its number and the number of the attempt alone, so not on what
//     handles it, in which order, or how often it was restarted. [Outcome] says beforehand what must come of each.
//   - Of every fifty messages, counted from 0, exactly one always fails.
//   - [Tally.Check] refuses a fair run less than once in a million.
//
// # Caveats
//
//   - With the load as it is there is a retry for every second message: a [retry.Budget] with its defaults puts retries
//     off when more than about 20 messages a second arrive, and then messages wait longer than [retry.Policy.Worst]. To
//     measure pauses, let fewer arrive or give the budget a share of 2.
//   - [Tally.Check] judges messages of which none waits behind another of its sequence.
//
// # Errors
//
//	ErrPoison    the message always fails; Classify calls it permanent
//	ErrUnlucky   this attempt fails; Classify calls it transient
package retrytest
