package inbox

import "github.com/daybook-go/daybook/eventstore"

// Arrival is what a message says about itself, on its topic and partition.
type Arrival struct {
	// Position is its place in the log, Previous that of the message before it in its chain.
	Position, Previous eventstore.Position
	// Head: no message, but the word that nothing lies between Previous and Position.
	Head bool
	// Skip: no message, but what stands in the place of one that its relay has set aside.
	Skip bool
	// Redriven: comes later than in its place, because it had been set aside. With Skip: what was set aside never comes,
	// because somebody has discarded it.
	Redriven bool
}

// Known is what is committed where the message belongs.
type Known struct {
	// Applied is the position of the message's topic and partition up to which everything has taken effect or has a row.
	Applied eventstore.Position
	// Own: there is a row for the message's own position.
	Own bool
	// Lowest is the lowest position that has a row of the message's topic and partition key; zero when there is none.
	Lowest eventstore.Position
}

// Verdict is what is done about a message, in one transaction.
type Verdict int

const (
	// Drop: it has taken effect already, or will when its row's turn comes; or it stands for what has a row. Acknowledge it.
	Drop Verdict = iota
	// Apply: it is the next of its chain, and nothing of its key waits. Apply it and move applied to its position. A head
	// has no effect, and moves applied.
	Apply
	// Skip: the message of this position comes later. Write a row without bytes, and move applied to its position.
	Skip
	// Join: it is the next of its chain, and something of its key waits. Write a row with its bytes, and move applied to its
	// position.
	Join
	// Settle: the turn of its row has come. Apply it and delete the row; applied stays. Then the rows of its key that follow
	// and have bytes are applied and deleted, up to the first that has none.
	Settle
	// Forget: the message of this row never comes. Delete the row; applied stays. Then go on as with Settle, if the lowest row
	// of the key has its bytes now.
	Forget
	// Await: it has a row, and an earlier one of its key has not had its turn. Put its bytes into its row, or let it come
	// again later; applied stays.
	Await
	// Early: something before it has not come. Hold it, or let it come again later; nothing else changes.
	Early
)

// String names the verdict, for logs and tests.
func (v Verdict) String() string {
	switch v {
	case Drop:
		return "drop"
	case Apply:
		return "apply"
	case Skip:
		return "skip"
	case Join:
		return "join"
	case Settle:
		return "settle"
	case Forget:
		return "forget"
	case Await:
		return "await"
	case Early:
		return "early"
	}
	return "verdict(?)"
}

// Judge is the rule for consumers that cannot read the outbox. What has a row is judged by its row, whichever way it
// comes: a relay that did not know of a sequence that was set aside, or did not know yet that it was released, publishes
// the one for the other, and both orders must come to the same. What has none is judged by the chain.
func Judge(m Arrival, k Known) Verdict {
	switch {
	case k.Own && !m.Head:
		switch {
		case m.Skip && m.Redriven:
			return Forget
		case m.Skip:
			return Drop
		case k.Lowest.Before(m.Position):
			return Await
		}
		return Settle
	case !m.Position.After(k.Applied):
		return Drop
	case m.Previous.After(k.Applied), m.Redriven: // a redriven message follows what stands in its place
		return Early
	case m.Head:
		return Apply
	case m.Skip:
		return Skip
	case !k.Lowest.IsZero():
		return Join
	}
	return Apply
}
